"""What the master tells those who watch a shuffle, for all of a process that want to know: one call per shuffle."""

from __future__ import annotations

import threading
from typing import Protocol

from shuffle_api.backoff import MAXIMUM_SECONDS, Backoff
from shuffle_api.errors import (
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    WrongMaster,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import StreamThread
from shuffle_api.values import LostMapOutput, MapOutput
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient, ControlStream
from shuffle_transport.proto import flight_shuffle_pb2 as pb

# Each call has a deadline, so that a master that stands still is not believed in for ever. After a refusal by a master
# of another registry the next call goes to one of its own.
PASSING = (ServerUnreachable, ShuttingDown, Overloaded, DeadlineExceeded, WrongMaster)


class EventListener(Protocol):
    """A listener. Called in a thread of the subscription; must not wait."""

    def lost(self, output: LostMapOutput) -> None:
        """Called once for each, also for those that were lost before."""
        ...

    def began(self) -> None:
        """From now on `moved` reports moves, but none from before. Called again each time that the master was away."""
        ...

    def moved(self, output: MapOutput) -> None:
        """It lies at other workers than before."""
        ...

    def ended(self, error: ShuffleError) -> None:
        """The last thing: there will be no more news, and why."""
        ...


class ShuffleEvents:
    """Where one listens. Thread-safe; close it at the end.

    :param retry: seconds for which a master that is away is waited for.
    """

    def __init__(self, control: ControlClient, retry: float) -> None:
        self._control, self._retry = control, retry
        self._lock = threading.Lock()
        self._open: dict[ShuffleId, _EventSubscription] = {}
        self._closed = False

    def listen(self, shuffle: ShuffleId, listener: EventListener) -> None:
        """Call `listener` with the events of a shuffle until it leaves."""
        with self._lock:
            if self._closed:
                raise InvalidArgument("the plugin is closed", remedy="open a new one")
            news = self._open.get(shuffle)
            if news is None or news.over:
                news = self._open[shuffle] = _EventSubscription(shuffle, self._control, self._retry)
            news.add(listener)

    def leave(self, shuffle: ShuffleId, listener: EventListener) -> None:
        """Idempotent. When the last one leaves, the call ends."""
        with self._lock:
            news = self._open.get(shuffle)
            if news is None or news.remove(listener):
                return
            del self._open[shuffle]
        news.close()

    def close(self) -> None:
        """End all calls; idempotent."""
        with self._lock:
            self._closed = True
            news = list(self._open.values())
            self._open.clear()
        for each in news:
            each.end(InvalidArgument("the plugin is closed", remedy="open a new one"))
            each.close()


class _EventSubscription:
    """The news of one shuffle. A thread reads them until `close`."""

    def __init__(self, shuffle: ShuffleId, control: ControlClient, retry: float) -> None:
        self._shuffle, self._control, self._retry = shuffle, control, retry
        self._lock = threading.Lock()
        self._listeners: list[EventListener] = []
        self._lost: dict[MapAttempt, LostMapOutput] = {}
        self._error: ShuffleError | None = None
        self._begun = False  # the master reports moves
        self._stream: ControlStream | None = None
        self._closing = threading.Event()
        self._thread = StreamThread(f"events-{shuffle.app}-{shuffle.shuffle}", self._run, self.end)
        self._thread.start()

    @property
    def over(self) -> bool:
        return self._error is not None

    def add(self, listener: EventListener) -> None:
        with self._lock:
            self._listeners.append(listener)
            for lost in self._lost.values():
                listener.lost(lost)
            if self._begun:
                listener.began()
            if self._error is not None:
                listener.ended(self._error)

    def remove(self, listener: EventListener) -> bool:
        """Whether somebody goes on listening."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
            return bool(self._listeners)

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            stream = self._stream
        if stream is not None:
            stream.cancel()
        self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(self._retry)
        while not self._closing.is_set():
            heard, error = self._read()
            if heard:
                backoff.progress()
            pause = backoff.pause()
            if error is not None and (not isinstance(error, PASSING) or pause is None):
                self.end(error)
                return
            self._closing.wait(MAXIMUM_SECONDS if pause is None else pause)

    def _read(self) -> tuple[bool, ShuffleError | None]:
        """Read one call to its end: whether the master answered, and what it ended with."""
        stream = self._control.stream("Watch", pb.WatchRequest(shuffle=messages.key_of(self._shuffle)))
        with self._lock:
            self._stream = stream
        if self._closing.is_set():
            stream.cancel()
        heard = False
        try:
            for reply in stream:
                heard = True
                self._take(reply)
        except ShuffleError as error:
            return heard, error
        finally:
            with self._lock:
                self._begun = False
        return heard, None

    def _take(self, reply: pb.WatchReply) -> None:
        with self._lock:
            if not self._begun:
                self._begun = True
                for listener in self._listeners:
                    listener.began()
            for message in reply.lost:
                lost = LostMapOutput(
                    messages.map_attempt(message.output), messages.worker_info(message.worker), message.reason
                )
                if lost.output not in self._lost:  # a new call begins with all that was lost before
                    self._lost[lost.output] = lost
                    for listener in self._listeners:
                        listener.lost(lost)
            for output in map(messages.map_output, reply.moved):
                for listener in self._listeners:
                    listener.moved(output)

    def end(self, error: ShuffleError) -> None:
        """Call `ended` of all listeners: no more events follow."""
        with self._lock:
            self._error = error
            for listener in self._listeners:
                listener.ended(error)
