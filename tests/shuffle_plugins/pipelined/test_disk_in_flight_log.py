"""The files of an in-flight log: what is found again, and that nothing else ever is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import Barrier, EndOfPartition, Position, Watermark
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.in_flight_log import DiskInFlightLog, NoInFlightLog
from shuffle_plugins.pipelined.log_directory import InFlightLogs
from shuffle_plugins.pipelined.log_files import Base, RecoveredLog, Stored, decode_entry, encode_entry
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_transport.checksum import crc32c
from tests.shuffle_plugins.pipelined.scene import WAIT

SHUFFLE = ShuffleId("app", 3)
Found = list[tuple[int, int, bytes] | int]


def logs_below(root: Path, limit: int = 1 << 20) -> InFlightLogs:
    return InFlightLogs(PipelinedOptions(log_dir=str(root), log_disk_bytes=limit))


class Written:
    """A log that is written, and what was acknowledged."""

    def __init__(
        self, root: Path, attempt: int = 0, parent: str = "", begin: Position | None = None, limit: int = 1 << 20
    ):
        begin = begin or Position({0: 0, 1: 0})
        self.logs = logs_below(root, limit)
        log = self.logs.open(SHUFFLE, MapAttempt(0, attempt), parent, begin)
        assert isinstance(log, DiskInFlightLog)
        self.log, self.start, self.markers = log, dict(log.recovered.start), log.recovered.markers
        self.gone: dict[int, int] = {}
        self._numbers, self._marks, self._order = dict(begin.blocks), begin.markers, 0
        self._written = threading.Condition()
        log.start(self._step)

    def put(self, partition: int, payload: bytes) -> SequencedBlock:
        number = self._numbers[partition]
        self._numbers[partition] = number + 1
        block = SequencedBlock(self._next(), partition, number, 1, payload, len(payload), crc32c(payload))
        self.log.put(block)
        return block

    def mark(self, marker: Barrier | Watermark | EndOfPartition) -> None:
        self.log.put(SequencedMarker(self._next(), self._marks, marker))
        self._marks += 1

    def flush(self) -> Position:
        """Wait until all is written; where whoever goes on begins."""
        with self._written:
            assert self._written.wait_for(lambda: self.log.holds(self._order), WAIT)
        return Position(dict(self._numbers), self._marks)

    def close(self, *, delete: bool = False, shuffle: bool = False) -> None:
        """And wait until it has ended."""
        self.log.end(delete=delete, shuffle=shuffle)
        self.logs.close()

    def acknowledge(self, start: Mapping[int, int], markers: int, files: int) -> None:
        """And wait until so many files are left."""
        self.start, self.markers = dict(start), markers
        self.log.look()
        eventually(lambda: len(os.listdir(self.log.path)) == files)

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _step(self, gone: Mapping[int, int]) -> tuple[Mapping[int, int], int]:
        with self._written:
            self._written.notify_all()
        self.gone.update(gone)
        return self.start, self.markers


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Open]:
    logs: list[Written] = []

    def open_written(*arguments: object, **named: object) -> Written:
        logs.append(Written(tmp_path, *arguments, **named))  # type: ignore[arg-type]
        return logs[-1]

    yield open_written
    for each in logs:
        each.close()


Open = Callable[..., Written]


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def recovered(parent: str, begin: Position) -> RecoveredLog:
    found = RecoveredLog(begin)
    found.read(parent)
    return found


def entries(found: RecoveredLog) -> Found:
    """Blocks with their payloads, and numbers of markers, in order."""
    assert [entry.order for entry in found.entries] == list(range(-len(found.entries), 0))
    return [
        (entry.partition, entry.number, bytes(entry.loaded().payload))
        if isinstance(entry, SequencedBlock)
        else entry.number
        for entry in found.entries
    ]


@pytest.mark.parametrize(
    "entry",
    [
        SequencedMarker(0, 7, Barrier(3, unaligned=True)),
        SequencedMarker(0, 8, Watermark(-5)),
        SequencedMarker(0, 9, EndOfPartition(2)),
        Base("", Position()),
        Base("/some/where", Position({0: 3, 5: 2**40}, 4)),
    ],
)
def test_entries_are_decoded_as_they_were_encoded(entry: SequencedMarker | Base) -> None:
    assert decode_entry(b"".join(encode_entry(entry))) == entry


def test_directories_and_files_of_a_log_are_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = Written(tmp_path / "logs" / "here")
        written.put(0, b"payload")
        written.flush()
    finally:
        os.umask(before)
    found = [tmp_path / "logs", *(tmp_path / "logs").rglob("*")]
    assert any(path.is_file() for path in found)
    assert [path for path in found if path.stat().st_mode & 0o077] == []
    written.close()


def test_block_is_decoded_as_where_it_is() -> None:
    payload = b"".join(encode_entry(SequencedBlock(1, 2**31 - 1, 2**40, 2**33, b"payload", 7, 2**32 - 1)))
    found = decode_entry(payload)
    assert isinstance(found, Stored)
    assert (found.partition, found.number, found.records, found.checksum) == (2**31 - 1, 2**40, 2**33, 2**32 - 1)
    assert payload[found.skip : found.skip + found.size] == b"payload"


@pytest.mark.parametrize("payload", [b"", b"\4short", b"\1" + bytes(50), b"\2{}", b"\2nonsense", b"\3[]", b"\7"])
def test_what_is_no_entry_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidArgument):
        decode_entry(payload)


def test_all_before_the_checkpoint_is_found_again_and_nothing_after_it(written: Open) -> None:
    one = written()
    one.put(0, b"a")
    one.mark(Barrier(1))
    one.put(1, b"")
    one.put(0, b"c" * 100_000)
    begin = one.flush()
    one.put(0, b"later")
    one.mark(Watermark(1))
    one.flush()
    found = recovered(one.log.path, begin)
    assert entries(found) == [(0, 0, b"a"), 0, (1, 0, b""), (0, 1, b"c" * 100_000)]
    assert (found.start, found.markers) == ({0: 0, 1: 0}, 0)


def test_block_is_read_from_its_file_once_it_is_written(written: Open) -> None:
    one = written()
    blocks = [one.put(n % 2, bytes([n]) * (n * 500 + 1)) for n in range(50)]
    one.flush()
    for block in blocks:
        stored = one.log.stored(block)
        assert stored is not None
        assert stored.stored
        assert stored.loaded().payload == block.payload
    unwritten = SequencedBlock(10**9, 0, 10**6, 1, b"x", 1)
    assert one.log.stored(unwritten) is unwritten
    assert NoInFlightLog(Position()).stored(unwritten) is None


def test_logs_go_on_from_each_other_and_nobody_hears_of_those_whose_time_was_over(written: Open) -> None:
    one = written()
    one.put(0, b"first")
    one.mark(Barrier(1))
    begin = one.flush()
    one.put(0, b"lost with its attempt")
    one.flush()
    two = written(attempt=1, parent=one.log.path, begin=begin)
    assert entries(two.log.recovered) == [(0, 0, b"first"), 0]
    two.put(0, b"second")
    two.put(1, b"other")
    one.put(0, b"of one that does not know that it is dead")
    one.flush()
    middle = two.flush()
    three = written(attempt=2, parent=two.log.path, begin=middle)
    assert entries(three.log.recovered) == [(0, 0, b"first"), 0, (0, 1, b"second"), (1, 0, b"other")]
    again = recovered(one.log.path, begin)  # back to the first checkpoint after all
    assert entries(again) == [(0, 0, b"first"), 0]


def test_end_is_not_repeated_and_leaves_no_gap(written: Open) -> None:
    one = written()
    one.mark(Barrier(1))
    one.put(0, b"a")
    one.mark(EndOfPartition(0))
    found = recovered(one.log.path, one.flush())
    assert entries(found) == [0, (0, 0, b"a")]
    assert found.markers == 0


def test_what_is_missing_ends_what_can_be_replayed(written: Open) -> None:
    one = written()
    for n in range(8):
        one.put(n % 2, bytes([n]) * 40_000)  # segments of 64 KiB: one block each
    begin = one.flush()
    files = sorted(Path(one.log.path).iterdir())
    assert len(files) == 8
    files[4].unlink()  # block 2 of partition 0
    found = recovered(one.log.path, begin)
    numbers = [entry[:2] for entry in entries(found) if not isinstance(entry, int)]
    assert numbers == [(1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
    assert found.start == {0: 3, 1: 0}


def test_flipped_bit_is_named_and_what_it_harmed_is_not_replayed(
    written: Open, caplog: pytest.LogCaptureFixture
) -> None:
    one = written()
    for n in range(5):
        one.put(0, b"payload %d" % n)
    begin = one.flush()
    [file] = Path(one.log.path).iterdir()
    data = bytearray(file.read_bytes())
    data[data.index(b"payload 2")] ^= 1
    file.write_bytes(data)
    found = recovered(one.log.path, begin)
    assert (entries(found), found.start) == ([], {0: 5, 1: 0})
    assert str(file) in caplog.text
    assert "damaged" in caplog.text


def test_log_may_end_anywhere(written: Open, tmp_path: Path) -> None:
    """As a killed process leaves it: recovery finds the whole entries, and each of them is right."""
    one = written()
    for n in range(4):
        one.put(0, b"payload %d" % n)
    one.flush()
    [file] = Path(one.log.path).iterdir()
    data = file.read_bytes().rstrip(b"\0")
    size = file.stat().st_size
    lengths = set()
    for end in range(1, len(data) + 1):
        torn = tmp_path / "torn" / str(end)
        torn.mkdir(parents=True)
        (torn / file.name).write_bytes(data[:end] + bytes(min(size, len(data) + 64) - end))
        whole = [recovered(str(torn), Position({0: n, 1: 0})) for n in range(5)]
        count = max(n for n in range(5) if len(entries(whole[n])) == n)
        assert entries(whole[count]) == [(0, n, b"payload %d" % n) for n in range(count)]
        lengths.add(count)
    assert lengths == {0, 1, 2, 3, 4}


def test_acknowledged_files_are_deleted_with_those_of_the_log_before(written: Open) -> None:
    one = written()
    for _ in range(4):
        one.put(0, bytes(40_000))
    begin = one.flush()
    one.close()
    two = written(attempt=1, parent=one.log.path, begin=begin)
    for _ in range(4):
        two.put(0, bytes(40_000))
    two.mark(Barrier(1))
    two.flush()
    assert len(os.listdir(one.log.path)) == 4
    two.acknowledge({0: 2, 1: 0}, 0, files=4)
    eventually(lambda: len(os.listdir(one.log.path)) == 2)
    two.acknowledge({0: 7, 1: 0}, 0, files=1)
    assert not Path(one.log.path).exists()
    assert [entry[1] for entry in entries(recovered(two.log.path, two.flush())) if not isinstance(entry, int)] == [7]


def test_oldest_files_go_when_there_is_too_much(written: Open) -> None:
    one = written()
    blocks = [one.put(0, bytes([n]) * 60_000) for n in range(30)]
    one.flush()
    eventually(lambda: one.log.size <= 1 << 20)
    assert one.gone[0] >= 10
    assert one.log.stored(blocks[0]) is None
    assert one.log.stored(blocks[-1]) is not None


def test_full_disk_fails_the_checkpoint_and_says_so(written: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one = written()
    one.put(0, b"before")
    one.flush()

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    block = one.put(0, b"after")
    with pytest.raises(StorageFailed, match="No space left") as raised:
        one.flush()
    assert one.log.path in str(raised.value)
    assert one.log.stored(block) is None
    assert one.log.pending == 0


def test_deleting_a_shuffles_log_leaves_nothing(written: Open, tmp_path: Path) -> None:
    one, other = written(), written(attempt=1)
    for each in (one, other):
        each.put(0, b"x")
        each.flush()
    one.close(delete=True)
    assert not Path(one.log.path).exists()
    assert Path(other.log.path).exists()
    other.close(delete=True, shuffle=True)
    assert not list(tmp_path.iterdir())


def test_log_that_was_not_started_touches_nothing(written: Open, tmp_path: Path) -> None:
    one = written()
    one.put(0, b"x")
    begin = one.flush()
    with closing(logs_below(tmp_path)) as logs:
        logs.open(SHUFFLE, MapAttempt(0, 1), one.log.path, begin).end(delete=True, shuffle=True)
    assert entries(recovered(one.log.path, begin)) == [(0, 0, b"x")]


def test_log_that_was_closed_before_it_began_writes_nothing(tmp_path: Path) -> None:
    """Its shuffle has ended meanwhile: who would delete it?"""
    with closing(logs_below(tmp_path)) as logs:
        log = logs.open(SHUFFLE, MapAttempt(0, 0), "", Position({0: 0}))
        log.put(SequencedBlock(1, 0, 0, 1, b"x", 1))
        log.end(delete=False, shuffle=False)
        log.start(lambda gone: ({}, 0))
        log.end(delete=False, shuffle=False)
    assert not list(tmp_path.iterdir())


def test_first_block_may_be_larger_than_a_file_and_its_log_still_goes_on_from_the_one_before(written: Open) -> None:
    one = written()
    one.put(0, b"first")
    begin = one.flush()
    two = written(attempt=1, parent=one.log.path, begin=begin)
    two.put(0, bytes(200_000))
    two.put(1, bytes(200_000))
    two.log.look()
    last = two.flush()
    assert len(os.listdir(two.log.path)) == 3
    assert [entry[:2] for entry in entries(recovered(two.log.path, last)) if not isinstance(entry, int)] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
