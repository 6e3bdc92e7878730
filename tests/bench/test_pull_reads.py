"""bench.pull_reads: both ways are measured, and the report has their ratio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import pull_reads


def test_both_ways_are_measured_for_each_number_of_threads(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    few = ["--partitions", "4", "9", "--threads", "1", "2", "--maps", "2", "--bytes", "4000000", "--rounds", "2"]
    pull_reads.main([*few, "--json", str(report)])
    found = json.loads(report.read_text())
    assert found["parameters"]["partitions"] == [4, 9]
    assert set(found["limits_gib_s"]) == {"memcpy", "loopback_tcp", "page_cache_write"}
    for case in ("into 4", "into 9"):
        assert list(found[case]) == ["1 threads", "2 threads"]
        for each in found[case].values():
            assert set(each) == {"at_once_gib_s", "one_by_one_gib_s", "ratio", "cpu_ratio"}
            assert all(value > 0 for value in each.values())


def test_a_wrong_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pull_reads.main(["--threads", "many"])
    assert "--threads: invalid int value: 'many'" in capsys.readouterr().err
