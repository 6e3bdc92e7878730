"""The loss of a worker is one step, whatever else is decided and asked meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from shuffle_api.errors import StaleEpoch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import CommitMapOutput, LoseWorker, RegisterApp, RegisterShuffle, RegisterWorker
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server.master.master import Master

DEADLINE = 120.0
SHUFFLES, MAPS, TIMES = 8, 200, 60
WORKER = WorkerInfo("w", "h", 1)


def shuffle(number: int) -> ShuffleId:
    return ShuffleId("app", number, 1)


def commit(number: int, map: int, worker: str = "w") -> CommitMapOutput:
    return CommitMapOutput(shuffle(number), MapOutput(MapAttempt(map, 0), worker, Totals(1, 2, 3, 4)))


def begin(master: Master, shuffles: int) -> None:
    master.apply_all([RegisterWorker(WORKER), RegisterWorker(WorkerInfo("v", "h", 2)), RegisterApp("app", "i", "")])
    master.apply_all([RegisterShuffle(ShuffleSpec(shuffle(number), 4, MAPS)) for number in range(shuffles)])


def commit_all(master: Master, number: int) -> set[int]:
    """The maps whose commits were acknowledged."""
    taken = set()
    for map in range(MAPS):
        try:
            master.apply(commit(number, map))
            taken.add(map)
        except StaleEpoch:
            continue  # the worker is lost just now
    return taken


def look(master: Master, over: threading.Event, seen_gone: threading.Semaphore) -> None:
    """Ask again and again: a worker that is lost has no outputs."""
    while not over.wait(0.0001):
        with master.lock:
            gone = "w" not in [worker.id for worker in master.registry.workers()]
            assert not gone or master.registry.shuffles_at("w") == []
        if gone:
            seen_gone.release()


def test_commits_and_questions_see_a_worker_before_or_after_its_loss() -> None:
    with closing(Master(None)) as master, ThreadPoolExecutor(SHUFFLES + 1) as pool:
        begin(master, SHUFFLES)
        over, seen_gone = threading.Event(), threading.Semaphore(0)
        looking = pool.submit(look, master, over, seen_gone)
        committing = [pool.submit(commit_all, master, number) for number in range(SHUFFLES)]
        for _ in range(TIMES):
            master.apply(LoseWorker("w", "silent"))
            assert seen_gone.acquire(timeout=DEADLINE)
            master.apply(RegisterWorker(WORKER))
        taken = [each.result(DEADLINE) for each in committing]
        events = master.apply(LoseWorker("w", "silent"))
        over.set()
        looking.result(DEADLINE)
        for number, maps in enumerate(taken):
            assert {lost.output.output.map for lost in master.registry.losses(shuffle(number))} == maps
            assert master.registry.map_outputs(shuffle(number)) == ([], None)
        assert len(events) <= 1 + sum(map(len, taken))


def test_the_loss_of_a_worker_goes_through_the_shuffles_that_lie_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[ShuffleId] = []
    real = ShuffleOutputs.held_by

    def held_by(outputs: ShuffleOutputs, worker: str) -> list[MapOutput]:
        looked_at.append(outputs.spec.id)
        return real(outputs, worker)

    with closing(Master(None)) as master:
        begin(master, 300)
        master.apply_all([commit(number, 0, "w" if number in (7, 250) else "v") for number in range(300)])
        monkeypatch.setattr(ShuffleOutputs, "held_by", held_by)
        assert len(master.apply(LoseWorker("w", "silent"))) == 3
    assert set(looked_at) == {shuffle(7), shuffle(250)}
