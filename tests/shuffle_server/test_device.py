"""Disks are recognised, or said; and the page cache is no larger than the process's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_server.store import device as device_module
from shuffle_server.store import page_cache
from shuffle_server.store.device import KINDS, MEMORY, parse_device, recognise

MOUNTS = """\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
30 22 0:27 / /dev/shm rw - tmpfs tmpfs rw
31 22 0:50 / {root}/nfs rw - nfs4 server:/export rw
32 22 0:51 / {root}/lustre\\040fs rw - lustre mgs:/fs rw
33 22 8:16 / {root}/spinning rw - xfs /dev/sdb rw
34 33 259:1 / {root}/spinning/nvme rw - ext4 /dev/nvme0n1p1 rw
35 22 0:52 / {root}/mem rw - ext4 /dev/x rw
36 22 0:53 / {root}/mem rw - tmpfs tmpfs rw
37 22 0:54 / {root}/fuse rw - fuse.s3fs s3fs rw
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    mounts, blocks = tmp_path / "mountinfo", tmp_path / "block"
    mounts.write_text(MOUNTS.format(root=tmp_path))
    for place, rotates in (("8:16/queue", 1), ("disk/queue", 0)):
        (blocks / place).mkdir(parents=True)
        (blocks / place / "rotational").write_text(f"{rotates}\n")
    (blocks / "disk/part").mkdir()
    (blocks / "259:1").symlink_to(blocks / "disk/part")  # the queue is its parent's
    monkeypatch.setattr(device_module, "_MOUNTS", mounts)
    monkeypatch.setattr(device_module, "_BLOCK_DEVICES", blocks)
    return tmp_path


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("nfs/data", "network"),
        ("lustre fs/data", "network"),
        ("fuse", "network"),
        ("spinning/data", "rotational"),
        ("spinning/nvme/data", "solid"),
        ("spinning/nvmes", "rotational"),
        ("mem/data", "memory"),
        ("elsewhere", "solid"),
    ],
)
def test_a_disk_is_recognised_by_its_file_system_and_its_flag(system: Path, where: str, kind: str) -> None:
    assert recognise(system / where) == KINDS[kind]


def test_where_the_system_says_nothing_the_disk_is_solid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_MOUNTS", tmp_path / "none")
    assert recognise(tmp_path) == KINDS["solid"]


def test_a_disk_is_what_is_said() -> None:
    assert parse_device("auto") is None
    assert parse_device("network") == KINDS["network"]
    measured = parse_device("1000:150")
    assert measured is not None
    assert measured.seek_bytes == 150 * 1024 * 1024 // 1000
    assert MEMORY.seek_bytes == 0
    for wrong in ("", "disk", "0:150", "100", "1:2:3", "-1:5"):
        with pytest.raises(InvalidArgument, match="--device"):
            parse_device(wrong)


def test_the_page_cache_is_what_system_and_container_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    (tmp_path / "max").write_text("3000000\n")
    (tmp_path / "stat").write_text("file 17\nanon 1000000\n")
    monkeypatch.setattr(page_cache, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(page_cache, "_LIMITS", ((tmp_path / "max", tmp_path / "stat", "anon"),))
    assert page_cache.available() == 2_000_000
    (tmp_path / "max").write_text("max\n")
    assert page_cache.available() == 5000 << 10
    (tmp_path / "max").write_text("10\n")
    assert page_cache.available() == 0
    monkeypatch.setattr(page_cache, "_LIMITS", ())
    (tmp_path / "meminfo").unlink()
    assert page_cache.available() > 0
