"""A rolling upgrade: processes and clients of the previous release and of this one work in one cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.harness.cluster import end, wait_until
from bench.harness.server import ServerProcess
from shuffle_api.interfaces import OptionValue
from shuffle_api.values import MapOutput
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.test_server import run_cli

ROOT = Path(__file__).parents[2]
BEFORE_THE_FIRST = "ecdba8c4ceee160897e1c319890ff453e38db268"
"""The commit that is taken for the previous release as long as there is no tag."""
MAPS, PARTITIONS = 8, 4

CLIENT = """
import sys
import shuffle_plugins
from shuffle_api import MapAttempt, open_plugin
assert shuffle_plugins.__file__.startswith(sys.argv[2]), shuffle_plugins.__file__
with open_plugin("remote", {"server": sys.argv[1]}) as plugin, plugin.master("previous") as master:
    handle = master.register_shuffle(partitions=2, maps=6)
    for number in range(6):
        with plugin.writer(handle, MapAttempt(number, 0)) as writer:
            for record in range(1000):
                writer.write(record % 2, f"{number}/{record}".encode())
            writer.commit()
    with plugin.reader(handle, partitions=range(2)) as reader:
        found = sorted(bytes(record) for _, record in reader)
    assert found == sorted(f"{number}/{record}".encode() for number in range(6) for record in range(1000))
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the previous release's wheel is installed."""
    folder = tmp_path_factory.mktemp("previous")
    tags = _run("git", "tag", "--list", "v*", "--merged", "HEAD^", "--sort=-v:refname").split()
    _run("git", "archive", f"--output={folder}/source.tar", *[*tags, BEFORE_THE_FIRST][:1])
    with tarfile.open(folder / "source.tar") as archive:
        archive.extractall(folder / "source", filter="data")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    _run(*pip, "wheel", *offline, f"--wheel-dir={folder}", str(folder / "source"))
    [wheel] = folder.glob("*.whl")
    _run(*pip, "install", "--no-deps", "--no-index", f"--target={folder / 'installed'}", str(wheel))
    return folder / "installed"


def _run(*command: str) -> str:
    environment = {**os.environ, "FLIGHT_SHUFFLE_SKIP_JAR": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True
    )
    return done.stdout


def of(release: Path) -> tuple[str, ...]:
    """What goes before a command, so that it runs this release."""
    return ("env", f"PYTHONPATH={release}")


def is_of(process: ServerProcess, release: Path) -> bool:
    return f"PYTHONPATH={release}\0".encode() in Path(f"/proc/{process.pid}/environ").read_bytes()


@pytest.mark.timeout(600)
def test_a_worker_of_the_previous_release_joins_serves_and_drains(previous: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        master = stack.enter_context(ServerProcess(tmp_path / "m", tmp_path / "m.log", role="master"))
        join = ("--master", master.control)
        old = ServerProcess(tmp_path / "old", tmp_path / "old.log", join, role="worker", prefix=of(previous))
        stack.callback(end, old)
        new = stack.enter_context(ServerProcess(tmp_path / "new", tmp_path / "new.log", join, role="worker"))
        assert (is_of(old, previous), is_of(new, previous)) == (True, False)
        plugin = stack.enter_context(RemoteShuffle({"server": master.control}))
        driver = stack.enter_context(plugin.master("job"))
        handle = driver.register_shuffle(PARTITIONS, MAPS)
        written = sorted(record for number in range(MAPS) for record in write_map(plugin, handle, number, 2000))
        assert holders(driver.map_outputs(handle)) == {old.worker, new.worker}
        assert read_all(plugin, handle) == written
        drained = run_cli("drain", "--master", master.control, old.worker, "--timeout", "200")
        assert drained.returncode == 0, drained.stderr
        wait_until(lambda: not old.running, "the worker ends")
        old.stop()
        assert holders(driver.map_outputs(handle)) == {new.worker}
        assert read_all(plugin, handle) == written


@pytest.mark.timeout(600)
def test_a_cluster_is_upgraded_in_the_middle_of_a_job(previous: Path, tmp_path: Path) -> None:
    """Workers first, each with its data, then the master; a worker of this release serves below the old master."""
    with ExitStack() as stack:
        master = ServerProcess(tmp_path / "m", tmp_path / "m.log", role="master", prefix=of(previous))
        stack.callback(end, master)
        join = ("--master", master.control)
        workers = []
        for name in ("a", "b"):
            place = tmp_path / name, tmp_path / f"{name}.log"
            workers.append(ServerProcess(*place, join, role="worker", prefix=of(previous)))
            stack.callback(end, workers[-1])
        options: dict[str, OptionValue] = {"server": master.control, "retry": 120, "hand_over": "off"}
        with RemoteShuffle(options) as plugin, plugin.master("job") as driver:
            handle = driver.register_shuffle(PARTITIONS, MAPS)
            written = [record for number in range(MAPS - 3) for record in write_map(plugin, handle, number, 2000)]
            for at, worker in enumerate(workers):
                worker.stop()
                again = stack.enter_context(ServerProcess(worker.data_dir, worker.log, join, role="worker"))
                assert again.worker == worker.worker
                assert not is_of(again, previous)
                assert read_all(plugin, handle, range(MAPS - 3 + at)) == sorted(written)
                written += write_map(plugin, handle, MAPS - 3 + at, 2000)
            master.stop()
            stack.enter_context(ServerProcess(master.data_dir, master.log, role="master", listen=master.control))
            written += write_map(plugin, handle, MAPS - 1, 2000)
            assert read_all(plugin, handle) == sorted(written)
            assert len(driver.map_outputs(handle)) == MAPS


def test_a_client_of_the_previous_release_writes_and_reads(previous: Path, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        _run(*of(previous), sys.executable, "-c", CLIENT, server.control, str(previous))
        assert server.status().bytes_pulled > 0


def holders(outputs: Sequence[MapOutput]) -> set[str]:
    return {worker for output in outputs for worker in output.workers}
