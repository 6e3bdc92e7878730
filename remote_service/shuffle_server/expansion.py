"""A bound for what Arrow expands.

Arrow's Flight server expands a message whose body is compressed before any code of this project sees it, to the size
that the body declares: 33 KB become 1 GiB. The memory for it comes from the default pool of Arrow's C++ library. That
pool has no bound, but its allocator, mimalloc, takes some from the environment when Arrow is loaded: a reserved address
space beyond which it asks the system for nothing, and a largest object. So a declared size above the bound is refused
before anything is expanded.

A message that is not compressed takes nothing of this memory, since its buffers lie in gRPC's; nor do the arrays that
Python code makes, whose pool is another one. What else Arrow's C++ code takes from it are the headers of messages that
are sent, and parts of uploads to an object store.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableMapping
from functools import cache
from typing import Any

from shuffle_api.errors import InvalidArgument

log = logging.getLogger(__name__)

POOL = "ARROW_DEFAULT_MEMORY_POOL"
PREFIX = "MIMALLOC_"

BOUND: Mapping[str, str] = {
    POOL: "mimalloc",
    "MIMALLOC_DISALLOW_OS_ALLOC": "1",
    "MIMALLOC_RESERVE_OS_MEMORY": "8GiB",  # of addresses; memory is what is used of them
    "MIMALLOC_ARENA_MAX_OBJECT_SIZE": "2MiB",
}
"""Flight ends the process when it finds no room for the header of a message that it sends. So the largest object is
above the largest header, MAX_MESSAGE of `shuffle_transport.channels.wire`, and the addresses are more than all streams
together expand, each at most one batch of a few buffers."""

TIER_BOUND: Mapping[str, str] = {**BOUND, "MIMALLOC_ARENA_MAX_OBJECT_SIZE": "16MiB"}
"""Arrow uploads to an object store in parts of 10 MiB, each a buffer (`store.object_store`)."""

SMALL_BYTES, LARGE_BYTES = 1 << 10, 32 << 20
"""A buffer that there is always room for, and one that is above any bound."""


def bound_in_program(tier: bool, environment: MutableMapping[str, str] = os.environ) -> None:
    """Bound what Arrow expands in this process. For a program to call before it loads Arrow.

    Variables of this kind that are set already are left as they are, and then all of them.

    :param tier: whether Arrow uploads to an object store.
    """
    if POOL not in environment and not any(name.upper().startswith(PREFIX) for name in environment):
        environment.update(TIER_BOUND if tier else BOUND)


def keep_apart() -> None:
    """Let Python's arrays take no part in the bound, and the log name a bound that is missing.

    :raises InvalidArgument: the system grants not even the little that each message needs.
    """
    import pyarrow as pa

    if not is_bounded():
        log.warning(
            "what Arrow expands of compressed messages has no bound, since %s or a variable %s* is set, or this pyarrow"
            " (%s) does not follow them: unset them, or limit the memory of this process",
            POOL,
            PREFIX,
            pa.__version__,
        )
    elif not _has_room(SMALL_BYTES):
        raise InvalidArgument(
            f"the system does not reserve the {os.environ.get('MIMALLOC_RESERVE_OS_MEMORY')} of addresses for Arrow",
            remedy=f"raise the limit of address space (ulimit -v), or set {POOL}=system: then compressed messages"
            " have no bound",
        )
    else:
        pa.set_memory_pool(_pool_of_arrays())


def _pool_of_arrays() -> Any:
    """What is freed and wanted again a moment later costs the same with jemalloc as with mimalloc, and page faults with
    the system's."""
    import pyarrow as pa

    try:
        return pa.jemalloc_memory_pool()
    except NotImplementedError:  # a pyarrow without it
        return pa.system_memory_pool()


@cache
def is_bounded() -> bool:
    """Whether a large buffer is refused to Arrow's C++ code in this process."""
    return os.environ.get(POOL) == BOUND[POOL] and not _has_room(LARGE_BYTES)


def _has_room(size: int) -> bool:
    import pyarrow as pa

    try:
        pa.allocate_buffer(size, memory_pool=pa.mimalloc_memory_pool())  # its pages are never touched
    except pa.ArrowMemoryError:
        return False
    except NotImplementedError:  # a pyarrow without mimalloc
        return True
    return True
