"""Blocks out of a file that may be replaced, cut, or written over while they are read."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shuffle_transport.local_files.local_fetch import OutputBlocks

SIZE = 256 << 10
CONTENT = os.urandom(SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "0.out"
    file.write_bytes(CONTENT)
    return file


def locked(path: Path) -> bool:
    """Whether the worker would leave this file alone."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_what_was_read_stays_and_the_file_is_locked_while_it_is_read(path: Path) -> None:
    with OutputBlocks(str(path), SIZE) as blocks:
        found = blocks.read(5, SIZE - 10)
        assert locked(path)
    assert not locked(path)
    path.write_bytes(bytes(SIZE))
    assert found == CONTENT[5:-5]
    assert found.readonly


def test_a_file_that_was_moved_or_deleted_is_read_on(path: Path) -> None:
    with OutputBlocks(str(path), SIZE) as blocks:
        path.rename(path.with_name("spare"))
        path.with_name("spare").unlink()
        assert blocks.read(0, SIZE) == CONTENT


def test_files_of_which_blocks_are_held_use_up_no_descriptors(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    held = []
    for _ in range(100):
        with OutputBlocks(str(path), SIZE) as blocks:
            held.append(blocks.read(0, SIZE))
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(view == CONTENT for view in held)


PROGRAM = """
import errno, os, sys
from shuffle_transport.local_files.local_fetch import OutputBlocks

path, size = sys.argv[1], int(sys.argv[2])
with OutputBlocks(path, size) as blocks:
    found = blocks.read(0, size)
    os.truncate(path, 0)
    assert len(bytes(found)) == size
    for offset in (0, size // 2, size - 1):
        try:
            blocks.read(offset, 1)
        except OSError as error:
            print(error.strerror)
"""


def test_no_process_is_killed_by_a_file_that_is_cut_after_it_was_read(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(SIZE)], capture_output=True, text=True, timeout=120
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [f"it ends at {at}" for at in (0, SIZE // 2, SIZE - 1)]


def test_a_disk_that_cannot_be_read_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with OutputBlocks(str(path), SIZE) as blocks:
        monkeypatch.setattr(os, "preadv", failing)
        with pytest.raises(OSError, match="Input/output error"):
            blocks.read(0, SIZE)


def test_a_file_that_is_cut_is_an_error_and_not_the_end_of_the_process(path: Path) -> None:
    with OutputBlocks(str(path), SIZE) as blocks:
        os.truncate(path, SIZE // 2)
        assert blocks.read(0, SIZE // 2) == CONTENT[: SIZE // 2]
        with pytest.raises(OSError, match="ends at"):
            blocks.read(SIZE // 2, SIZE // 2)
    with pytest.raises(OSError, match="it has"):
        OutputBlocks(str(path), SIZE)


def test_what_is_no_committed_file_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    for name, says in (("nothing", "No such file"), ("link", "symbolic links")):
        with pytest.raises(OSError, match=says):
            OutputBlocks(str(tmp_path / name), 1)
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)  # as while it is written over
    with pytest.raises(BlockingIOError):
        OutputBlocks(str(path), 1)
    os.close(fd)


def test_a_file_that_was_replaced_while_it_was_opened_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def replaced(fd: int, operation: int) -> None:
        real(fd, operation)
        path.with_name("new").write_bytes(CONTENT)
        path.with_name("new").rename(path)

    monkeypatch.setattr(fcntl, "flock", replaced)
    with pytest.raises(OSError, match="replaced"):
        OutputBlocks(str(path), 1)
