"""The simulation: a seed replays exactly, planted bugs are found, and fresh seeds find none."""

import json
import os
import resource
import secrets
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.faults.simulate.locks import Here, Lock
from tests.faults.simulate.network import Network, Unreachable, inside
from tests.faults.simulate.planted import PLANTS
from tests.faults.simulate.schedule import LATEST, Schedule, make
from tests.faults.simulate.scheduler import Process, Scheduler
from tests.faults.simulate.shrink import shrink

ROOT = Path(__file__).parents[2]
CI_SECONDS = os.environ.get("SIMULATE_SECONDS", "90")
FOUND = json.loads((ROOT / "docs/faults/simulate.json").read_text())["planted"]


def child(*arguments: str) -> str:
    """What a process that runs schedules prints."""
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.faults.simulate.child", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=True)
    return done.stdout


def failures(output: str) -> list[dict[str, object]]:
    return [said for said in map(json.loads, output.splitlines()) if "seed" in said]


def test_a_seed_has_the_same_trace_each_time() -> None:
    traces = [child("--first", "4711", "--trace") for _ in range(2)]
    assert len(traces[0].splitlines()) > 20
    assert traces[0].splitlines()[0] == traces[1].splitlines()[0]  # with the hash of the trace


def test_a_seed_has_the_same_trace_after_others() -> None:
    alone = child("--first", "4713", "--trace").splitlines()[0]
    after = map(json.loads, child("--first", "4710", "--seeds", "4", "--hashes").splitlines())
    hashes = [said["hash"] for said in after if "hash" in said]
    assert alone == f"seed 4713, trace {hashes[3]}"


def test_schedules_leave_no_descriptor_behind() -> None:
    """Fifty of them, in a process that may have 400 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(400, hard), hard))
    try:
        assert failures(child("--first", "1", "--seeds", "50")) == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_fresh_seeds_find_nothing() -> None:
    first = secrets.randbits(40)
    output = child("--first", str(first), "--seconds", CI_SECONDS)
    assert sum(json.loads(line).get("done", 0) for line in output.splitlines()) > 10
    assert failures(output) == [], f"python -m tests.faults.simulate --shrink --seed N shows one; first seed {first}"


@pytest.mark.parametrize("bug", sorted(PLANTS))
def test_a_planted_bug_is_found(bug: str) -> None:
    """From the seed on that the documentation has for it; after a change of the product a later one may find it."""
    seed = str(FOUND[bug]["seed"])
    found = failures(child("--first", seed, "--plant", bug, "--seconds", "300", "--stop-at-first"))
    assert found, PLANTS[bug].what


def test_an_answer_that_comes_late_ends_no_other_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread whose call a killed process had made goes on in its own process, and waits for a lock."""
    scheduler = Scheduler(seed=1, switching=0.0)
    network = Network(Random(1), late=1.0)
    monkeypatch.setattr(Here, "scheduler", scheduler, raising=False)
    killed, caller = Process("killed"), Process("caller")
    network.listening["server"] = Process("server"), None
    lock, got = Lock(), list[float]()

    def hold() -> None:
        with lock:
            scheduler.sleep(10 * LATEST)

    def call() -> None:
        with pytest.raises(Unreachable):
            inside(killed, lambda: network.call("server", lambda server: None, 10 * LATEST))
        with lock:
            got.append(scheduler.now)

    def kill() -> None:
        scheduler.sleep(LATEST / 1000)
        scheduler.kill(killed)
        scheduler.sleep(20 * LATEST)
        scheduler.end()

    for task in (hold, call, kill):
        scheduler.spawn(caller, task, task.__name__)
    scheduler.run()
    assert [round(when / LATEST) for when in got] == [10]


def test_a_failing_schedule_is_made_small() -> None:
    schedule = next(each for each in map(make, range(1000)) if len(each.faults) > 3 and len(each.jobs) > 1)
    needed = schedule.faults[2]

    def fails(candidate: Schedule) -> bool:
        return needed in candidate.faults

    small = shrink(schedule, fails)
    assert small.faults == (needed,)
    assert len(small.jobs) == 1
    assert small.seed == schedule.seed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_schedule_is_that_of_its_seed(seed: int) -> None:
    assert make(seed) == make(seed) != make(seed + 1000)
