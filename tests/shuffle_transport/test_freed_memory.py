"""Freed memory is used again, instead of zeroed pages from the system, in every process that receives."""

from __future__ import annotations

import os

import pytest

from tests.page_faults import arenas, keeps_freed_memory, only_glibc

pytestmark = only_glibc

POOL = "from shuffle_transport.pool import BufferPool; pool = BufferPool(1 << 24)"
RECEIVERS = {
    "pulls": """
from shuffle_transport.flight_client import FlightClient
receiver = FlightClient("127.0.0.1:9")
""",
    "channels": f"""{POOL}
from shuffle_transport.exchange import ExchangeClient
receiver = ExchangeClient("127.0.0.1:9", pool)
""",
    "channels' server": f"""{POOL}
from shuffle_transport.exchange import ExchangeEndpoint
receiver = ExchangeEndpoint("grpc+tcp://127.0.0.1:0", print, pool)
""",
}


@pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=RECEIVERS.keys())
def test_who_receives_keeps_it(receiver: str) -> None:
    assert keeps_freed_memory(receiver)


def test_others_do_not() -> None:
    assert not keeps_freed_memory("import shuffle_transport.exchange")


def test_its_threads_share_an_arena_for_each_processor() -> None:
    channels = RECEIVERS["channels"]
    assert arenas(channels) <= (os.cpu_count() or 1) < arenas("import shuffle_transport.exchange")
    assert arenas(channels, MALLOC_ARENA_MAX="7") == 7
