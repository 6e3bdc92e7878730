"""A master with another journal than that of a worker's outputs: the worker drops none, and joins when the right one is
back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import lasting_addresses
from shuffle_api.errors import StorageFailed
from shuffle_api.registry import BeginJournal
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server import server as server_module
from shuffle_server.journals import Journal, Journals, OtherJournal
from shuffle_server.master.master import Master
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, Server, WorkerServer
from tests.shuffle_server.helpers import output_files, read_all, write_map
from tests.shuffle_server.master.simulated import SimulatedDirectory


class Scene:
    """A master that may be started on other directories, a worker of it, and what a job wrote there."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self._stack = root, stack
        [self.address] = lasting_addresses(1)
        self.master = self.start_master("m")
        self.worker = self.start_worker()
        self._stack.callback(lambda: self.worker.stop())
        self._stack.callback(lambda: self.master.stop())
        self.plugin = stack.enter_context(
            RemoteShuffle({"server": self.address, "timeout": 60, "retry": 60, "hand_over": "off"})
        )
        self.job = self.plugin.master("job")
        self.handle = self.job.register_shuffle(4, 1)
        self.written = write_map(self.plugin, self.handle, 0)

    def start_master(self, directory: str) -> MasterServer:
        return MasterServer(ServerOptions(data_dir=str(self.root / directory), listen=self.address))

    def start_worker(self) -> WorkerServer:
        return WorkerServer(
            ServerOptions(data_dir=str(self.root / "w"), master=self.address, data_listen="127.0.0.1:0")
        )

    def restart_master(self, directory: str) -> None:
        self.master.stop()
        self.master = self.start_master(directory)

    def await_joined(self) -> None:
        session = self.worker._registries.all[0].session
        wait_until(lambda: session.identity.epoch == self.master._control.master.epoch, "the worker joins")
        wait_until(lambda: not self.worker._registries.absent(), "the worker is counted on")

    def await_refusal(self) -> str:
        wait_until(lambda: "has journal" in self.worker._registries.absent(), "the worker does not join")
        return self.worker._registries.absent()

    def files(self) -> list[Path]:
        return output_files(self.root / "w")

    @property
    def kept(self) -> Path:
        return self.root / "w" / "journals"


def holds_nothing(server: Server | WorkerServer) -> bool:
    return not server._data.held_shuffles()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


def test_a_worker_drops_nothing_for_a_master_that_starts_on_an_empty_directory(scene: Scene) -> None:
    held = scene.files()
    assert held
    scene.restart_master("empty")
    message = scene.await_refusal()
    assert "start the master with the --data-dir or --metadata that it had" in message
    assert f"remove {scene.kept}, and start it again" in message
    assert scene.files() == held
    assert scene.master._control.membership.records() == []  # nobody is sent there
    scene.restart_master("m")
    scene.await_joined()
    assert read_all(scene.plugin, scene.handle) == scene.written
    scene.job.close()


