"""The model of a large cluster: a small run of it, and the same job on real processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.model import check
from tests.model.__main__ import main, run
from tests.model.parameters import Parameters

SMALL = Parameters(
    workers=12,
    apps=4,
    maps=60,
    partitions=200,
    slots=24,
    small_maps=8,
    small_slots=4,
    map_seconds=5.0,
    arrive=10.0,
    page_cache=16,
    memory=128,
    stragglers=0.1,
    kill_at=12.0,
)


def test_a_killed_worker_is_found_and_its_maps_run_again(tmp_path: Path) -> None:
    found = run(SMALL, tmp_path)
    assert found["applications"]["over"] == SMALL.apps
    recovery = found["recovery"]
    assert recovery["killed"] == 1
    assert recovery["not_rewritten"] == 0
    assert recovery["outputs_lost"] == found["applications"]["maps_again"] > 0
    assert SMALL.worker_timeout / 2 < recovery["detected_after_s"] < recovery["rewritten_after_s"]


def test_every_byte_is_pushed_and_pulled(tmp_path: Path) -> None:
    found = run(replace(SMALL, kill=0), tmp_path)
    payload = found["applications"]["payload_mib"]
    assert found["network"]["pushed_mib"] == payload
    assert abs(found["network"]["pulled_mib"] - payload) <= 1
    assert found["calls"]["Commits"]["count"] == SMALL.maps + (SMALL.apps - 1) * SMALL.small_maps


def test_compaction_takes_fewer_reads_from_the_disks(tmp_path: Path) -> None:
    compacted = run(replace(SMALL, kill=0), tmp_path)
    solid = run(replace(SMALL, kill=0, device="1000000:150"), tmp_path)  # on which no block is small
    assert solid["compaction"]["files"] == 0 < compacted["compaction"]["files"]
    assert compacted["disks"]["reads_per_task"] < solid["disks"]["reads_per_task"]


def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    found = run(replace(SMALL, kill=0, restart=0.25, restart_at=8.0), tmp_path)
    restarted = found["recovery"]["restarted"]
    assert restarted >= 3
    assert found["applications"]["over"] == SMALL.apps
    assert found["applications"]["maps_again"] == 0
    assert found["calls"]["Join"]["count"] == SMALL.workers + restarted


def test_the_command_writes_what_it_found(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    few = ["--workers", "4", "--apps", "2", "--maps", "8", "--small-maps", "4", "--partitions", "20", "--kill", "0"]
    assert main([*few, "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    assert found["parameters"]["workers"] == 4
    assert found["applications"]["over"] == 2


def test_the_model_counts_what_real_processes_count(tmp_path: Path) -> None:
    found = check.compare(tmp_path, replace(check.JOB, workers=2, maps=24, map_seconds=0.0, linger=0.0))
    assert [name for name in check.STEADY if not found["figures"][name]["equal"]] == [], check.table(found)
