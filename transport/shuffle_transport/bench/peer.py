"""The other process: ``python -m shuffle_transport.bench.peer BUDGET [NAME ...]``. Ends when its standard input does.

Prints one line of JSON, the ports it listens on by contender, all on 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from shuffle_transport.bench.counters import Counters
from shuffle_transport.bench.credit_server import CreditHandler
from shuffle_transport.bench.raw_server import ANY, RawServer
from shuffle_transport.bench.remote import RemoteServer
from shuffle_transport.bench.tcp import TcpServer
from shuffle_transport.channels import ExchangeEndpoint
from shuffle_transport.pool import BufferPool


def main(budget: int, *names: str) -> None:
    """Serve until nobody holds the other end of standard input.

    :param budget: the pool's, in bytes.
    :param names: whom to serve: credit, raw, tcp, remote; none: all.
    """
    pool, counters = BufferPool(budget), Counters()

    def count() -> bytes:
        received = {str(channel): size for channel, size in counters.received.items()}
        return json.dumps({"at": time.perf_counter(), "received": received}).encode()

    def release() -> bytes:
        counters.release()
        return b"{}"

    def reset() -> bytes:
        counters.reset()
        return b"{}"

    actions = {
        "count": count,
        "release": release,
        "reset": reset,
        "pool": lambda: json.dumps(asdict(pool.statistics())).encode(),
    }
    servers: dict[str, Callable[[], Any]] = {
        "credit": lambda: ExchangeEndpoint(ANY, CreditHandler(counters), pool),  # first: it says how gRPC polls
        "raw": lambda: RawServer(counters, actions),
        "tcp": TcpServer,
        "remote": lambda: RemoteServer(pool),
    }
    started = {name: start() for name, start in servers.items() if name in (names or servers)}
    ports = {name: server.port for name, server in started.items()}
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # streams may stand still on purpose; nothing here is worth waiting for


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
