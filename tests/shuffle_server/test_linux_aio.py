"""Many ranges with one call of the kernel: every byte is the file's, and where there is no AIO, block after block."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffle_server.store import linux_aio
from shuffle_server.store.format import TornFile
from shuffle_server.store.linux_aio import MOST_READS, Queue, Unavailable
from shuffle_server.store.output_file import MANY_RANGES, read_ranges

SIZE = 100_000
CONTENT = Random(7).randbytes(SIZE)
RANGES = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 300)), max_size=3 * MANY_RANGES)
here = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="there is no AIO on this system"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = tmp_path_factory.mktemp("aio") / "file"
    path.write_bytes(CONTENT)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def read(fd: int, ranges: list[tuple[int, int]]) -> bytes:
    """Those ranges, which lie in the file, by `read_ranges`; what is behind its target stays as it was."""
    size = sum(length for _, length in ranges)
    memory = bytearray(b"\xee" * (size + 64))
    read_ranges([fd] * len(ranges), [at for at, _ in ranges], [n for _, n in ranges], memoryview(memory)[:size])
    assert memory[size:] == b"\xee" * 64
    return bytes(memory[:size])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RANGES)
def test_what_is_read_is_what_the_file_has(file: int, ranges: list[tuple[int, int]]) -> None:
    ranges = [(at, min(length, SIZE - at)) for at, length in ranges]
    assert read(file, ranges) == b"".join(CONTENT[at : at + length] for at, length in ranges)


@here
def test_many_ranges_are_not_read_one_by_one(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise AssertionError("a read of its own")

    monkeypatch.setattr(os, "preadv", refuse)
    ranges = [(n * 30, 20) for n in range(2 * MOST_READS + 1)]
    assert read(file, ranges) == b"".join(CONTENT[at : at + length] for at, length in ranges)
    with pytest.raises(AssertionError, match="a read of its own"):
        read(file, ranges[: MANY_RANGES - 1])


def test_ranges_of_several_files_are_read_in_their_order(tmp_path: Path) -> None:
    names = [tmp_path / str(n) for n in range(MANY_RANGES)]
    for n, name in enumerate(names):
        name.write_bytes(bytes([n]) * 10)
    fds = [os.open(name, os.O_RDONLY) for name in names]
    try:
        target = memoryview(bytearray(3 * len(fds)))
        read_ranges(fds, [2] * len(fds), [3] * len(fds), target)
        assert bytes(target) == b"".join(bytes([n]) * 3 for n in range(len(fds)))
    finally:
        for fd in fds:
            os.close(fd)


def test_a_file_that_ends_too_early_is_torn(file: int) -> None:
    ranges = [(n, 10) for n in range(MANY_RANGES)]
    with pytest.raises(TornFile, match=rf"ends at {SIZE}, 6 bytes early"):
        read(file, [*ranges, (SIZE - 4, 10), *ranges])
    assert read(file, ranges) == b"".join(CONTENT[n : n + 10] for n, _ in ranges)  # nothing of that is left in a queue


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            read(directory, [(0, 10)] * MANY_RANGES)
    finally:
        os.close(directory)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read(directory, [(0, 10)] * MANY_RANGES)


def test_one_bad_descriptor_among_good_ones_fails_all(file: int) -> None:
    fds = [file] * MANY_RANGES
    fds[MANY_RANGES // 2] = 1 << 20
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_ranges(fds, [0] * len(fds), [5] * len(fds), memoryview(bytearray(5 * len(fds))))


def test_without_aio_blocks_are_read_one_by_one(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_aio, "_idle", [])
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(Unavailable, match="riscv64"):
        Queue()
    ranges = [(n * 7, 11) for n in range(2 * MANY_RANGES)]
    assert read(file, ranges) == b"".join(CONTENT[at : at + length] for at, length in ranges)


@here
def test_a_kernel_that_has_none_left_says_so(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_aio, "_idle", [])
    monkeypatch.setattr(linux_aio, "MOST_READS", 1 << 40)
    with pytest.raises(Unavailable, match="io_setup: E"):
        Queue()


@here
def test_an_interrupted_wait_goes_on(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    call, interrupted = queue._call, list[int]()

    def interrupt(number: int, *arguments: int) -> int:
        if number == queue._calls.getevents and not interrupted:
            interrupted.append(number)
            ctypes.set_errno(errno.EINTR)
            return -1
        return int(call(number, *arguments))

    monkeypatch.setattr(queue, "_call", interrupt)
    target = memoryview(bytearray(20))
    assert queue.read([file] * 2, [0, 50], [10, 10], target)
    assert bytes(target) == CONTENT[:10] + CONTENT[50:60]
    assert interrupted


@here
def test_threads_have_a_queue_each_and_leave_it_to_the_next(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queues: list[Queue] = []
    monkeypatch.setattr(linux_aio, "_idle", queues)
    threads, start = 4, threading.Barrier(4)

    def work(seed: int) -> None:
        random = Random(seed)
        start.wait(30)
        for _ in range(200):
            ranges = [(random.randrange(SIZE - 300), random.randrange(300)) for _ in range(40)]
            assert read(file, ranges) == b"".join(CONTENT[at : at + length] for at, length in ranges)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    assert 1 <= len(queues) <= threads