def test_a_worker_that_starts_meanwhile_drops_nothing_either(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    held = scene.files()
    wait_until(scene.kept.exists, "the journal is kept")
    scene.worker.stop()
    scene.restart_master("empty")
    monkeypatch.setattr(server_module, "JOIN_SECONDS", 1.0)
    with pytest.raises(OtherJournal, match=f"at {scene.address} has journal"):
        scene.start_worker()
    assert scene.files() == held
    scene.restart_master("m")
    scene.worker = scene.start_worker()
    assert read_all(scene.plugin, scene.handle) == scene.written
    scene.job.close()


def test_an_old_copy_of_the_journal_is_refused_and_the_journal_itself_is_not(scene: Scene) -> None:
    held = scene.files()
    scene.master.stop()
    shutil.copytree(scene.root / "m", scene.root / "copy")
    scene.master = scene.start_master("m")
    scene.await_joined()
    scene.restart_master("m")
    scene.await_joined()
    scene.restart_master("copy")
    assert "in epoch 2, and" in scene.await_refusal()
    assert scene.files() == held
    scene.restart_master("m")
    scene.await_joined()
    assert read_all(scene.plugin, scene.handle) == scene.written
    scene.job.close()


def test_a_worker_joins_another_cluster_once_its_file_is_removed(scene: Scene) -> None:
    wait_until(scene.kept.exists, "the journal is kept")
    scene.worker.stop()
    scene.restart_master("other")
    scene.kept.unlink()
    scene.worker = scene.start_worker()
    wait_until(lambda: not scene.files(), "what is of the other cluster is deleted")
    with scene.plugin.master("next") as job:
        handle = job.register_shuffle(4, 1)
        written = write_map(scene.plugin, handle, 0)
        assert read_all(scene.plugin, handle) == written
    wait_until(scene.kept.exists, "the journal is kept")
    assert scene.kept.read_text().split()[0] == scene.master._control.master.journal().id


def test_a_worker_without_outputs_joins_a_master_with_another_journal(scene: Scene) -> None:
    scene.job.close()
    wait_until(partial(holds_nothing, scene.worker), "the outputs are deleted")
    scene.restart_master("empty")
    scene.await_joined()
    with scene.plugin.master("next") as job:
        handle = job.register_shuffle(4, 1)
        written = write_map(scene.plugin, handle, 0)
        assert read_all(scene.plugin, handle) == written


def test_a_server_without_outputs_starts_without_its_journal(tmp_path: Path) -> None:
    options = ServerOptions(data_dir=str(tmp_path), listen="127.0.0.1:0")
    for _ in range(2):
        server = Server(options)
        with RemoteShuffle({"server": server.control_address, "retry": 0}) as plugin, plugin.master("job") as job:
            handle = job.register_shuffle(4, 1)
            written = write_map(plugin, handle, 0)
            assert read_all(plugin, handle) == written
        wait_until(partial(holds_nothing, server), "the outputs are deleted")
        server.stop()
        shutil.rmtree(tmp_path / "master")


def test_a_server_whose_own_journal_is_missing_does_not_start(tmp_path: Path) -> None:
    [address] = lasting_addresses(1)
    options = ServerOptions(data_dir=str(tmp_path), listen=address)
    server = Server(options)
    with RemoteShuffle({"server": server.control_address, "retry": 0}) as plugin:
        job = plugin.master("job")
        handle = job.register_shuffle(4, 1)
        written = write_map(plugin, handle, 0)
        server.stop()
        (tmp_path / "master").rename(tmp_path / "elsewhere")
        with pytest.raises(OtherJournal, match="the master in this process has journal"):
            Server(options)
    shutil.rmtree(tmp_path / "master")
    (tmp_path / "elsewhere").rename(tmp_path / "master")
    server = Server(options)
    try:
        with RemoteShuffle({"server": server.control_address, "retry": 0}) as plugin:
            assert read_all(plugin, handle) == written
    finally:
        server.stop()


def test_a_journal_has_one_id_for_ever_and_another_journal_another(tmp_path: Path) -> None:
    first, other = Master(tmp_path / "one"), Master(tmp_path / "two")
    journal = first.journal()
    assert first.journal() == journal == Journal(journal.id, 1)
    assert first.apply(BeginJournal("another")) == ()
    assert other.journal().id not in ("", journal.id)
    first.materialize()
    first.snapshot(tmp_path / "copy")
    first.close()
    other.close()
    again, restored = Master(tmp_path / "one"), Master(tmp_path / "three")
    assert again.journal() == Journal(journal.id, 2)
    restored.restore(tmp_path / "copy")
    assert restored.journal().id == journal.id
    again.close()
    restored.close()


@pytest.mark.parametrize("seed", range(5))
def test_the_id_that_a_worker_keeps_survives_the_machine_of_the_master(seed: int) -> None:
    directory = SimulatedDirectory(seed=seed)
    master = Master(directory, sync=False)
    journal = master.journal()
    after = Master(directory.after_power_cut())
    assert after.journal() == Journal(journal.id, 2)
    after.close()
    master.close()


def test_the_journals_of_several_registries_are_kept_apart_and_by_another_thread(tmp_path: Path) -> None:
    later: list[object] = []
    journals = Journals(tmp_path / "journals", later.append)
    journals.joined("", Journal("id-1", 4), Journal(), "at h1")
    journals.joined("b", Journal("id-3", 9), Journal(), "at h2")
    journals.joined("b", Journal("id-2", 1), Journal(), "at h2")
    journals.joined("b", Journal("", 7), Journal("id-2", 1), "at h2")  # of an earlier release, which has none
    assert not (tmp_path / "journals").exists()
    for task in later:
        assert callable(task)
        task()
    for kept in (journals, Journals(tmp_path / "journals", later.append)):
        assert (kept.of(""), kept.of("b"), kept.of("c")) == (Journal("id-1", 4), Journal("id-2", 1), Journal())
        for other in (Journal("id-1", 4), Journal("id-2", 0)):
            with pytest.raises(OtherJournal, match="the map outputs of this worker are of journal id-2 in epoch 1"):
                kept.joined("b", other, kept.of("b"), "at h2")
        kept.joined("b", Journal("id-2", 1), kept.of("b"), "at h2")


@pytest.mark.parametrize("text", ["id-1", "id-1 x b", "a b c d e"])
def test_a_file_that_lists_no_journals_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "journals").write_text(text)
    with pytest.raises(StorageFailed, match="journals has a line that is not ID EPOCH NAME.*remove the file"):
        Journals(tmp_path / "journals", lambda task: None)
