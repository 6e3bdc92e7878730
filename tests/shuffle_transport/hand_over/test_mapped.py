"""Blocks out of a file that may be replaced, cut, or written over while they are looked at."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from shuffle_transport.hand_over import mapped
from shuffle_transport.hand_over.mapped import MAP_FROM, OutputBlocks, mapped_files

SIZE = 4 * MAP_FROM
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


def test_a_view_keeps_its_bytes_and_the_lock_after_the_file_was_closed_moved_and_deleted(path: Path) -> None:
    with OutputBlocks(str(path), SIZE, SIZE) as blocks:
        view = blocks.view(5, SIZE - 10)
    other = path.with_name("spare")
    path.rename(other)
    assert locked(other)
    part = view[:100]
    del view, blocks
    assert locked(other)
    assert mapped_files() == 1
    other.unlink()
    assert part == CONTENT[5:105]
    assert part.readonly
    del part
    assert mapped_files() == 0


def test_nothing_is_locked_when_nobody_refers_to_it(path: Path) -> None:
    with OutputBlocks(str(path), SIZE, SIZE) as blocks:
        assert blocks.view(0, SIZE) == CONTENT
        assert locked(path)
    assert not locked(path)


def test_little_is_read_and_not_mapped(path: Path) -> None:
    with OutputBlocks(str(path), MAP_FROM - 1, SIZE) as blocks:
        view = blocks.view(3, 10)
        assert mapped_files() == 0
    assert view == CONTENT[3:13]
    assert not locked(path)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_views_of_very_many_files_use_up_no_descriptors(tmp_path: Path) -> None:
    views = []
    for number in range(300):
        file = tmp_path / str(number)
        file.write_bytes(bytes([number % 256]) * MAP_FROM)
        with OutputBlocks(str(file), MAP_FROM, MAP_FROM) as blocks:
            views.append(blocks.view(0, MAP_FROM))
    assert mapped_files() == 64
    assert all(view == bytes([number % 256]) * MAP_FROM for number, view in enumerate(views))
    views.clear()
    del blocks
    assert mapped_files() == 0


def test_a_kernel_that_cannot_populate_is_read_from(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "_POPULATE_READ", 9999)
    monkeypatch.setattr(mapped, "_can_populate", True)
    with OutputBlocks(str(path), SIZE, SIZE) as blocks:
        assert blocks.view(7, 1000) == CONTENT[7:1007]
        assert blocks.view(0, SIZE) == CONTENT
    with OutputBlocks(str(path), SIZE, SIZE) as blocks:
        assert mapped_files() == 0


def test_a_file_that_is_cut_is_an_error_and_not_the_end_of_the_process(path: Path) -> None:
    with OutputBlocks(str(path), SIZE, SIZE) as blocks:
        os.truncate(path, SIZE // 2)
        assert blocks.view(0, SIZE // 2) == CONTENT[: SIZE // 2]
        with pytest.raises(OSError, match=r"Bad address|ends at"):
            blocks.view(SIZE // 2, SIZE // 2)
    with pytest.raises(OSError, match="it has"):
        OutputBlocks(str(path), SIZE, SIZE)


def test_what_is_no_committed_file_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    for name, says in (("nothing", "No such file"), ("link", "symbolic links")):
        with pytest.raises(OSError, match=says):
            OutputBlocks(str(tmp_path / name), 1, 1)
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)  # as while it is written over
    with pytest.raises(BlockingIOError):
        OutputBlocks(str(path), 1, 1)
    os.close(fd)


def test_a_file_that_was_replaced_while_it_was_opened_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def replaced(fd: int, operation: int) -> None:
        real(fd, operation)
        path.with_name("new").write_bytes(CONTENT)
        path.with_name("new").rename(path)

    monkeypatch.setattr(fcntl, "flock", replaced)
    with pytest.raises(OSError, match="replaced"):
        OutputBlocks(str(path), 1, 1)
