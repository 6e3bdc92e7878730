"""The `pipelined` plugin: streaming shuffle in bounded memory, from producer to consumer."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from functools import partial
from typing import TypeVar

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId, name_of, new_run
from shuffle_api.interfaces import NO_OPTIONS, Options, ShuffleMaster, ShufflePlugin
from shuffle_api.options import parse_options
from shuffle_api.streaming import Alignment, Guarantee, Position, ReaderState, WriterState
from shuffle_api.values import PIPELINED, MapOutput, ShuffleHandle, ShuffleSpec
from shuffle_plugins.pipelined.buffer_debloater import BufferDebloater
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.consumer_group import ATTEMPT_BITS, ConsumerGroup, KeyedState, PipelinedConsumer
from shuffle_plugins.pipelined.driver_registry import DriverRegistry, removed_error
from shuffle_plugins.pipelined.endpoint import Endpoint
from shuffle_plugins.pipelined.input_gate import InputGate
from shuffle_plugins.pipelined.input_receiver import InputReceiver
from shuffle_plugins.pipelined.listener import worker_name
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.pipelined.producer_registry import Event, ProducerLocation, ShuffleUnregistered, StreamConfig
from shuffle_plugins.pipelined.queue_memory import QueueMemory
from shuffle_plugins.pipelined.reader import PipelinedReader
from shuffle_plugins.pipelined.registry_watch import RegistryWatch
from shuffle_plugins.pipelined.result_partition import ResultPartition
from shuffle_plugins.pipelined.source import Source
from shuffle_plugins.pipelined.writer import OutputFlusher, PipelinedWriter
from shuffle_transport.pool import PoolStatistics

MIN_WINDOW = 128 << 10
"""Bytes that may be on their way to a reader however slow it is."""

NAME = "pipelined"


class PipelinedMaster(ShuffleMaster):
    """Registers shuffles with the registry of its process, and a run of its application when made.

    Its shuffles last as long as its process.

    :param endpoint: where tasks of other processes reach the coordinator.
    """

    def __init__(
        self, driver_registry: DriverRegistry, run: str, config: StreamConfig, codec: str, content: str, endpoint: str
    ) -> None:
        self._coordinator, self._run, self._config = driver_registry, run, config
        self._codec, self._content, self._endpoint = codec, content, endpoint
        self._lock = threading.Lock()
        self._next, self._closed = 0, False
        driver_registry.register_app(self._run)

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        with self._lock:
            if self._closed:
                raise InvalidArgument(f"the master of application {name_of(self._run)!r} is closed")
            number = self._next if shuffle is None else shuffle
            id = ShuffleId(self._run, number).anew()
            spec = ShuffleSpec(id, partitions, maps, self._codec, self._content)
            spec = self._coordinator.register_shuffle(spec, self._config)
            self._next = max(self._next, number + 1)
        return ShuffleHandle(NAME, spec, self._endpoint)

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return self._coordinator.map_outputs(handle.spec.id)

    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        self._coordinator.unregister_shuffle(handle.spec.id)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._coordinator.unregister_app(self._run)


User = TypeVar("User", PipelinedMaster, PipelinedWriter, PipelinedReader)


class PipelinedShuffle(ShufflePlugin):
    """Data lives in the producer's memory until it was read, once, by who connects to it.

    The driver's process must live as long as its shuffles: tasks find each other through it.
    """

    name = NAME
    mode = PIPELINED

    def __init__(self, options: Options = NO_OPTIONS) -> None:
        self._options = parse_options(PipelinedOptions, options, os.environ)
        self._endpoint = Endpoint(self._options)
        self._flusher = OutputFlusher(self._options.flush_timeout)
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[PipelinedMaster | PipelinedWriter | PipelinedReader] = weakref.WeakSet()
        self._closed = False

    def master(self, app: str) -> PipelinedMaster:
        chosen = self._options
        config = StreamConfig(Guarantee(chosen.guarantee), Alignment(chosen.alignment), chosen.alignment_timeout)
        run = new_run(app)
        address = self._endpoint.address(run)
        return self._track(
            PipelinedMaster(self._endpoint.driver_registry, run, config, chosen.codec, chosen.content, address)
        )

    def writer(
        self, handle: ShuffleHandle, attempt: MapAttempt, *, restore: WriterState | None = None
    ) -> PipelinedWriter:
        """See `ShufflePlugin.writer`.

        :param restore: go on from this checkpoint: the blocks that its barrier overtook go out first.
            With option `log_dir` consumers may go on from an earlier one: the blocks sent in between are replayed.
        :raises AttemptSuperseded: this attempt, or a later one of this map, is written or was.
        """
        self._check_open()
        spec, chosen = handle.spec, self._options
        spec.check_map(attempt.map)
        registry = self._endpoint.registry(handle.endpoint, spec.id.app)
        config = registry.config(spec.id)
        begin = restore.begin if restore is not None else Position(dict.fromkeys(range(spec.partitions), 0))
        parent = restore.log if restore is not None else ""
        disk = self._endpoint.logs.open(spec.id, attempt, parent, begin, keep=config.keeps)
        output = ResultPartition(
            spec,
            attempt,
            config,
            QueueMemory(self._endpoint.pool, chosen.timeout, chosen.queue_bytes, chosen.log_bytes),
            restore=restore,
            disk=disk,
        )

        def removed(event: Event) -> None:
            if isinstance(event, ShuffleUnregistered):
                self._endpoint.remove(output, removed_error(spec.id, event))

        try:
            address = self._endpoint.address(spec.id.app)
            self._endpoint.add(output)
            registry.watch(spec.id, removed)
            registry.bind(spec.id, attempt, address)
            output.start_log()
        except BaseException as error:
            self._endpoint.remove(output, InvalidArgument(f"the writer could not be opened: {error}"))
            raise

        def leave(error: ShuffleError) -> None:
            self._endpoint.remove(output, error)
            registry.unwatch(spec.id, removed)

        writer = self._track(PipelinedWriter(output, registry, worker_name(address), chosen, leave))
        self._flusher.add(writer, config.alignment_timeout if config.overtakes_late else None)
        return writer

    def reader(
        self,
        handle: ShuffleHandle,
        partitions: range,
        maps: range | None = None,
        *,
        attempt: int = 0,
        restore: ReaderState | None = None,
    ) -> PipelinedReader:
        """See `ShufflePlugin.reader`. Each partition has one reader.

        :param attempt: of the task that reads; a higher one takes the place of one that is still there.
        :param restore: go on from this checkpoint.
        """
        self._check_open()
        spec, chosen = handle.spec, self._options
        wanted = spec.check_ranges(partitions, maps)
        config = self._endpoint.registry(handle.endpoint, spec.id.app).config(spec.id)
        gate = InputGate(spec.id, wanted if len(partitions) else range(0), config, restore)
        name = uuid.uuid4().hex

        def connect(bound: ProducerLocation, position: Position | None) -> Source:
            return self._endpoint.connect(spec.id, bound, name, attempt, partitions, position)

        find = partial(self._endpoint.registry, handle.endpoint, spec.id.app, patient=False)
        watch = RegistryWatch(spec.id, find)
        receivers = {
            map: InputReceiver(watch, input, gate, connect, config, chosen.timeout)
            for map, input in gate.inputs.items()
        }

        def on_event(event: Event) -> None:
            if isinstance(event, ShuffleUnregistered):
                gate.fail(removed_error(spec.id, event))
                for receiver in receivers.values():
                    receiver.on_event(event)
            elif event.output.map in receivers:
                receivers[event.output.map].on_event(event)

        watch.begin(on_event)
        window = BufferDebloater(
            chosen.debloat_target, MIN_WINDOW, chosen.window * max(1, len(receivers)), chosen.window * len(receivers)
        )
        reader = PipelinedReader(spec, gate, list(receivers.values()), window, chosen.timeout, watch.end)
        self._track(reader)
        for receiver in receivers.values():
            receiver.start()
        return reader

    def consumer(self, group: ConsumerGroup, subtask: int, state: KeyedState, *, attempt: int = 0) -> PipelinedConsumer:
        """A task of a consumer group that may be rescaled. It goes on from the group's last complete snapshot.

        :param attempt: of the task; a higher one takes the place of one that is still there.
        :raises InvalidArgument: the shuffle is not `exactly_once`.
        :raises DeadlineExceeded: the group has no task of this number, and gets none within option `timeout`.
        """
        handle = group.handle
        config = self._endpoint.registry(handle.endpoint, handle.spec.id.app).config(handle.spec.id)
        if config.guarantee is not Guarantee.EXACTLY_ONCE:
            raise InvalidArgument(
                f"a consumer group of a shuffle with the guarantee {config.guarantee.value}",
                remedy=f"register it with option 'guarantee' = {Guarantee.EXACTLY_ONCE.value}",
                shuffle=handle.spec.id,
            )

        def open_reader(key_groups: range, generation: int, restore: ReaderState | None) -> PipelinedReader:
            return self.reader(handle, key_groups, attempt=(generation << ATTEMPT_BITS) + attempt, restore=restore)

        if not 0 <= attempt < 1 << ATTEMPT_BITS:
            raise InvalidArgument(f"attempt {attempt} of a task is not in [0, {1 << ATTEMPT_BITS})")
        return PipelinedConsumer(group, subtask, state, open_reader, self._options.timeout)

    def memory(self) -> PoolStatistics:
        """What its queues, logs and windows hold of the option `memory`."""
        return self._endpoint.pool.statistics()

    def close(self) -> None:
        """Abort open writers, close readers and masters; first wait `linger` for readers of what was committed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            users = list(self._users)
        users.sort(key=lambda user: isinstance(user, PipelinedMaster))  # masters last: the others still need them
        steps = [user.abort if isinstance(user, PipelinedWriter) else user.close for user in users]
        close_all([*steps, self._flusher.close, partial(self._endpoint.close, self._options.linger)])

    def _track(self, user: User) -> User:
        with self._lock:
            if not self._closed:
                self._users.add(user)
                return user
        user.abort() if isinstance(user, PipelinedWriter) else user.close()
        raise InvalidArgument("the plugin is closed", remedy="open a new one")

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the plugin is closed", remedy="open a new one")
