"""Each contender moves what its job says, both ways, and the peer sees it."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shuffle_transport.bench.ends import Ends, Mover
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.streams import observe

KIB = 1 << 10


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    with Ends(32 << 20) as opened:
        yield opened


@pytest.fixture(params=["credit", "raw", "remote", "tcp"])
def mover(ends: Ends, request: pytest.FixtureRequest) -> Mover:
    found: Mover = getattr(ends, request.param)
    return found


@pytest.mark.parametrize(("message", "block"), [(64 * KIB, 4 * KIB), (64 * KIB, 64 * KIB), (2048 * KIB, 2048 * KIB)])
def test_put_and_get_come_to_their_end(mover: Mover, message: int, block: int) -> None:
    mover.put(Job("sink", message, block, 5))
    mover.get(Job("source", message, block, 5))


@pytest.mark.parametrize("name", ["credit", "raw", "tcp"])
def test_exchange_and_ping_come_to_their_end(ends: Ends, name: str) -> None:
    side = getattr(ends, name)
    side.exchange(Job("both", 256 * KIB, 64 * KIB, 20))
    trips = side.ping(Job("echo", KIB, KIB, 10))
    assert len(trips) == 10
    assert trips.min() > 0


@pytest.mark.parametrize("name", ["credit", "raw"])
def test_offered_blocks_all_arrive(ends: Ends, name: str) -> None:
    report = getattr(ends, name).offer(Job("arrivals", 64 * KIB, KIB, 3), 20_000)
    assert report["blocks"] == 192
    assert report["p50"] > 0


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_credit_streams_compress(ends: Ends, codec: str) -> None:
    rows = Job("sink", 256 * KIB, 64 * KIB, 4, codec=codec, data="rows", check=True)
    ends.credit.put_packed(rows)
    assert 0.2 < ends.credit.sent_part < 0.7
    ends.credit.put_packed(replace(rows, data="noise"))
    assert ends.credit.sent_part == 1.0
    ends.credit.put(replace(rows, count=40))
    assert 0.2 < ends.credit.sent_part <= 1.0


@pytest.mark.parametrize("name", ["credit", "raw"])
def test_observe_counts_running_channels_and_none_of_the_stopped_one(ends: Ends, name: str) -> None:
    jobs = [Job("sink" if channel else "stall", 64 * KIB, 64 * KIB, channel=channel) for channel in range(3)]
    seen = observe(ends, getattr(ends, name), jobs, 0.1, 1.0)
    assert seen.rates[0] == 0
    assert min(seen.rates[1], seen.rates[2]) > 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("bench-stream")]
