"""The `pipelined` plugin: streaming shuffle in bounded memory, from producer to consumer."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from functools import partial
from typing import TypeVar

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt, new_run
from shuffle_api.interfaces import NO_OPTIONS, Options, ShufflePlugin
from shuffle_api.options import parse_options
from shuffle_api.streaming import Alignment, Guarantee, Position, ReaderState, WriterState
from shuffle_api.values import PIPELINED, ShuffleHandle
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.coordinator import removed_error
from shuffle_plugins.pipelined.debloat import Debloater
from shuffle_plugins.pipelined.directory import Bound, Event, Removed
from shuffle_plugins.pipelined.disk_log import open_log
from shuffle_plugins.pipelined.endpoint import Endpoint
from shuffle_plugins.pipelined.feed import Feed
from shuffle_plugins.pipelined.inbox import Inbox
from shuffle_plugins.pipelined.master import NAME, PipelinedMaster
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.pipelined.output import Output
from shuffle_plugins.pipelined.reach import worker_name
from shuffle_plugins.pipelined.reader import PipelinedReader
from shuffle_plugins.pipelined.source import Source
from shuffle_plugins.pipelined.terms import Terms
from shuffle_plugins.pipelined.ticker import Ticker
from shuffle_plugins.pipelined.writer import PipelinedWriter
from shuffle_transport.pool import PoolStatistics

MIN_WINDOW = 128 << 10
"""Bytes that may be on their way to a reader however slow it is."""

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
        self._ticker = Ticker(self._options.flush_timeout)
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[PipelinedMaster | PipelinedWriter | PipelinedReader] = weakref.WeakSet()
        self._closed = False

    def master(self, app: str) -> PipelinedMaster:
        chosen = self._options
        terms = Terms(Guarantee(chosen.guarantee), Alignment(chosen.alignment), chosen.alignment_timeout)
        run = new_run(app)
        address = self._endpoint.address(run)
        return self._track(
            PipelinedMaster(self._endpoint.coordinator, run, terms, chosen.codec, chosen.content, address)
        )

    def writer(
        self, handle: ShuffleHandle, attempt: MapAttempt, *, restore: WriterState | None = None
    ) -> PipelinedWriter:
        """See `ShufflePlugin.writer`.

        :param restore: go on from this checkpoint: what its barrier overtook goes out first.
            With option `log_dir` consumers may go on from an earlier one: what was sent in between is replayed.
        :raises AttemptSuperseded: this attempt, or a later one of this map, is written or was.
        """
        self._check_open()
        spec, chosen = handle.spec, self._options
        spec.check_map(attempt.map)
        directory = self._endpoint.directory(handle.endpoint, spec.id.app)
        terms = directory.terms(spec.id)
        begin = restore.begin if restore is not None else Position(dict.fromkeys(range(spec.partitions), 0))
        disk = open_log(
            chosen.log_dir if terms.keeps else "",
            chosen.log_disk_bytes,
            spec.id,
            attempt,
            restore.log if restore is not None else "",
            begin,
        )
        output = Output(
            spec,
            attempt,
            terms,
            pool=self._endpoint.pool,
            timeout=chosen.timeout,
            limit=chosen.queue_bytes,
            log_limit=chosen.log_bytes,
            restore=restore,
            disk=disk,
        )

        def removed(event: Event) -> None:
            if isinstance(event, Removed):
                self._endpoint.remove(output, removed_error(spec.id, event))

        try:
            address = self._endpoint.address(spec.id.app)
            self._endpoint.add(output)
            directory.watch(spec.id, removed)
            directory.bind(spec.id, attempt, address)
            output.start_log()
        except BaseException as error:
            self._endpoint.remove(output, InvalidArgument(f"the writer could not be opened: {error}"))
            raise

        def leave(error: ShuffleError) -> None:
            self._endpoint.remove(output, error)
            directory.unwatch(spec.id, removed)

        writer = self._track(PipelinedWriter(output, directory, worker_name(address), chosen, leave))
        self._ticker.add(writer, terms.alignment_timeout if terms.overtakes_late else None)
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
        directory = self._endpoint.directory(handle.endpoint, spec.id.app)
        terms = directory.terms(spec.id)
        inbox = Inbox(spec.id, wanted if len(partitions) else range(0), terms, restore)
        name = uuid.uuid4().hex

        def connect(bound: Bound, position: Position | None) -> Source:
            return self._endpoint.connect(spec.id, bound, name, attempt, partitions, position)

        feeds = {
            map: Feed(spec.id, input, inbox, connect, terms, chosen.timeout) for map, input in inbox.inputs.items()
        }

        def heard(event: Event) -> None:
            if isinstance(event, Removed):
                inbox.fail(removed_error(spec.id, event))
                for feed in feeds.values():
                    feed.heard(event)
            elif event.output.map in feeds:
                feeds[event.output.map].heard(event)

        directory.watch(spec.id, heard)
        leave = partial(directory.unwatch, spec.id, heard)
        window = Debloater(
            chosen.debloat_target, MIN_WINDOW, chosen.window * max(1, len(feeds)), chosen.window * len(feeds)
        )
        reader = PipelinedReader(spec, inbox, list(feeds.values()), window, chosen.timeout, leave)
        self._track(reader)
        for feed in feeds.values():
            feed.start()
        return reader

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
        close_all([*steps, self._ticker.close, partial(self._endpoint.close, self._options.linger)])

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
