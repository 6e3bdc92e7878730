"""Each contender moves what its job says, both ways, and the peer sees it."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shuffle_transport.bench.contender import CREDIT, RAW, RAW_POLLING, REMOTE, TCP, Contender, contenders
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.streams import Ends, observe

KIB = 1 << 10
ECHO = Job("echo", KIB, KIB, 500)


@pytest.fixture(scope="module")
def sides() -> Iterator[dict[str, Contender]]:
    with contenders(CREDIT, RAW, RAW_POLLING, REMOTE, TCP) as opened:
        yield opened


@pytest.mark.parametrize("name", [CREDIT, RAW, RAW_POLLING, REMOTE, TCP])
@pytest.mark.parametrize(("message", "block"), [(64 * KIB, 4 * KIB), (64 * KIB, 64 * KIB), (2048 * KIB, 2048 * KIB)])
def test_put_and_get_come_to_their_end(sides: dict[str, Contender], name: str, message: int, block: int) -> None:
    sides[name].run("put", Job("sink", message, block, 5))
    sides[name].run("get", Job("source", message, block, 5))


@pytest.mark.parametrize("name", [CREDIT, RAW, RAW_POLLING, TCP])
def test_exchange_and_ping_come_to_their_end(sides: dict[str, Contender], name: str) -> None:
    sides[name].run("exchange", Job("both", 256 * KIB, 64 * KIB, 20))
    run = sides[name].run("ping", ECHO)
    assert len(run.value) == ECHO.count
    assert run.value.min() > 0
    assert run.seconds >= run.value.sum() / 1e9
    assert min(run.client_cpu_s, run.peer_cpu_s) > 0


@pytest.mark.parametrize("name", [CREDIT, RAW, TCP])
def test_several_jobs_run_at_once(sides: dict[str, Contender], name: str) -> None:
    jobs = [Job("sink", 64 * KIB, 64 * KIB, 20, channel) for channel in range(4)]
    assert sides[name].run("put", *jobs).seconds > 0


@pytest.mark.parametrize("name", [CREDIT, RAW])
def test_offered_blocks_all_arrive(sides: dict[str, Contender], name: str) -> None:
    report = sides[name].run("offer", Job("arrivals", 64 * KIB, KIB, 3, rate=20_000)).value
    assert report["blocks"] == 192
    assert report["p50"] > 0


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_credit_streams_compress(sides: dict[str, Contender], codec: str) -> None:
    rows = Job("sink", 256 * KIB, 64 * KIB, 4, codec=codec, data="rows", check=True)
    credit = sides[CREDIT]
    assert 0.2 < credit.run("put_packed", rows).value < 0.7
    assert credit.run("put_packed", replace(rows, data="noise")).value == 1.0
    assert 0.2 < credit.run("put", replace(rows, count=40)).value <= 1.0
    sides[RAW].run("put_ipc", rows)


def test_contenders_leave_no_process() -> None:
    with contenders(CREDIT, TCP) as opened:
        pids = [pid for side in opened.values() for pid in side.pids]
        assert len(set(pids)) == 4
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    deadline = time.monotonic() + 10  # a peer ends by itself when its client has
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_name_that_is_no_contender_fails_the_run() -> None:
    with contenders("nobody") as opened, pytest.raises(KeyError, match="nobody"):
        opened["nobody"].run("put", ECHO)


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    with Ends(32 << 20) as opened:
        yield opened


@pytest.mark.parametrize("name", ["credit", "raw"])
def test_observe_counts_running_channels_and_none_of_the_stopped_one(ends: Ends, name: str) -> None:
    jobs = [Job("sink" if channel else "stall", 64 * KIB, 64 * KIB, channel=channel) for channel in range(3)]
    seen = observe(ends, getattr(ends, name), jobs, 0.1, 1.0)
    assert seen.rates[0] == 0
    assert min(seen.rates[1], seen.rates[2]) > 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("bench-stream")]
