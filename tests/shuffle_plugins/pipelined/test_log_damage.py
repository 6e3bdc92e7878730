"""Damage to any byte of an in-flight log: a reader gets what was written, all of it, or a typed error."""

from __future__ import annotations

import builtins
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from shuffle_api.errors import BlockCorrupt, ShuffleError, StorageFailed
from shuffle_api.interfaces import OptionValue
from shuffle_api.streaming import Barrier, Position, Watermark
from shuffle_plugins.pipelined import in_flight_log
from shuffle_plugins.pipelined.entries import PayloadRange, SequencedBlock
from shuffle_plugins.pipelined.log_files import RecoveredLog
from shuffle_plugins.pipelined.subpartition import Subpartition
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene, until, write
from tests.shuffle_plugins.pipelined.test_disk_in_flight_log import Written, eventually

Said: TypeAlias = tuple[int, int, bytes] | int
"""A block, or the number of a marker."""


class Chain:
    """Two logs, the second of which goes on from the first, with all that was written before `begin`."""

    def __init__(self, root: Path) -> None:
        self.said: list[Said] = []
        self.positions = [Position({0: 0, 1: 0}, 0)]
        first = Written(root, limit=1 << 13)
        self._write(first, 0)
        second = Written(root, attempt=1, parent=first.log.path, begin=first.flush(), limit=1 << 13)
        first.put(0, b"by one whose time is over")
        first.flush()
        self.positions.append(Position({0: 3, 1: 2}, 2))
        self._write(second, 5)
        self.begin = second.flush()
        self.positions.append(self.begin)
        second.put(1, b"after the checkpoint")
        second.flush()
        self.path = second.log.path
        for each in (first, second):
            each.close()
        self.files = sorted(path for log in (first, second) for path in Path(log.log.path).iterdir())
        assert len(self.files) > 4

    def _write(self, log: Written, first: int) -> None:
        marks = 2 if first else 0
        for n in range(first, first + 5):
            block = log.put(n % 2, b"payload %d " % n * 12)
            self.said.append((block.partition, block.number, bytes(block.payload)))
            if n == first + 2:
                log.mark(Watermark(n))
                self.said.append(marks)
        log.mark(Barrier(first))
        self.said.append(marks + 1)

    def kept(self) -> RecoveredLog:
        kept = RecoveredLog(self.begin)
        kept.read(self.path)
        return kept

    def replayed(self, kept: RecoveredLog, position: Position) -> list[Said]:
        """What a reader at `position` gets. Raises ShuffleError."""
        subpartition = Subpartition(
            range(2), kept.start, keep=True, markers=kept.markers, begin=self.begin, damage=kept.damage
        )
        for entry in kept.entries:
            subpartition.restore(entry)
        subpartition.rewind(position)
        return [
            (entry.partition, entry.number, bytes(entry.loaded().payload))
            if isinstance(entry, SequencedBlock)
            else entry.number
            for entry in subpartition.unsent
        ]

    def wanted(self, position: Position) -> list[Said]:
        return [
            said
            for said in self.said
            if (said >= position.markers if isinstance(said, int) else said[1] >= position.blocks[said[0]])
        ]

    def refused(self, kept: RecoveredLog) -> list[int]:
        """The positions at which a reader is refused; at all others it gets just what was written."""
        refused = []
        for i, position in enumerate(self.positions):
            try:
                found = self.replayed(kept, position)
            except (StorageFailed, BlockCorrupt) as error:
                refused.append(i)
                named = all(what in error.message for what in ("cannot be replayed", str(Path(self.path).parent)))
                assert named, error.message  # noqa: PT017
            else:
                assert found == self.wanted(position)
        return refused


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    monkeypatch.setattr(in_flight_log, "_SMALLEST_SEGMENT", 512)
    return Chain(tmp_path)


