"""Fewer threads between a message and who waits for it.

Since 2025 gRPC reads sockets on threads of its own (its "event engine"), and a message passes two of them before the
thread that waits for it. gRPC's older way, in which the waiting thread polls the socket itself, is still there: with it
a round trip on a channel takes five sixths of the time. Which way it is gRPC reads from the environment
(GRPC_EXPERIMENTS), once, when it is first used in a process.
"""

from __future__ import annotations

import os
from functools import cache

import pyarrow.flight as fl

VARIABLE, BACKUP_VARIABLE = "GRPC_EXPERIMENTS", "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS"
BACKUP_MS = "200"
"""How often gRPC looks at sockets at which no thread waits. A call to a server that was away fails at once and does not
wait; so it is such a look that finds the connection made. gRPC's own 5 s have a client come back after 9 s."""
POLLING = "-event_engine_client,-event_engine_listener,-event_engine_callback_cq"


def poll_in_program() -> None:
    """Let both gRPCs, that of pyarrow and that of `grpcio`, wait the older way in this process and its children.

    For a program to call before it uses either. Who has set GRPC_EXPERIMENTS keeps that.
    """
    os.environ.setdefault(VARIABLE, POLLING)
    os.environ.setdefault(BACKUP_VARIABLE, BACKUP_MS)


@cache
def poll_directly() -> None:
    """Let the gRPC of pyarrow wait the older way in this process, unless something has used Flight before.

    Who has set GRPC_EXPERIMENTS keeps that. The variables are taken away again: the gRPC of `grpcio`, which is another
    one, does not see them. A child process that another thread starts meanwhile inherits both, or the second alone,
    which does no harm.
    """
    if VARIABLE in os.environ:
        return
    ours = {BACKUP_VARIABLE: BACKUP_MS, VARIABLE: POLLING}
    added = [name for name in ours if name not in os.environ]
    for name in added:
        os.environ[name] = ours[name]
    try:
        fl.connect("grpc+tcp://127.0.0.1:1").close()  # connects with its first call, which there is none of
    finally:
        for name in reversed(added):
            os.environ.pop(name, None)  # another thread may have done the same
