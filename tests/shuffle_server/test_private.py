"""Data directories are for the server's user alone, whatever the umask and whoever made them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import StorageFailed
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store.directories import OTHERS, OWN, lock_directory
from shuffle_transport.files import make_private
from tests.shuffle_server.helpers import read_all, write_map

NO_UMASK = ("bash", "-c", 'umask 0; exec "$@"', "open")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def below(root: Path) -> list[Path]:
    return [Path(at, name) for at, directories, files in os.walk(root) for name in (*directories, *files)]


def open_to_others(root: Path) -> list[str]:
    found = []
    for path in (root, *below(root)):
        with suppress(FileNotFoundError):  # it has been deleted meanwhile
            mode = path.lstat().st_mode
            if mode & OTHERS and not stat.S_ISLNK(mode):
                found.append(f"{path} {stat.filemode(mode)}")
    return found


def work(server: ServerProcess) -> None:
    """Something of everything that a server writes: outputs, one that is being written, spare files."""
    with RemoteShuffle({"server": server.control}) as plugin, plugin.master("app") as master:
        for number in range(2):
            handle = master.register_shuffle(4, 3, shuffle=number)
            written = [record for map_id in range(3) for record in write_map(plugin, handle, map_id)]
            assert read_all(plugin, handle) == sorted(written)
        master.unregister_shuffle(handle)
        assert open_to_others(server.data_dir) == []


def test_nothing_that_a_server_makes_is_open_to_others(tmp_path: Path) -> None:
    data_dir = tmp_path / "made" / "data"
    arguments = ["--snapshot-every", "1"]
    with ServerProcess(data_dir, tmp_path / "log", arguments, prefix=NO_UMASK) as server:
        work(server)
        server.kill()
        server.restart()
        work(server)
        names = {path.name for path in below(data_dir)}
        assert {"worker", "master", "lock", "worker-id", "apps", "nonce"} <= names
    assert open_to_others(tmp_path / "made") == []


def test_what_lies_in_a_directory_that_exists_is_closed_and_the_directory_stays(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ServerProcess(data_dir, tmp_path / "log") as server:
        work(server)
        server.kill()
        (data_dir / "other").write_text("not the server's")
        for path in (data_dir, *below(data_dir)):
            path.chmod(0o777)
        server.restart()
        work_left = [
            line for line in open_to_others(data_dir) if not line.startswith((f"{data_dir} ", f"{data_dir}/other"))
        ]
        assert work_left == []
    assert stat.S_IMODE(data_dir.stat().st_mode) == stat.S_IMODE((data_dir / "other").stat().st_mode) == 0o777
    assert f"every user may write to data directory {data_dir}" in (tmp_path / "log").read_text()


def test_a_closing_that_was_cut_short_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = tmp_path / "worker" / "apps" / "a"
    outputs.mkdir(parents=True)
    (outputs / "one").write_text("")
    for path in below(tmp_path):
        path.chmod(0o755)
    chmod, left = Path.chmod, [2]

    def fails(self: Path, mode: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise PermissionError(1, "Operation not permitted", str(self))
        chmod(self, mode)

    monkeypatch.setattr(Path, "chmod", fails)
    with pytest.raises(StorageFailed, match=r"open to other users.*chown -R \d+ .*worker"):
        lock_directory(tmp_path)
    monkeypatch.undo()
    os.close(lock_directory(tmp_path))
    assert open_to_others(tmp_path / "worker") == []


def test_all_that_lies_in_a_data_directory_is_known(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        work(server)
        assert {path.name for path in (tmp_path / "data").iterdir()} <= set(OWN)


def test_a_link_is_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    worker = tmp_path / "data" / "worker"
    worker.mkdir(parents=True)
    worker.chmod(0o755)
    (worker / "link").symlink_to(outside)
    os.close(lock_directory(tmp_path / "data"))
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_directories_above_are_private_too_if_they_are_made(tmp_path: Path, no_umask: None) -> None:
    make_private(tmp_path / "a" / "b" / "c")
    assert open_to_others(tmp_path / "a") == []
