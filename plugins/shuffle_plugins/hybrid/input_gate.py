"""What a reader has received live and not handed out, and what it knows about each map. One lock guards it.

Feeds `put`, the directory is `on_event`; the task takes, and waits here when there is nothing to do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput
from shuffle_plugins.hybrid.input_channel import HybridInputChannel, ReceivedBlock
from shuffle_plugins.hybrid.live_receiver import LiveReceiver
from shuffle_plugins.pipelined.producer_registry import Event, ShuffleUnregistered
from shuffle_plugins.pipelined.progress import InputStatistics
from shuffle_plugins.pipelined.source import Received, Source

T = TypeVar("T")


class HybridInputGate:
    """
    :param whole: all partitions of the shuffle are read.
    :ivar waited: seconds that the task had nothing to do.
    :ivar switched: attempts that were left before anything of them was handed out.
    :ivar held_bytes: received, not handed out.
    """

    def __init__(self, shuffle: ShuffleId, maps: range, *, whole: bool) -> None:
        self.changed = threading.Condition()
        self.shuffle = shuffle
        self.inputs = {map: HybridInputChannel(map, whole=whole) for map in maps}
        self.waited, self.switched, self.held_bytes = 0.0, 0, 0
        self._ready: deque[HybridInputChannel] = deque()  # those with items, in turn
        self._left = len(self.inputs)  # those that are not done
        self._events = False
        self._error: ShuffleError | None = None

    # ---------------------------------------------------------------------- feeds, and news of the directory

    def put(self, receiver: LiveReceiver, source: Source, received: Received) -> list[int]:
        """Take in what came; returns what is to be released at once, as nobody will ask for it."""
        refused: list[int] = []
        with self.changed:
            input = self.inputs[receiver.location.output.map]
            counts = input.receiver is receiver and self._error is None
            for block, stored in zip(received.blocks, received.stored, strict=True):
                waiting = bool(input.items)
                if not counts or not input.take_in(ReceivedBlock(block, stored, source)):
                    refused.append(stored)
                    continue
                self.held_bytes += block.size
                if not waiting:
                    self._ready.append(input)
            if counts and received.marks:
                self._finish(input, lambda: input.ended(received.totals))
                self._events = True
            self.changed.notify_all()
        return refused

    def found(self, receiver: LiveReceiver) -> None:
        """The feed has its writer: until it says more the store need not be asked."""
        with self.changed:
            input = self.inputs[receiver.location.output.map]
            input.connected = input.connected or input.receiver is receiver

    def wait_until_drained(self, receiver: LiveReceiver) -> None:
        """Until all that the feed brought was handed out, or nobody wants it."""
        with self.changed:
            input = self.inputs[receiver.location.output.map]
            self.changed.wait_for(lambda: not input.items or input.receiver is not receiver or self._error is not None)

    def broke(self, receiver: LiveReceiver, error: ShuffleError) -> None:
        """The receiver has ended early. Its blocks are dropped if none of them was handed out yet."""
        with self.changed:
            input = self.inputs[receiver.location.output.map]
            if input.receiver is receiver and input.totals is None:
                input.broke(error, time.monotonic())
                if not input.began:
                    self._drop(input)
                self._events = True
            self.changed.notify_all()

    def on_event(self, event: Event) -> None:
        """News of the directory. What is true the store knows: this says when to look."""
        with self.changed:
            if not isinstance(event, ShuffleUnregistered):
                input = self.inputs.get(event.output.map)
                if input is None:
                    return
                input.place, input.join.earliest = event, 0.0
            self._events = True
            self.changed.notify_all()

    def fail(self, error: ShuffleError) -> None:
        """Whoever takes gets `error`."""
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()

    # --------------------------------------------------------------------------------------- the task

    def take(self) -> tuple[MapAttempt, ReceivedBlock] | None:
        """The next block that is there, one map after the other; None: none is."""
        with self.changed:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if not self._ready:
                return None
            input = self._ready.popleft()
            attempt = input.reading
            assert attempt is not None
            held = self._finish(input, input.hand_out)
            self.held_bytes -= held.block.size
            if input.items:
                self._ready.append(input)
            else:
                self.changed.notify_all()  # its feed may wait for that
            return attempt, held

    def begin(self, input: HybridInputChannel, receiver: LiveReceiver) -> None:
        """`receiver` is to receive an attempt: the one that was begun with, or, if nothing was handed out, any."""
        with self.changed:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if input.reading != receiver.location.output:
                self._drop(input)
                input.reading = receiver.location.output
            input.receiver = receiver

    def settle(self, winner: MapOutput) -> LiveReceiver | None:
        """The store has a winner. Returns a feed that is to be stopped: of an attempt that has lost, or that does not
        find its writer.

        :raises StreamBroken: some of another attempt was handed out.
        """
        with self.changed:
            input = self.inputs.get(winner.output.map)
            if input is None or input.done or input.output is not None:
                return None
            receiver = None
            if input.reading is not None and input.reading != winner.output:
                if input.began:
                    raise input.lost(self.shuffle, f"{winner.output} has committed in its place")
                receiver = input.leave()
                self._drop(input)
            if input.unsettled:
                if input.totals is None:
                    receiver = receiver or input.leave()
                self._finish(input, lambda: input.settle(winner))
            return receiver

    def read(self, input: HybridInputChannel) -> None:
        """All of it was read from the store."""
        with self.changed:
            self._left -= not input.done
            input.done = True

    def wait(self, seconds: float) -> bool:
        """Until a block is there, or something else that concerns the task. Whether there was news."""
        with self.changed:
            began = time.monotonic()
            self.changed.wait_for(lambda: self._ready or self._events or self._error is not None, max(0.0, seconds))
            self.waited += time.monotonic() - began
            if self._error is not None:
                raise self._error.with_traceback(None)
            events, self._events = self._events, False
            return events

    def unsettled(self) -> list[HybridInputChannel]:
        """Maps of which nothing comes live, and that are not known to be in the store."""
        with self.changed:
            return [input for input in self.inputs.values() if input.unsettled]

    def stored(self) -> list[HybridInputChannel]:
        """Maps whose rest is to be read from the store now."""
        with self.changed:
            return [input for input in self.inputs.values() if input.stored]

    def progress(self) -> list[InputStatistics]:
        """What came of each map and partition."""
        with self.changed:
            return [row for each in self.inputs.values() for row in each.progress()]

    @property
    def done(self) -> bool:
        return self._left == 0

    # ------------------------------------------------------------------------- within, with the lock held

    def _finish(self, input: HybridInputChannel, step: Callable[[], T]) -> T:
        """A step after which the input may be done."""
        before = input.done
        result = step()
        self._left -= input.done and not before
        return result

    def _drop(self, input: HybridInputChannel) -> None:
        """Forget what came of an attempt of which nothing was handed out."""
        self.switched += input.reading is not None
        self.held_bytes -= sum(held.block.size for held in input.items)
        if input.items:
            self._ready.remove(input)
        input.forget()
        self.changed.notify_all()
