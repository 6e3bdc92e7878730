"""`async for` over what a reader waits for: a thread waits, the event loop goes on."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, Self, TypeAlias, TypeVar

from shuffle_api.errors import ShuffleError
from shuffle_api.periodic import StreamThread

T = TypeVar("T")
_Future: TypeAlias = "asyncio.Future[Any]"


class AsyncIteration(AsyncIterator[T], Generic[T]):
    """Asks `step` for more when more is awaited, and never before: what was handed out counts as processed then.

    An await that is cancelled (`asyncio.wait_for`) loses nothing: the next one gets what came meanwhile.

    :param step: waits, and returns things that came together; None at the end. Called in a thread of this object.
    """

    def __init__(self, step: Callable[[], Iterator[T] | None]) -> None:
        self._step = step
        self._items: Iterator[T] = iter(())
        self._pending: _Future | None = None
        self._asked: queue.SimpleQueue[_Future | None] = queue.SimpleQueue()
        self._thread = StreamThread("pipelined-async", self._serve, self._broke)
        self._serving: _Future | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._items:
                return item
            if self._pending is None:
                self._pending = self._ask()
            try:
                found = await asyncio.shield(self._pending)
            except ShuffleError:
                self._pending = None
                raise
            self._pending = None
            if found is None:
                self.close()
                raise StopAsyncIteration
            self._items = found

    def close(self) -> None:
        """End the thread, after what it waits for. Idempotent."""
        self._asked.put(None)

    def _ask(self) -> _Future:
        if not self._thread.is_alive():
            self._thread = StreamThread("pipelined-async", self._serve, self._broke)
            self._thread.start()
        future: _Future = asyncio.get_running_loop().create_future()
        future.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # else it is logged if nobody awaits
        self._asked.put(future)
        return future

    def _serve(self) -> None:
        while (future := self._asked.get()) is not None:
            self._serving = future
            try:
                found = self._step()
            except ShuffleError as error:
                _settle(future, None, error)
            else:
                _settle(future, found, None)

    def _broke(self, error: ShuffleError) -> None:
        if self._serving is not None:
            _settle(self._serving, None, error)


def _settle(future: _Future, found: object, error: ShuffleError | None) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(found) if error is None else future.set_exception(error)

    try:
        future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # the loop is closed: nobody awaits
