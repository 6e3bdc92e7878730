"""Twenty thousand malformed messages against a server on which somebody works: nobody is harmed, all are refused.

FLIGHT_SHUFFLE_MALFORMED=10 sends ten times as many, FLIGHT_SHUFFLE_MALFORMED_SEED=N others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.harness.files import files_below
from bench.harness.server import ServerProcess
from shuffle_api.ids import name_of
from tests.shuffle_server.malformed.all_attacks import ATTACKS, run
from tests.shuffle_server.malformed.attack import Target
from tests.shuffle_server.malformed.bystander import APP, Bystander
from tests.shuffle_server.malformed.health import health_of, wait_for

MESSAGES = {"control": 5000, "get": 4000, "put": 5000, "ipc": 5000, "socket": 1500}
SAMPLE = {name: count // 5 for name, count in MESSAGES.items()}
TIMES = int(os.environ.get("FLIGHT_SHUFFLE_MALFORMED", "1"))
FIRST_SEED = int(os.environ.get("FLIGHT_SHUFFLE_MALFORMED_SEED", "0"))
WARM_UP = 300  # messages of each kind before the server's use of memory, threads and files is looked at
MORE_DESCRIPTORS, MORE_THREADS, MORE_MIB = 8, 16, 192


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    arguments = ("--recycle", "0", "--log-level", "warning")
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", arguments) as process:
        yield process


@pytest.fixture
def bystander(server: ServerProcess) -> Iterator[Bystander]:
    job = Bystander(server.control)
    yield job
    job.close()


@pytest.mark.timeout(1200 * TIMES)
@pytest.mark.parametrize(
    "messages", [SAMPLE, pytest.param(MESSAGES, marks=pytest.mark.nightly)], ids=["sample", "twenty thousand"]
)
def test_malformed_messages_are_refused_and_harm_nobody(
    server: ServerProcess, bystander: Bystander, messages: dict[str, int]
) -> None:
    target = Target(server.control, server.data)
    for name in ATTACKS:
        run(name, target, WARM_UP, FIRST_SEED + 10**9)
    pid, before = server.pid, health_of(server.pid)

    with ThreadPoolExecutor(len(messages)) as pool:
        sent = [pool.submit(run, name, target, count * TIMES, FIRST_SEED) for name, count in messages.items()]
        assert sum(future.result() for future in sent) >= 0.9 * TIMES * sum(messages.values())
    bystander.finish()

    assert server.pid == pid
    assert APP in [name_of(app.app) for app in server.status().apps]
    assert wait_for(lambda: health_of(pid).descriptors <= before.descriptors + MORE_DESCRIPTORS, 120), health_of(pid)
    assert wait_for(lambda: health_of(pid).threads <= before.threads + MORE_THREADS, 120), health_of(pid)
    assert health_of(pid).resident <= before.resident + MORE_MIB
    outputs = server.data_dir / "worker" / "apps"
    assert wait_for(lambda: len(files_below(outputs)) == 2, 120), files_below(outputs)
    assert all(name_of(path.parts[-3]) == APP for path in files_below(outputs))
    assert "Traceback" not in server.log.read_text(errors="replace")
    server.stop()


def test_an_attack_sends_the_same_messages_for_the_same_seed(server: ServerProcess) -> None:
    target = Target(server.control, server.data)
    for name, attack in ATTACKS.items():
        first, second = attack(target), attack(target)
        assert [first.send(seed) for seed in range(20)] == [second.send(seed) for seed in range(20)], name
        first.close()
        second.close()
