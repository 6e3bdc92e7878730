"""The spill: in memory first, then in a file that nobody sees and that is gone in every case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shuffle_api.errors import StorageFailed, StorageFull
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


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Spill(memory=0, directory=str(tmp_path / "gone")) as spill, pytest.raises(StorageFailed, match="gone"):
        spill.put(b"x")
