"""The other process: ``python -m shuffle_transport.bench.peer BUDGET``. Ends when its standard input does.

Prints one line of JSON, the ports it listens on, all on 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict

from shuffle_transport.bench.counters import Counters
from shuffle_transport.bench.credit_server import CreditHandler
from shuffle_transport.bench.raw_server import ANY, RawServer
from shuffle_transport.bench.remote_server import RemoteServer
from shuffle_transport.bench.tcp import TcpServer
from shuffle_transport.exchange import ExchangeEndpoint
from shuffle_transport.pool import BufferPool


def main(budget: int) -> None:
    """Serve until nobody holds the other end of standard input; `budget` is the pool's, in bytes."""
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
    ports = {
        "tcp": TcpServer().port,
        "raw": RawServer(counters, actions).port,
        "remote": RemoteServer(pool).port,
        "credit": ExchangeEndpoint(ANY, CreditHandler(counters), pool).port,
    }
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # streams may stand still on purpose; nothing here is worth waiting for


if __name__ == "__main__":
    main(int(sys.argv[1]))
