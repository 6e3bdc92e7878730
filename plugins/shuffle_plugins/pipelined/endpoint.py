"""What a plugin has open in its process: memory, its Flight endpoint, connections to others, the outputs it serves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TypeAlias
from weakref import WeakValueDictionary

from shuffle_api.errors import InvalidArgument, MapOutputLost, ShuffleError, ShuttingDown
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import Position
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.driver_registry import DriverRegistry
from shuffle_plugins.pipelined.listener import (
    RELAY_BACK_WITHIN,
    DirectListener,
    RelayedListener,
    TaskListener,
    until_reachable,
)
from shuffle_plugins.pipelined.log_directory import InFlightLogs
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.pipelined.producer_registry import ProducerLocation, ProducerRegistry
from shuffle_plugins.pipelined.producer_registry_channel import ProducerRegistryChannel, serve_producer_registry
from shuffle_plugins.pipelined.pump import pump
from shuffle_plugins.pipelined.security import load_peer_security
from shuffle_plugins.pipelined.source import ChannelSource, LocalSource, Source
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView, SubscribablePartition
from shuffle_transport.channels import BlockChannel, ChannelOptions, ExchangeClient
from shuffle_transport.codecs import get_codec
from shuffle_transport.connect import use_grpc
from shuffle_transport.exiting import closed, opened
from shuffle_transport.pool import BufferPool
from shuffle_transport.security import Credentials

DIRECTORY, OUTPUT = "directory", "output"

DRIVER_BACK_WITHIN = 30.0
"""Seconds for a driver to answer a task again, beyond those after which it counts as silent."""

TASK_BACK_WITHIN = 3.0
"""Seconds for a task to come back whose channel to the driver broke, until its outputs count as lost. It tries to at
least every second. (Behind a relay, which may have to be started again, it has as long as the driver.)"""

Peer: TypeAlias = tuple[str, Credentials]


class Endpoint:
    """One per plugin. Thread-safe; close it.

    :ivar pool: of everything that this plugin holds.
    :ivar logs: of its writers.
    :ivar driver_registry: of the shuffles that this process registered.
    """

    def __init__(self, options: PipelinedOptions) -> None:
        get_codec(options.codec)
        self._security = load_peer_security(options)
        self.pool = BufferPool(options.memory)
        self.logs = InFlightLogs(options)
        self.driver_registry = DriverRegistry(self.logs.delete)
        self._options = options
        self._channels = ChannelOptions(
            window=options.window,
            codec=options.codec,
            keepalive=options.keepalive,
            resume_timeout=DRIVER_BACK_WITHIN if options.relay else TASK_BACK_WITHIN,
        )
        listener = RelayedListener if options.relay else DirectListener
        self._listener: TaskListener = listener(self._serve, self.pool, options, self._channels, self._security)
        self._lock = threading.Lock()
        self._outputs: dict[tuple[ShuffleId, MapAttempt], SubscribablePartition] = {}
        # By address and credentials: those of one application open nothing of another.
        self._clients: dict[Peer, ExchangeClient] = {}
        self._registries: dict[Peer, ProducerRegistryChannel] = {}
        self._closed = False

    def address(self, app: str) -> str:
        """Where this process is reached by the tasks of `app`; it is from the first time that somebody asks.

        :raises ShuffleError: see `TaskListener.address`.
        """
        with self._lock:
            self._check_open()
        opened(self)
        address = self._listener.address(app)
        _ENDPOINTS[address] = self
        return address

    def registry(self, address: str, app: str, *, patient: bool = True) -> ProducerRegistry:
        """The directory of the process at `address`, for the shuffles of `app`.

        :param patient: wait for a relay that is started again.
        :raises ServerUnreachable: it is not there.
        :raises Unauthenticated: it does not know the token, or its certificate is not trusted.
        """
        there = _ENDPOINTS.get(address)
        if there is not None and (there is self or self._options.local):
            return there.driver_registry
        wait = min(RELAY_BACK_WITHIN, self._options.timeout) if patient and "/" in address else 0.0
        return until_reachable(partial(self._registry, address, app, wait), wait)

    def add(self, output: SubscribablePartition) -> None:
        """Serve it from now on."""
        with self._lock:
            self._check_open()
            self._outputs[output.spec.id, output.attempt] = output

    def remove(self, output: SubscribablePartition, error: ShuffleError) -> None:
        """Its readers get `error`; its memory is free."""
        with self._lock:
            self._outputs.pop((output.spec.id, output.attempt), None)
        output.fail(error)

    def connect(
        self,
        shuffle: ShuffleId,
        location: ProducerLocation,
        reader: str,
        epoch: int,
        partitions: range,
        position: Position | None,
    ) -> Source:
        """Where a map's output comes from.

        :raises ShuffleError: it is not there, or refuses.
        """
        there = _ENDPOINTS.get(location.address)
        if there is not None and self._options.local:
            view = there.subscribe(shuffle, location.output, reader, epoch, partitions, position)
            return LocalSource(view, self._options.window)
        metadata = wire.encode(
            shuffle=wire.shuffle_fields(shuffle),
            output=[location.output.map, location.output.attempt],
            partitions=[partitions.start, partitions.stop],
            reader=reader,
            epoch=epoch,
            position=wire.position_fields(position),
            heads=True,
        )
        with self._lock:
            self._check_open()
            client = self._client((location.address, self._security.keys.for_app(shuffle.app)))
        channel = client.open(OUTPUT, metadata=metadata)
        try:
            return ChannelSource(channel, self._options.timeout)
        except BaseException:
            channel.close()
            raise

    def subscribe(
        self,
        shuffle: ShuffleId,
        output: MapAttempt,
        reader: str,
        epoch: int,
        partitions: range,
        position: Position | None,
    ) -> SubpartitionView:
        """A reader of an output of this process.

        :raises MapOutputLost: there is no such output.
        :raises ShuffleError: see `SubscribablePartition.subscribe`.
        """
        with self._lock:
            found = self._outputs.get((shuffle, output))
        if found is None:
            raise MapOutputLost("this process does not write it", shuffle=shuffle, output=output)
        return found.subscribe(reader, epoch, partitions, position)

    def abandon(self, reason: ShuffleError) -> None:
        """The process ends: readers of what is written here get `reason`, committed or not. See `exiting`."""
        for output in self._all():
            ended = copy(reason)
            ended.shuffle, ended.output = output.spec.id, output.attempt
            output.fail(ended)
        self.close(0.0, reason)

    def cut(self) -> None:
        """Shut down the connections of those that were served."""
        self._listener.cut()

    def close(self, linger: float, reason: ShuffleError | None = None) -> None:
        """Serve nobody any more; waits `linger` seconds for connected readers of what was committed. Idempotent.

        :param reason: the error that others get from now on; a ShuttingDown if none is given.
        """
        deadline = time.monotonic() + linger
        for output in self._all():
            with output.changed:
                output.changed.wait_for(partial(_left, output), deadline - time.monotonic())
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
            registries, outputs = list(self._registries.values()), list(self._outputs.values())
            self._outputs.clear()
        for address, endpoint in list(_ENDPOINTS.items()):
            if endpoint is self:
                _ENDPOINTS.pop(address, None)
        left = reason or ShuttingDown("the producer has left")
        steps: list[Callable[[], object]] = [partial(output.fail, left) for output in outputs]
        steps += [registry.close for registry in registries]
        steps += [client.close for client in clients]
        steps += [partial(self._listener.close, reason), self.pool.close, self.logs.close, partial(closed, self)]
        close_all(steps)

    # ------------------------------------------------------------------------------------------ within

    def _serve(self, name: str, metadata: bytes, channel: BlockChannel) -> None:
        """A channel that another process opened."""
        if name == DIRECTORY:
            serve_producer_registry(self.driver_registry, channel, self._options.timeout)
        elif name == OUTPUT:
            fields = wire.decode(metadata)

            def request() -> tuple[ShuffleId, MapAttempt, str, int, range]:
                shuffle, output = ShuffleId(*fields["shuffle"]), MapAttempt(*fields["output"])
                return shuffle, output, str(fields["reader"]), int(fields["epoch"]), range(*fields["partitions"])

            position = wire.parse_position(fields.get("position"))
            wanted = wire.checked(request, fields)
            channel.principal.check(wanted[0].app)
            view = self.subscribe(*wanted, position)
            pump(view, channel, self._options.timeout, heads=fields.get("heads") is True)
        else:
            raise InvalidArgument(f"no channel is called {name!r} here", remedy=f"open {DIRECTORY} or {OUTPUT}")

    def _registry(self, address: str, app: str, wait: float) -> ProducerRegistry:
        peer = address, self._security.keys.for_app(app)
        with self._lock:
            self._check_open()
            known, client = self._registries.get(peer), self._client(peer)
        if known is not None:
            if not known.broken:
                return known
            known.close()
        # A driver is not gone when its process is stopped for a while, or its relay: the channel outlives that.
        options = replace(self._channels, resume=True, resume_timeout=DRIVER_BACK_WITHIN, relay_wait=wait)
        made = ProducerRegistryChannel(client.open(DIRECTORY, options=options), self._options.timeout)
        with self._lock:
            present = self._registries.get(peer)
            if not self._closed and (present is None or present.broken):
                self._registries[peer] = made
                return made
        made.close()  # another thread was faster, or the plugin is closed
        self._check_open()
        assert present is not None
        return present

    def _client(self, peer: Peer) -> ExchangeClient:
        client = self._clients.get(peer)
        if client is None:
            opened(self)
            address, credentials = peer
            client = ExchangeClient(
                address, self.pool, timeout=self._options.timeout, options=self._channels, credentials=credentials
            )
            self._clients[peer] = client
        return client

    def _all(self) -> list[SubscribablePartition]:
        with self._lock:
            return list(self._outputs.values())

    def _check_open(self) -> None:
        use_grpc()
        if self._closed:
            raise InvalidArgument("the plugin is closed", remedy="open a new one")


def _left(output: SubscribablePartition) -> bool:
    """Nobody is still to get what was committed, as far as one can see."""
    return not output.committed or not output.connected or output.consumed or output.error is not None


_ENDPOINTS: WeakValueDictionary[str, Endpoint] = WeakValueDictionary()
"""The endpoints of this process by address: what is in the same process needs no connection."""
