"""The spill: in memory first, then in a file that nobody sees and that is gone in every case."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shuffle_api.errors import BlockCorrupt, StorageFailed, StorageFull
from shuffle_api.sorting import Spill
from tests.shuffle_server.helpers import mounted_tmpfs


def test_what_is_put_comes_back_from_memory_and_from_the_file(tmp_path: Path) -> None:
    with Spill(memory=100, directory=str(tmp_path)) as spill:
        given = [bytes([n]) * 40 for n in range(5)]
        blobs = [spill.put(memoryview(payload)) for payload in given]
        assert spill.spilled_bytes == 3 * 40
        assert [bytes(spill.get(blob)) for blob in reversed(blobs)] == given[::-1]


def test_memory_is_free_again_for_what_was_taken(tmp_path: Path) -> None:
    with Spill(memory=100, directory=str(tmp_path)) as spill:
        for _ in range(5):
            spill.get(spill.put(b"x" * 100))
        assert spill.spilled_bytes == 0


def test_the_directory_stays_empty_even_when_the_process_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from shuffle_api.sorting import Spill\n"
        "spill = Spill(memory=0, directory=sys.argv[1]); spill.put(bytes(1 << 20)); print('there', flush=True)\n"
        "time.sleep(600)"
    )
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    with mounted_tmpfs(tmp_path / "disk", 4 << 20) as disk:
        free = os.statvfs(disk).f_bfree
        with subprocess.Popen(
            [sys.executable, "-c", program, str(disk)], env=environment, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            assert os.statvfs(disk).f_bfree < free
            assert not list(disk.iterdir())
            process.send_signal(signal.SIGKILL)
        assert os.statvfs(disk).f_bfree == free


def test_a_full_disk_is_named_and_what_was_put_before_is_whole(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "disk", 1 << 20) as disk, Spill(memory=0, directory=str(disk)) as spill:
        first = spill.put(b"a" * (600 << 10))
        with pytest.raises(StorageFull, match=f"no room in {disk} to spill 614400 bytes, 614400 lie there"):
            spill.put(b"b" * (600 << 10))
        assert bytes(spill.get(first)) == b"a" * (600 << 10)


@pytest.mark.parametrize("at", range(0, 300, 7))
def test_a_flipped_bit_is_found(tmp_path: Path, at: int) -> None:
    with Spill(memory=0, directory=str(tmp_path)) as spill:
        blobs = [spill.put(bytes([n]) * 100) for n in range(3)]
        with open(_file(tmp_path), "r+b") as file:
            file.seek(at)
            [byte] = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << at % 8]))
        for n, blob in enumerate(blobs):
            if n == at // 100:
                with pytest.raises(BlockCorrupt, match=f"100 bytes at offset {n * 100} of the spill in {tmp_path}"):
                    spill.get(blob)
            else:
                assert spill.get(blob) == bytes([n]) * 100


def test_a_file_that_was_cut_and_a_disk_that_fails_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Spill(memory=0, directory=str(tmp_path)) as spill:
        blob = spill.put(b"x" * 100)
        os.truncate(_file(tmp_path), 60)
        with pytest.raises(StorageFailed, match=f"60 of 100 spilled bytes came back from {tmp_path}"):
            spill.get(blob)
        monkeypatch.setattr(os, "pread", failing)
        with pytest.raises(StorageFailed, match=f"{tmp_path}: Input/output error"):
            spill.get(blob)


def _file(directory: Path) -> str:
    """The spill's file, which has no name there."""
    links = Path("/proc/self/fd").iterdir()
    [found] = [link for link in links if os.path.realpath(link).startswith(f"{directory}/")]
    return str(found)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Spill(memory=0, directory=str(tmp_path / "gone")) as spill, pytest.raises(StorageFailed, match="gone"):
        spill.put(b"x")
