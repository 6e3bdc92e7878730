"""A reader's thread for one map: finds where its output is, receives, and finds it again when that breaks.

Which attempt counts is what the driver's registry says, as it says it; a broken connection to the driver is opened
again before the producer is looked for. One to the producer is opened again while its attempt is the one that counts.
What another attempt means depends on the guarantee: with `exactly_once` its numbers and state belong to a checkpoint,
so a reader that has begun with one cannot go on with the next, and says so.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from shuffle_api.clock import LOOK_SHARE, ServingClock
from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    InvalidArgument,
    ShuffleError,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.periodic import StreamThread
from shuffle_api.streaming import Guarantee, Position
from shuffle_plugins.pipelined.driver_registry import removed_error
from shuffle_plugins.pipelined.input_channel import InputChannel
from shuffle_plugins.pipelined.input_gate import InputGate
from shuffle_plugins.pipelined.producer_registry import (
    Event,
    ProducerFailed,
    ProducerLocation,
    ShuffleUnregistered,
    StreamConfig,
)
from shuffle_plugins.pipelined.registry_watch import RegistryWatch
from shuffle_plugins.pipelined.source import MAY_PASS, Source

Open = Callable[[ProducerLocation, Position | None], Source]
"""Connects to an attempt, at a position."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_LOOK = 0.5  # seconds between looks at the directory's news, or at the clock, while nothing comes


class InputReceiver:
    """Feeds one input until its end.

    :param watch: gives `on_event` what changes.
    :param open: connects to where a map's output is.
    :param timeout: seconds for another attempt to appear, and for a connection to come back.
    """

    def __init__(
        self,
        watch: RegistryWatch,
        input: InputChannel,
        gate: InputGate,
        open: Open,
        config: StreamConfig,
        timeout: float,
    ) -> None:
        self._watch, self._input, self._gate, self._open = watch, input, gate, open
        self._config, self._timeout = config, timeout
        self._clock = ServingClock(LOOK_SHARE * timeout)  # of the time in which the producer may come back
        self._changed = threading.Condition()
        self._location: ProducerLocation | ProducerFailed | None = None
        self._removed: ShuffleUnregistered | None = None
        self._reading: ProducerLocation | None = None  # the attempt whose data the input has
        self._source: Source | None = None
        self._source_of: ProducerLocation | None = None
        self._closing = False
        self.reconnects = -1
        self._thread = StreamThread(f"pipelined-input-{input.map}", self._receive_all, gate.fail)

    def start(self) -> None:
        self._thread.start()

    def on_event(self, event: Event) -> None:
        """News of the directory about this map. A source of an attempt that another has replaced is left."""
        with self._changed:
            if isinstance(event, ShuffleUnregistered):
                self._removed = event
            else:
                self._location = event
            self._changed.notify_all()
            source = self._source
            stale = not self._counts()
        if stale and source is not None:
            StreamThread("pipelined-leave", source.close, lambda error: None).start()

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            source = self._source
        if source is not None:
            source.close()
        if self._thread.is_alive():
            self._thread.join()

    # ------------------------------------------------------------------------------------ the thread

    def _receive_all(self) -> None:
        self._wait_for_first()
        deadline, pause = self._clock() + self._timeout, _FIRST_PAUSE
        reason: ShuffleError | None = None
        while not self._input.ended:
            location = self._wait_for_location(deadline, reason)
            if location is None:
                return
            connected = False
            try:
                self._connect(location)
                connected, pause = True, _FIRST_PAUSE
                self._receive()
            except MAY_PASS as error:
                if isinstance(error, AttemptSuperseded) and self._location == location:
                    raise
                reason = error
                self._gate.left(self._input, error)
                if connected:  # however long ago: the time to come back runs from now
                    deadline = self._clock() + self._timeout
            finally:
                self._leave()
            with self._changed:
                if self._closing:
                    return
                if not self._input.ended and self._location == location:
                    self._changed.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _wait_for_first(self) -> None:
        """Return when an attempt was there, or there is nothing to wait for. It may come late: asking a reader says so.

        :raises StreamBroken: the driver is away for too long.
        """
        deadline = math.inf
        while True:
            away = self._watch.renew()
            deadline = math.inf if away is None else min(deadline, self._clock() + self._timeout)
            with self._changed:
                if self._closing or self._removed is not None or self._location is not None:
                    return
                if self._clock() >= deadline:
                    raise self._broken("the driver", "" if away is None else away.message)
                self._changed.wait(_LOOK)

    def _wait_for_location(self, deadline: float, reason: ShuffleError | None) -> ProducerLocation | None:
        """Where the attempt is that counts; None: this reader is closing.

        :raises UnknownShuffle: the shuffle has ended.
        :raises StreamBroken: there is none until the deadline, or it is not the one that was begun with.
        """
        while True:
            reason = self._watch.renew() or reason
            with self._changed:
                if self._closing:
                    return None
                if self._removed is not None:
                    raise removed_error(self._watch.shuffle, self._removed)
                location, begun = self._location, self._reading
                if begun is not None and location != begun and self._config.guarantee is Guarantee.EXACTLY_ONCE:
                    raise self._lost(begun, location, reason)
                left = deadline - self._clock()
                if isinstance(location, ProducerLocation) and (left > 0 or reason is None):
                    return location
                if left <= 0:
                    raise self._lost(begun, location, reason)
                self._changed.wait(min(left, _LOOK))

    def _lost(
        self,
        begun: ProducerLocation | None,
        location: ProducerLocation | ProducerFailed | None,
        reason: ShuffleError | None,
    ) -> ShuffleError:
        named = begun or location
        assert named is not None
        what = location.reason if isinstance(location, ProducerFailed) else reason.message if reason is not None else ""
        if isinstance(location, ProducerLocation) and begun is not None and location != begun:
            what = f"{location.output} has taken its place"
        where = f" at {begun.address}" if begun is not None else ""
        return self._broken(f"the producer{where}", what, named.output)

    def _broken(self, who: str, why: str, output: MapAttempt | None = None) -> StreamBroken:
        return StreamBroken(
            f"{who} is lost: {why}",
            remedy="restore producers and consumers from the last complete checkpoint",
            shuffle=self._watch.shuffle,
            output=output,
        )

    def _connect(self, location: ProducerLocation) -> None:
        fresh = self._reading is not None and self._reading != location
        position = None if fresh else self._input.where()
        try:
            source = self._open(location, position)
        except InvalidArgument as error:
            error.output = error.output or location.output
            raise
        with self._changed:
            self._source, self._source_of = source, location
            if self._closing or not self._counts():
                raise StreamBroken(f"{location.output} does not count any more")
        self._gate.connected(self._input, source, location.output, fresh=fresh)
        self._reading = location
        self.reconnects += 1

    def _receive(self) -> None:
        source = self._source
        assert source is not None
        while not self._input.ended:
            try:
                received = source.receive(_LOOK)
            except DeadlineExceeded:
                with self._changed:
                    if self._closing or not self._counts():
                        raise StreamBroken("it does not count any more") from None
                continue
            with self._changed:
                if not self._counts():
                    raise StreamBroken("it does not count any more")
            self._gate.put(self._input, source, received)

    def _counts(self) -> bool:
        """The source is the attempt's that counts, or counted last."""
        return self._removed is None and (
            not isinstance(self._location, ProducerLocation) or self._location == self._source_of
        )

    def _leave(self) -> None:
        """After the end the source stays: acknowledgements go there, and the reader closes it."""
        with self._changed:
            source = self._source
            if self._input.ended and not self._closing:
                return
            self._source = None
        if source is not None:
            source.close()
