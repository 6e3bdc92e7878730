"""The directory of another process: questions, answers and news over one channel.

    task -> driver   {"id": 7, "call": "bind", "shuffle": [run, number, generation], ...}
    driver -> task   {"id": 7, "answer": ...} or {"id": 7, "error": "<pb.Error, base64>"}
                     {"news": [run, number, generation], "event": [...]}

When the channel breaks, the outputs that were bound over it have failed: their process is gone.
"""

from __future__ import annotations

import base64
import itertools
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuffleError, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import StreamThread, guarded
from shuffle_api.streaming import Alignment, Guarantee
from shuffle_api.values import MapOutput, Totals
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.driver_registry import DriverRegistry
from shuffle_plugins.pipelined.producer_registry import (
    Event,
    ProducerFailed,
    ProducerLocation,
    ShuffleUnregistered,
    StreamConfig,
    Watcher,
)
from shuffle_transport import messages
from shuffle_transport.channels import BlockChannel, Control
from shuffle_transport.proto import flight_shuffle_pb2 as pb

FOREVER = 3600.0
_LEAVE_WITHIN = 5.0  # seconds for the driver to say goodbye


def serve_producer_registry(driver_registry: DriverRegistry, channel: BlockChannel, timeout: float) -> None:
    """The driver's end, until the task leaves."""
    bound: set[tuple[ShuffleId, MapAttempt]] = set()
    watched: list[tuple[ShuffleId, Watcher]] = []
    news: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # so that a slow task holds nobody up
    writer = StreamThread("pipelined-news", partial(_tell, news, channel, timeout), _cancelling(channel))
    writer.start()
    reason = "its process left"
    try:
        while (item := _receive(channel)) is not None:
            fields = wire.decode(item)
            try:
                shuffle = _shuffle(fields)
                channel.principal.check(shuffle.app)
                answer = _answer(driver_registry, shuffle, fields, bound, watched, news)
                news.put(wire.encode(id=fields.get("id"), answer=answer))
            except ShuffleError as error:
                text = base64.b64encode(messages.error_message(error).SerializeToString()).decode()
                news.put(wire.encode(id=fields.get("id"), error=text))
    except ShuffleError as error:
        reason = f"its process is gone: {error.message}"
    finally:
        for shuffle, watcher in watched:
            driver_registry.unwatch(shuffle, watcher)
        for shuffle, output in bound:
            driver_registry.fail(shuffle, output, reason)
        news.put(None)
        writer.join()


def _receive(channel: BlockChannel) -> bytes | None:
    while True:
        try:
            item = channel.receive(FOREVER)
        except DeadlineExceeded:
            continue
        if item is None:
            return None
        if not isinstance(item, Control):
            raise InvalidArgument("blocks on a channel of the directory")
        return item.message


def _tell(news: queue.SimpleQueue[bytes | None], channel: BlockChannel, timeout: float) -> None:
    while (message := news.get()) is not None:
        try:
            channel.send_control(message, timeout)
        except ShuffleError:
            return  # who receives on the channel meets the same


def _cancelling(channel: BlockChannel) -> Callable[[ShuffleError], None]:
    return lambda error: channel.cancel(error.message)


def _shuffle(fields: wire.Fields) -> ShuffleId:
    return wire.checked(lambda: ShuffleId(*fields["shuffle"]), fields)


def _answer(
    driver_registry: DriverRegistry,
    shuffle: ShuffleId,
    fields: wire.Fields,
    bound: set[tuple[ShuffleId, MapAttempt]],
    watched: list[tuple[ShuffleId, Watcher]],
    news: queue.SimpleQueue[bytes | None],
) -> Any:
    call = fields.get("call")
    if call == "terms":
        config = driver_registry.config(shuffle)
        return [config.guarantee, config.alignment, config.alignment_timeout]
    if call == "watch":

        def watcher(event: Event) -> None:
            news.put(wire.encode(news=fields["shuffle"], event=_event_fields(event)))

        watched.append((shuffle, watcher))
        driver_registry.watch(shuffle, watcher)
        return None
    output = wire.checked(lambda: MapAttempt(*fields["output"]), fields)
    if call == "bind":
        driver_registry.bind(shuffle, output, str(fields.get("address")))
        bound.add((shuffle, output))
    elif call == "fail":
        driver_registry.fail(shuffle, output, str(fields.get("reason")))
        bound.discard((shuffle, output))
    elif call == "commit":
        totals = wire.checked(lambda: Totals(*fields["totals"]), fields)
        won = driver_registry.commit(shuffle, MapOutput(output, str(fields.get("worker")), totals))
        return [won.output.map, won.output.attempt, won.worker, _totals_fields(won.totals)]
    else:
        raise InvalidArgument(f"no such call: {call!r}")
    return None


