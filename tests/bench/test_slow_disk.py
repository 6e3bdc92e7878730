"""bench.slow_disk: compacted outputs take fewer reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import slow_disk
from bench.harness import limits


@pytest.mark.skipif(not (limits.GROUPS / "blkio").is_dir(), reason="needs the control group blkio, version 1")
def test_compacted_outputs_take_fewer_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)  # on a disk, which the folder for temporary files need not be
    report = tmp_path / "report.json"
    few = ["--maps", "60", "--partitions", "80", "--mib", "24", "--cache", "16", "--reads", "5000"]
    slow_disk.main([*few, "--json", str(report)])
    (found,) = json.loads(report.read_text())["runs"]
    for way in ("", ", by file"):
        # How many blocks of different outputs one read brings is up to the kernel: the two are compared only.
        compacted = found[f"compacted{way}"]
        assert found[f"as written{way}"]["reads_per_task"] > 2 * compacted["reads_per_task"]
        assert compacted["partitions_read"] == 80
    assert list(Path().glob("bench-slow-disk-*")) == []


def test_a_block_is_what_each_map_has_for_a_partition() -> None:
    assert slow_disk.Parameters(maps=200, partitions=1000, mib=1024).block == 5368
