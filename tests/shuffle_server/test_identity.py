"""A start with a list of data directories that is not this worker's takes over nothing, so deletes nothing."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from shuffle_api.errors import StorageFailed
from shuffle_api.ids import MapAttempt
from shuffle_server.options import ServerOptions
from shuffle_server.server import Server
from shuffle_server.store.calls import DISK_SECONDS
from shuffle_server.store.directories import Claims
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, output_files


def claim_identity(roots: list[Path]) -> str:
    """As a server does that starts; the worker's name."""
    with closing(Claims(roots, DISK_SECONDS)) as claims:
        claims.lock()
        name = claims.identify()
        for disk in claims.disks:
            claims.claim(disk)
        return name


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    roots = [tmp_path / name for name in "abc"]
    for root in roots:
        root.mkdir()
    return roots


def test_name_stays_while_directories_are_added_and_left_out(roots: list[Path]) -> None:
    a, b, c = roots
    name = claim_identity([a])
    for listed in ([a, b], [a, b, c], [a, c, b], [a, c], [a], [a, b, c]):
        assert claim_identity(listed) == name


def test_another_order_or_another_first_directory_is_refused(roots: list[Path]) -> None:
    a, b, c = roots
    name = claim_identity([a, b])
    with pytest.raises(StorageFailed, match=f"{b} is not the first one of worker {name}"):
        claim_identity([b, a])
    with pytest.raises(StorageFailed, match=f"{b} is not the first"):
        claim_identity([b])
    with pytest.raises(StorageFailed, match=f"{b} belongs to worker {name}"):
        claim_identity([c, b])
    with pytest.raises(StorageFailed, match=f"{a} is the first one of worker {name}"):
        claim_identity([c, a])
    assert [path.name for path in c.iterdir()] == ["lock"]  # refused before anything was written


def test_directory_of_another_worker_is_refused(roots: list[Path]) -> None:
    a, b, c = roots
    name = claim_identity([a])
    claim_identity([b, c])
    for other in (b, c):
        with pytest.raises(StorageFailed, match=f"{other} (is the first one of|belongs to) worker"):
            claim_identity([a, other])
    assert claim_identity([a]) == name


def test_map_outputs_without_a_name_are_not_taken_over_by_a_new_worker(roots: list[Path]) -> None:
    a, b, _ = roots
    (b / "worker" / "apps" / "app").mkdir(parents=True)
    with pytest.raises(StorageFailed, match=f"{b} has map outputs"):
        claim_identity([a, b])


def test_disk_that_is_not_mounted_is_missed_until_a_start_leaves_it_out(roots: list[Path]) -> None:
    a, b, _ = roots
    name = claim_identity([a, b])
    shutil.rmtree(b)
    b.mkdir()  # the mount point
    for _ in range(2):
        with pytest.raises(StorageFailed, match=f"{b} is not what it was") as refused:
            claim_identity([a, b])
    assert "leaves it out" in refused.value.remedy
    assert claim_identity([a]) == name
    assert claim_identity([a, b]) == name


def test_server_with_its_directories_in_another_order_deletes_nothing(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    claim_identity(roots)
    for root in roots:
        store = Store(root / "worker")
        store.add_shuffle(SPEC.id)
        writer = store.stage(SPEC, MapAttempt(0, 0), "none")
        assert store.publish(writer, writer.new_fencing_token()) is not None
    held = [path for root in roots for path in output_files(root)]
    assert len(held) == 2
    with pytest.raises(StorageFailed, match="first"):
        Server(ServerOptions(data_dir=f"{roots[1]},{roots[0]}", listen="127.0.0.1:0"))
    assert [path for root in roots for path in output_files(root)] == held


@pytest.mark.parametrize("name", ["worker-id", "data-directories", "belongs-to"])
def test_file_that_is_no_text_is_named(tmp_path: Path, name: str) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        root.mkdir()
    claim_identity(roots)
    [path] = tmp_path.rglob(name)
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x80
    path.write_bytes(data)
    with pytest.raises(StorageFailed, match=f"has a damaged file {name}.*To do: check this disk"):
        claim_identity(roots)
