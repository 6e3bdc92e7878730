"""A small job over a network that fails; `python -m tests.faults.cluster_network` has 1,000 maps and partitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import cluster_network, network

pytestmark = pytest.mark.skipif(not network.possible(), reason="this user may not make network namespaces")


def test_a_job_over_a_failing_network_gets_its_records(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    arguments = ["--workers", "2", "--maps", "120", "--partitions", "60", "--records", "100", "--delay", "5"]
    assert cluster_network.main([*arguments, "--seed", "2", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["wrong"] == []
    assert sum(report["outputs_by_worker"]) == 120
    assert sum(report["faults"].values()) > 0


def test_with_two_replicas_no_map_runs_again_for_a_worker_killed_for_good(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    arguments = ["--workers", "3", "--maps", "150", "--partitions", "50", "--records", "200", "--no-faults"]
    assert cluster_network.main([*arguments, "--replicas", "2", "--kill", "0.3", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["wrong"] == []
    assert sum(report["outputs_by_worker"]) == 150
    assert report["write_s"] + report["read_s"] > report["killed_after_s"]