def flipped(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def zeroed(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 7):
        end = min(len(data), at + 40)
        if any(data[at:end]):
            yield data[:at] + bytes(end - at) + data[end:]


def cut(data: bytes) -> Iterator[bytes]:
    yield from (data[:end] for end in range(0, len(data), 3))


def test_without_damage_all_is_replayed(chain: Chain) -> None:
    kept = chain.kept()
    assert (chain.refused(kept), kept.damage) == ([], "")


@pytest.mark.parametrize("harm", [flipped, zeroed, cut])
def test_what_is_damaged_before_a_writer_is_restored_is_refused(
    chain: Chain, harm: Callable[[bytes], Iterator[bytes]]
) -> None:
    found = set()
    for path in chain.files:
        whole = path.read_bytes()
        for data in harm(whole):
            path.write_bytes(data)
            refused = chain.refused(chain.kept())
            assert 2 not in refused  # it needs nothing of the log
            found.add(tuple(refused))
        path.write_bytes(whole)
    assert found == {(), (0,), (0, 1)}


def test_every_byte_of_what_a_reader_needs_counts(chain: Chain) -> None:
    first = chain.files[0]
    whole = first.read_bytes()
    for data in flipped(whole.rstrip(b"\0")):
        first.write_bytes(data)
        assert chain.refused(chain.kept()) == [0]


def test_missing_file_is_named(chain: Chain) -> None:
    for path in chain.files:
        whole = path.read_bytes()
        path.unlink()
        kept = chain.kept()
        refused = _refused(chain, kept)
        assert (2 in refused, 0 in refused) == (False, True)
        path.write_bytes(whole)


def _refused(chain: Chain, kept: RecoveredLog) -> list[int]:
    """As `Chain.refused`, but a file that is missing at the beginning may have been deleted as it should be."""
    refused = []
    for i, position in enumerate(chain.positions):
        try:
            found = chain.replayed(kept, position)
        except ShuffleError:
            refused.append(i)
        else:
            assert found == chain.wanted(position)
    return refused


@pytest.mark.parametrize("harm", [flipped, zeroed, cut])
def test_what_is_damaged_after_a_writer_was_restored_is_found_when_it_is_replayed(
    chain: Chain, harm: Callable[[bytes], Iterator[bytes]]
) -> None:
    kept, found = chain.kept(), set()
    for path in chain.files:
        whole = path.read_bytes()
        for data in harm(whole):
            path.write_bytes(data)
            refused = chain.refused(kept)
            assert 2 not in refused
            found.add(tuple(refused))
        path.write_bytes(whole)
    assert found == {(), (0,), (0, 1)}


def test_error_names_the_file_the_offset_and_the_block(chain: Chain) -> None:
    kept = chain.kept()
    path = chain.files[0]
    whole = path.read_bytes()
    at = whole.index(b"payload 0")
    path.write_bytes(whole[: at + 3] + b"?" + whole[at + 4 :])
    with pytest.raises(BlockCorrupt) as raised:
        chain.replayed(kept, chain.positions[0])
    for named in (str(path), f"offset {at}", "block 0 of partition 0"):
        assert named in raised.value.message
    path.write_bytes(whole[:at])
    with pytest.raises(StorageFailed, match=rf"{path} has 0 bytes of \d+ at offset {at}: it was cut"):
        chain.replayed(kept, chain.positions[0])
    with pytest.raises(
        StorageFailed, match=r"block 0 of partition 0 cannot be replayed, only those from 3: .* damaged|no"
    ):
        chain.replayed(chain.kept(), chain.positions[0])


def test_disk_that_cannot_be_read_is_an_error(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = chain.kept()

    def failing(*arguments: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", failing)
    assert chain.refused(kept) == [0, 1]
    monkeypatch.undo()
    opened = builtins.open

    class Broken:
        def __init__(self, path: Path) -> None:
            self._file = opened(path, "rb")

        def read(self, size: int = -1) -> bytes:
            if self._file.tell() > 100:
                failing()
            return self._file.read(size)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    def broken(path: Path, *arguments: Any, **named: Any) -> Any:
        return Broken(path) if path == chain.files[0] else opened(path, *arguments, **named)

    monkeypatch.setattr(builtins, "open", broken)
    found = chain.kept()
    monkeypatch.undo()
    assert "Input/output error" in found.damage
    assert chain.refused(found) == [0]


def test_reader_in_another_process_verifies_the_checksum_that_was_made_at_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the producer does with what it has read from its file."""

    def unverified(place: PayloadRange, size: int, checksum: int, block: str) -> bytes:
        return bytes(size)

    monkeypatch.setattr(PayloadRange, "read", unverified)
    options: dict[str, OptionValue] = {"log_dir": str(tmp_path), "log_bytes": 0, "local": False, "timeout": 120.0}
    with Scene(1, 1, {"guarantee": "at_least_once", **options}) as scene, scene.writer() as writer:
        write(writer, range(100))
        writer.emit(Barrier(1))
        writer.state(1, WAIT)
        with scene.reader() as reader:
            until(reader, Barrier)
        eventually(lambda: writer.statistics().logged_bytes == 0)
        with scene.reader(attempt=1) as successor, pytest.raises(BlockCorrupt, match="does not match its checksum"):
            until(successor, Barrier)


PROGRAM = """
import os, sys
from pathlib import Path
from shuffle_api import MapAttempt
from shuffle_api.errors import ShuffleError
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Barrier, Captured
from shuffle_plugins.pipelined import DataBlock, PipelinedShuffle

root, local, harm = sys.argv[1:]
options = {"guarantee": "at_least_once", "log_dir": root, "log_bytes": "0", "local": local, "timeout": "120"}

def records(reader, count):
    found = []
    while len(found) < count:
        event = reader.poll(120)
        if isinstance(event, DataBlock):
            found += [bytes(record) for record in unpack_records(event.payload)]
    return found

with PipelinedShuffle(options) as plugin, plugin.master("damaged") as master:
    handle = master.register_shuffle(partitions=2, maps=1)
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        for number in range(200):
            writer.write(number % 2, b"account %04d balance 1000" % number)
        writer.emit(Barrier(1))
        writer.state(1, timeout=120)
        for partition in range(2):
            with plugin.reader(handle, range(partition, partition + 1)) as reader:
                assert len(records(reader, 100)) == 100
        while writer.statistics().logged_bytes:  # it is in the file only
            pass
        [file] = [path for path in Path(root).rglob("*") if path.is_file()]
        if harm == "flip":
            data = file.read_bytes()
            with open(file, "r+b") as opened:
                opened.seek(data.index(b"account 0006"))
                opened.write(b"b")
        else:
            os.truncate(file, int(harm))
        with plugin.reader(handle, range(1), attempt=1) as successor:
            try:
                print("got", len(records(successor, 100)))
            except ShuffleError as error:
                print(type(error).__name__, error.message, flush=True)
        if harm == "flip":
            with plugin.reader(handle, range(1, 2), attempt=1) as other:
                assert records(other, 100) == [b"account %04d balance 1000" % n for n in range(1, 200, 2)]
                writer.write(1, b"goes on")
                writer.flush()
                assert records(other, 1) == [b"goes on"]
        writer.emit(Barrier(2))
        assert writer.state(2, timeout=120).records >= 200
print("done")
"""


@pytest.mark.parametrize("local", ["true", "false"])
@pytest.mark.parametrize(
    ("harm", "error"),
    [("flip", "BlockCorrupt"), ("0", "StorageFailed"), ("100", "StorageFailed"), ("3000", "StorageFailed")],
)
def test_successor_gets_a_typed_error_and_no_process_is_killed(
    tmp_path: Path, local: str, harm: str, error: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), local, harm], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    said, done = run.stdout.splitlines()
    assert said.startswith(error)
    assert "block 0 of partition 0 cannot be replayed" in said
    assert str(tmp_path) in said
    assert done == "done"
