"""How much of Arrow's memory a piece of a test takes, whatever is freed of earlier tests meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_pools: list[pa.MemoryPool] = []  # arrays of a test may outlive it, and their pool has to outlive them


class ArrowMemory:
    """Bytes in a memory pool of its own, in which nothing of an earlier test lies."""

    def __init__(self, pool: pa.MemoryPool) -> None:
        self._pool = pool
        self.most = 0

    def look(self) -> None:
        """Take the bytes held now into account."""
        self.most = max(self.most, self._pool.bytes_allocated())


@contextmanager
def own_arrow_memory() -> Iterator[ArrowMemory]:
    """Inside, Arrow allocates from a new pool, in all threads of the process."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield ArrowMemory(pool)
    finally:
        pa.set_memory_pool(before)
