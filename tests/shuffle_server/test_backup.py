"""Backup and restore of the registry, as docs/registry.md says: workers report what was committed in between."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.master.database import Database, running_database


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_database() as running:
        yield running


def job_goes_on(
    data: Path, options: list[str], backup: Callable[[], object], restore: Callable[[], object], tmp_path: Path
) -> None:
    """A job writes a map before the backup and one after it."""
    log, held = tmp_path / "master.log", (tmp_path / "worker", tmp_path / "worker.log")
    master = ServerProcess(data, log, options, role="master")
    join = ("--master", master.control)
    worker = ServerProcess(*held, join, role="worker")
    with (
        RemoteShuffle({"server": master.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as plugin,
        plugin.master("job") as job,
    ):
        handle = job.register_shuffle(4, 2)
        written = write_map(plugin, handle, 0)
        master.stop()
        backup()
        with ServerProcess(data, log, options, role="master", listen=master.control):
            written += write_map(plugin, handle, 1)
            assert len(job.map_outputs(handle)) == 2
            worker.stop()
        restore()
        with (
            ServerProcess(data, log, options, role="master", listen=master.control),
            ServerProcess(*held, join, role="worker"),
        ):
            assert read_all(plugin, handle) == sorted(written)
            job.close()


def test_a_data_directory_is_copied_while_the_master_is_stopped(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"

    def restore() -> None:
        shutil.rmtree(data)
        shutil.copytree(copy, data)

    job_goes_on(data, [], lambda: shutil.copytree(data, copy), restore, tmp_path)


def test_a_database_is_dumped_and_restored(tmp_path: Path, database: Database) -> None:
    metadata, dump = database.fresh(), str(tmp_path / "dump")

    def run(program: str, *arguments: str) -> None:
        subprocess.run([database.programs / program, *arguments], check=True, timeout=240)

    job_goes_on(
        tmp_path / "data",
        ["--metadata", metadata],
        lambda: run("pg_dump", "--format", "custom", "--file", dump, metadata),
        lambda: run("pg_restore", "--clean", "--dbname", metadata, dump),
        tmp_path,
    )
