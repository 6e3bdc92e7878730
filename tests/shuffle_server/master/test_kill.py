"""The master's process is killed in the middle of everything."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from shuffle_server.master.files import LocalDirectory
from shuffle_server.master.recovery import recover
from tests.shuffle_server.master.scene import BEGIN, SHUFFLE, commit, registry_after

ROOT = Path(__file__).parents[3]
ROUNDS = 6


def acknowledged_until_killed(directory: Path, first: int, lines: int) -> list[int]:
    """Let a process commit until it has acknowledged so many, then kill it; all that it has acknowledged."""
    command = [sys.executable, "-m", "tests.shuffle_server.master.committer", str(directory), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.readlines()
    return [int(line) for line in said if line.endswith(b"\n")]


def test_after_kill_9_every_acknowledged_commit_is_there_and_the_rest_is_whole(tmp_path: Path) -> None:
    rng = random.Random(7)
    snapshots = acknowledged = 0
    for _ in range(ROUNDS):
        before = recover(LocalDirectory(tmp_path)).registry
        first = len(before.map_outputs(SHUFFLE)[0]) if before.shuffles() else 0
        said = acknowledged_until_killed(tmp_path, first, rng.randrange(1, 900))
        recovered = recover(LocalDirectory(tmp_path))
        outputs, _ = recovered.registry.map_outputs(SHUFFLE)
        maps = [each.output.map for each in outputs]
        assert set(said) <= set(maps)
        assert outputs == [commit(n).output for n in maps]
        assert len(maps) <= first + len(said) + 4  # one under way for each thread
        assert recovered.registry.shuffles() == registry_after(BEGIN).shuffles()
        snapshots += recovered.snapshot > 0
        acknowledged += len(said)
    assert acknowledged > ROUNDS
    assert snapshots > 0
