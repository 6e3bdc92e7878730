"""bench.ingest: all of it, small, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.ingest import __main__ as ingest

SMALL = [
    "--writers",
    "2",
    "--outputs",
    "1",
    "--partitions",
    "4",
    "--block-bytes",
    "4096",
    "--rounds",
    "1",
    "--small-outputs",
    "40",
]
SMALL += ["--small-block-bytes", "100", "--memory-partitions", "20", "--memory-maps", "3"]


@pytest.mark.timeout(900)  # three servers and eight processes, one after the other
def test_every_part_has_figures(tmp_path: Path) -> None:
    path = tmp_path / "ingest.json"
    ingest.main([*SMALL, "--json", str(path), "--scratch", str(tmp_path)])
    report = json.loads(path.read_text())
    assert list(report) == ["benchmark", "date", "machine", "parameters", *ingest.PARTS]
    throughput = report["throughput"]
    assert throughput["bytes"] == 2 * 4 * 4096
    assert all(len(values) == 1 for values in throughput["seconds"].values())
    assert len(throughput["seconds"]) == 6
    assert all(throughput[f"ratio_{name}"] > 0 for name in ("ingest", "handed_over", "read_back", "read_in_place"))
    assert report["small"]["ratio"] > 0
    assert report["small"]["ratio_merged"] > 0
    assert 0 < report["memory"]["start_bytes"] <= report["memory"]["peak_bytes"]
    assert list(tmp_path.iterdir()) == [path]
