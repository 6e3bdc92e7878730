"""Answers come from what is durable, and what is refused cannot win later: full and failing disks under a master."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    MapOutputNotWritten,
    ShuffleError,
    StorageFailed,
)
from shuffle_api.ids import MapAttempt
from shuffle_server.master.master import Master
from shuffle_server.master.recovery import recover
from tests.shuffle_server.helpers import fill, mounted_tmpfs
from tests.shuffle_server.master.scene import BEGIN, SHUFFLE, commit
from tests.shuffle_server.master.simulated import SimulatedDirectory


def test_while_the_disk_is_full_nothing_new_is_taken_and_nothing_of_it_is_there_later(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 1 << 20) as root:
        master = Master(root / "master", sync=True)
        master.apply_all(BEGIN)
        ballast = fill(root)
        acknowledged, refused = [], []
        for n in range(60):
            try:
                master.apply(commit(n))
                acknowledged.append(n)
            except StorageFailed:
                refused.append(n)
        assert refused
        assert [each.output.map for each in master.registry.map_outputs(SHUFFLE)[0]] == acknowledged
        with pytest.raises(StorageFailed, match="free space on this disk"):
            master.materialize()
        ballast.unlink()
        master.apply(commit(refused[0], attempt=1))
        visible = master.registry.map_outputs(SHUFFLE)
        assert visible[0][-1].output == MapAttempt(refused[0], 1)
        master.close()
        again = Master(root / "master")
        assert again.registry.map_outputs(SHUFFLE) == visible
        again.close()


def test_another_attempt_is_not_refused_for_one_that_was_refused_itself() -> None:
    directory = SimulatedDirectory()
    master = Master(directory, sync=True)
    master.apply_all(BEGIN)
    directory.room = 0
    for attempt in range(2):
        with pytest.raises(StorageFailed):
            master.apply(commit(0, attempt=attempt))
        with pytest.raises(MapOutputNotWritten):
            master.registry.map_output(SHUFFLE, 0)
    directory.room = 10_000
    master.apply(commit(0, attempt=1))
    assert recover(directory.after_power_cut()).registry.map_output(SHUFFLE, 0) == commit(0, attempt=1).output
    master.close()


def test_what_is_not_known_to_be_durable_is_in_no_answer() -> None:
    directory = SimulatedDirectory()
    master = Master(directory, sync=True)
    master.apply_all(BEGIN)
    directory.failing_sync = True
    with pytest.raises(DeadlineExceeded):
        master.apply(commit(0))
    assert master.registry.map_outputs(SHUFFLE) == ([], None)
    directory.failing_sync = False
    master.apply(commit(0, attempt=1))
    assert recover(directory.after_power_cut()).registry.map_output(SHUFFLE, 0) == commit(0, attempt=1).output
    master.close()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_fails_answers_and_restart_agree_about_everything_that_was_decided(seed: int) -> None:
    """Threads commit attempts of the same maps while writes, syncs, renames fail; then the machine loses its power."""
    chance = random.Random(seed)
    directory = SimulatedDirectory(seed=seed)
    master = Master(directory, sync=True, snapshot_every=chance.choice([10, 10_000]))
    master.apply_all(BEGIN)
    directory.fail_at = set(chance.sample(range(directory.steps + 1, directory.steps + 400), chance.randrange(1, 80)))

    def work(thread: int) -> tuple[dict[int, int], set[MapAttempt], set[MapAttempt]]:
        order = random.Random(seed * 100 + thread)
        won: dict[int, int] = {}
        refused, unknown = set[MapAttempt](), set[MapAttempt]()
        for attempt in range(8):
            map_id, name = order.randrange(12), thread * 100 + attempt
            try:
                master.apply(commit(map_id, attempt=name))
                won[map_id] = name
            except AttemptSuperseded as error:
                won[map_id] = -1 if error.output is None else error.output.attempt
            except StorageFailed:
                refused.add(MapAttempt(map_id, name))
            except DeadlineExceeded:
                unknown.add(MapAttempt(map_id, name))
            with master.lock:
                answered = master.registry.map_outputs(SHUFFLE)[0]
            assert won.items() <= {each.output.map: each.output.attempt for each in answered}.items()
        return won, refused, unknown

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    answered = master.registry.map_outputs(SHUFFLE)[0]
    after = recover(directory.after_power_cut()).registry.map_outputs(SHUFFLE)[0]
    undecided = {each for _, _, unknown in results for each in unknown}
    assert {each.output for each in after} - undecided == {each.output for each in answered}
    for won, refused, _ in results:
        assert won.items() <= {each.output.map: each.output.attempt for each in answered}.items()
        assert not refused & {each.output for each in after}
    with suppress(ShuffleError):
        master.close()
