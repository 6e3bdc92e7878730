"""Watching a shuffle: its lost map outputs, as they are lost."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Self

from shuffle_api.errors import DeadlineExceeded, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import LostMapOutput, MapOutput
from shuffle_plugins.remote.shuffle_events import ShuffleEvents


class LossWatch:
    """An iterator of the map outputs of a shuffle that are lost: those that were before it began, then each as it is
    lost, every one once. A context manager; `close` ends it from any thread.

    It goes on when the master was away and comes back, and then returns outputs lost meanwhile. Iterating waits without
    a limit, `next` with one. Both raise UnknownShuffle or AppExpired when the shuffle is over, ServerUnreachable when
    the master stays away for longer than the plugin's `retry` seconds, InvalidArgument when the plugin is closed.
    """

    def __init__(self, events: ShuffleEvents, shuffle: ShuffleId) -> None:
        self._events, self._shuffle = events, shuffle
        self._changed = threading.Condition()
        self._waiting: deque[LostMapOutput] = deque()
        self._error: ShuffleError | None = None
        self._closed = False
        events.listen(shuffle, self)

    def next(self, timeout: float) -> LostMapOutput:
        """The next one.

        :param timeout: seconds.
        :raises DeadlineExceeded: none was lost for so long.
        :raises StopIteration: the watch is closed.
        """
        found = self._next(timeout)
        if found is None:
            raise DeadlineExceeded(f"no map output of {self._shuffle} was lost in {timeout:g} s", remedy="watch on")
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LostMapOutput:
        found = self._next(None)
        assert found is not None
        return found

    def _next(self, timeout: float | None) -> LostMapOutput | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._error or self._closed, timeout)
            if self._closed:
                raise StopIteration
            if self._waiting:
                return self._waiting.popleft()
            if self._error is not None:
                raise self._error.with_traceback(None)
            return None

    def close(self) -> None:
        """End the watch, and whoever waits for it; idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._events.leave(self._shuffle, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ for the event subscription

    def lost(self, output: LostMapOutput) -> None:
        with self._changed:
            self._waiting.append(output)
            self._changed.notify()

    def began(self) -> None:
        """Nothing to do: outputs lost before reach `lost` too."""

    def moved(self, output: MapOutput) -> None:
        """Nothing to say: it is not lost."""

    def ended(self, error: ShuffleError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
