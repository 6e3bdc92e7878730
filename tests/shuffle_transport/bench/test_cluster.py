"""``flight-shuffle bench cluster``: each worker's figures and those of all, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import Overloaded
from shuffle_transport.bench import command


def run(*arguments: str) -> None:
    program = click.Group("flight-shuffle")
    command.register(program)
    program.main(["bench", "cluster", *arguments], standalone_mode=False)


def test_every_worker_is_measured_alone_and_with_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ClusterProcesses(tmp_path, 2) as cluster:
        run("--server", cluster.master.control, "--size", "4m", "--streams", "2", "--json")
        report = json.loads(capsys.readouterr().out)
        assert [each["worker"] for each in report["workers"]] == sorted(cluster.worker_ids())
        for found in (*report["workers"], report["all_at_once"]):
            assert found["write_gib_s"] > 0
            assert found["read_gib_s"] > 0
        assert report["control_round_trip_ms"] > 0
        assert not cluster.master.status().apps
        wait_until(lambda: not list(tmp_path.rglob("apps/*/*")), "the map outputs are removed")
        run("--server", cluster.master.control, "--size", "1m", "--streams", "1")
        table = capsys.readouterr().out.splitlines()
        assert table[0].split() == ["worker", "address", "write", "GiB/s", "read", "GiB/s"]
        assert table[3].startswith("all at once")


def test_a_cluster_without_a_worker_is_an_error(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "master", tmp_path / "log", role="master") as master,
        pytest.raises(Overloaded, match="no worker of"),
    ):
        run("--server", master.control)
