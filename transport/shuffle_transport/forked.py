"""gRPC does not survive a fork: the child has none of its threads, so calls hang there, or abort the process."""

from __future__ import annotations

import os
from functools import cache

from shuffle_api.errors import InvalidArgument


def use_grpc() -> None:
    """For whatever uses gRPC to call first. Raises InvalidArgument in a process forked from one that has done so."""
    user = _first_user()
    if os.getpid() != user:
        raise InvalidArgument(
            f"process {os.getpid()} was forked from {user}, which had used Flight Shuffle before; gRPC, which it "
            "stands on, does not survive that",
            remedy="start processes with multiprocessing's 'spawn' or 'forkserver', or before the first use",
        )


@cache
def _first_user() -> int:
    return os.getpid()