class ProducerRegistryChannel:
    """A `Directory` in another process. Close it.

    :param channel: to that process, of name "directory".
    """

    def __init__(self, channel: BlockChannel, timeout: float) -> None:
        self._channel, self._timeout = channel, timeout
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._watchers: dict[ShuffleId, list[Watcher]] = defaultdict(list)
        self._places: dict[ShuffleId, dict[int, Event]] = defaultdict(dict)
        self._hearing = threading.RLock()  # so that watchers hear things in order
        self._error: ShuffleError | None = None
        self._reader = StreamThread("pipelined-directory", self._listen, self._ended)
        self._reader.start()

    @property
    def broken(self) -> bool:
        return self._error is not None

    def config(self, shuffle: ShuffleId) -> StreamConfig:
        guarantee, alignment, alignment_timeout = self._call("terms", shuffle)
        return StreamConfig(Guarantee(guarantee), Alignment(alignment), float(alignment_timeout))

    def bind(self, shuffle: ShuffleId, output: MapAttempt, address: str) -> None:
        self._call("bind", shuffle, output=[output.map, output.attempt], address=address)

    def fail(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        self._call("fail", shuffle, output=[output.map, output.attempt], reason=reason)

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        ids = [output.output.map, output.output.attempt]
        answer = self._call("commit", shuffle, output=ids, worker=output.worker, totals=_totals_fields(output.totals))
        return MapOutput(MapAttempt(answer[0], answer[1]), answer[2], Totals(*answer[3]))

    def watch(self, shuffle: ShuffleId, watcher: Watcher) -> None:
        with self._hearing:
            first = shuffle not in self._watchers
            self._watchers[shuffle].append(watcher)
            for event in list(self._places[shuffle].values()):
                watcher(event)
        if first:
            try:
                self._call("watch", shuffle)
            except ShuffleError:
                with self._hearing:
                    self._watchers.pop(shuffle, None)
                raise

    def unwatch(self, shuffle: ShuffleId, watcher: Watcher) -> None:
        with self._hearing:
            if watcher in self._watchers.get(shuffle, ()):
                self._watchers[shuffle].remove(watcher)

    def close(self) -> None:
        """Leave. Idempotent."""
        if self._error is None:
            try:
                self._channel.half_close(_LEAVE_WITHIN)
                self._reader.join(_LEAVE_WITHIN)
            except ShuffleError:
                pass  # it is broken, or closed already
        self._channel.close()
        self._reader.join()

    def _call(self, call: str, shuffle: ShuffleId, **fields: Any) -> Any:
        future: Future[Any] = Future()
        number = next(self._ids)
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            self._waiting[number] = future
        try:
            message = wire.encode(id=number, call=call, shuffle=wire.shuffle_fields(shuffle), **fields)
            self._channel.send_control(message, self._timeout)
            return future.result(self._timeout)
        except FutureTimeout:
            raise DeadlineExceeded(
                f"the driver at {self._channel.peer} did not answer within {self._timeout:g} s"
            ) from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def _listen(self) -> None:
        while (message := _receive(self._channel)) is not None:
            self._hear(wire.decode(message))
        raise StreamBroken(f"the driver at {self._channel.peer} has left")

    def _ended(self, error: ShuffleError) -> None:
        with self._lock:
            self._error, waiting = error, list(self._waiting.values())
        for future in waiting:
            future.set_exception(error)

    def _hear(self, fields: wire.Fields) -> None:
        if "news" in fields:
            shuffle = wire.checked(lambda: ShuffleId(*fields["news"]), fields)
            event = wire.checked(lambda: _event(fields["event"]), fields)
            with self._hearing:
                if isinstance(event, ShuffleUnregistered):
                    self._places.pop(shuffle, None)
                    watchers = self._watchers.pop(shuffle, [])
                else:
                    self._places[shuffle][event.output.map] = event
                    watchers = self._watchers[shuffle]
                for watcher in list(watchers):
                    guarded(f"the news of {shuffle}", partial(watcher, event), lambda error: None)
            return
        with self._lock:
            future = self._waiting.pop(fields.get("id", -1), None)
        if future is not None and "error" in fields:
            error = messages.parse(pb.Error, base64.b64decode(fields["error"]))
            future.set_exception(messages.typed_error(error))
        elif future is not None:
            future.set_result(fields.get("answer"))


def _event_fields(event: Event) -> list[Any]:
    if isinstance(event, ShuffleUnregistered):
        return ["removed", event.reason]
    if isinstance(event, ProducerLocation):
        return ["bound", event.output.map, event.output.attempt, event.address]
    return ["failed", event.output.map, event.output.attempt, event.reason]


def _event(fields: list[Any]) -> Event:
    kind, *rest = fields
    if kind == "removed":
        return ShuffleUnregistered(str(rest[0]))
    event = ProducerLocation if kind == "bound" else ProducerFailed
    return event(MapAttempt(rest[0], rest[1]), str(rest[2]))


def _totals_fields(totals: Totals) -> list[int]:
    return [totals.blocks, totals.bytes, totals.raw_bytes, totals.records, totals.digest]
