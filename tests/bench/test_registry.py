"""bench.registry: all of it, small, and what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.registry import __main__ as registry

pytestmark = pytest.mark.nightly

SMALL = [
    "--clients",
    "2",
    "--processes",
    "1",
    "--modes",
    "2x3",
    "--cost-mode",
    "1x4",
    "--seconds",
    "0.3",
    "--rounds",
    "1",
]
SMALL += ["--operations", "300", "--lookups", "2", "--workers", "30", "--apps", "2", "--outputs", "300"]
SMALL += ["--rate", "100"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    path = tmp_path_factory.mktemp("bench") / "registry.json"
    path.write_text('{"kept": {"from": "another run"}}')
    registry.main([*SMALL, "--json", str(path)])
    found: dict[str, dict[str, object]] = json.loads(path.read_text())
    return found


def test_every_part_has_figures_and_says_how_busy_the_machine_was(report: dict[str, dict[str, object]]) -> None:
    assert list(report) == ["kept", "benchmark", "date", "machine", "parameters", *registry.PARTS]
    for part in registry.PARTS:
        assert "load_before" in report[part]
    figures = report["grpc"]["2x3"]
    assert isinstance(figures, dict)
    assert figures["commits_s"] > 0
    assert figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]


def test_the_cost_of_the_log_is_a_ratio_of_medians(report: dict[str, dict[str, object]]) -> None:
    cost = report["log_cost"]
    medians = cost["median_commits_s"]
    assert isinstance(medians, dict)
    assert cost["ratio_synced"] == pytest.approx(medians["synced"] / medians["none"], rel=1e-3)
    assert cost["ratio_written"] == pytest.approx(medians["written"] / medians["none"], rel=1e-3)


def test_recovery_counts_what_came_from_the_log_and_what_from_a_snapshot(report: dict[str, dict[str, object]]) -> None:
    recovery = report["recovery"]
    for source, replayed in (("from_log", 300), ("from_snapshot", 0)):
        runs = recovery[source]
        assert isinstance(runs, list)
        assert [(run["lsn"], run["replayed"]) for run in runs] == [(300, replayed)] * 3


def test_the_lookup_finds_every_map(report: dict[str, dict[str, object]]) -> None:
    assert (report["lookup"]["maps"], report["lookup"]["pages"]) == (10_000, 10)


def test_a_share_of_sorted_values_is_one_of_them() -> None:
    figures = registry._figures([0.001 * n for n in range(100, 0, -1)], seconds=2.0)
    assert figures == {"commits_s": 50.0, "p50_ms": 51.0, "p99_ms": 100.0, "max_ms": 100.0}


def test_a_large_cluster_is_measured_by_counts_and_processor_time(report: dict[str, dict[str, Any]]) -> None:
    cluster = report["cluster"]
    assert (cluster["workers"], cluster["applications"], cluster["outputs"]) == (30, 2, 300)
    assert 0 < cluster["looked_at_per_place"] <= 24
    assert cluster["no_changes_bytes"] < cluster["list_bytes"]
    assert cluster["loss"]["tenth"]["outputs"] > cluster["loss"]["share"]["outputs"]


def test_heartbeats_and_commits_go_over_sockets_at_the_rate_that_is_asked_for(
    report: dict[str, dict[str, Any]],
) -> None:
    sockets = report["sockets"]
    assert (sockets["workers"], sockets["connections"]) == (30, 30)
    for call in (sockets["beats"], sockets["commits"]):
        assert call["per_second"] > 0
        assert 0 < call["p50_ms"] <= call["p99_ms"] <= call["max_ms"]
    assert sockets["server_processors"] > 0
