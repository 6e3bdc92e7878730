"""The files of a shuffle, and what is atomic about them.

    <root>/<run>/                        of one run of an application
        <shuffle>.<generation>/spec.json the directory appears whole, by rename
            <map>.<attempt>.<random>     data: blocks back to back
            <map>.json                   the winner: its data file and its blocks; appears whole, by rename
            lock                         held while a winner is chosen

A directory to be removed is renamed first, so that readers never see half of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shuffle_api import MapAttempt, MapOutput, ShuffleSpec, Totals
from shuffle_api.errors import BlockCorrupt, MapOutputLost, UnknownShuffle

WORKER = "folder"


class Block(NamedTuple):
    """`records` records of one partition at `offset` of the data file."""

    partition: int
    offset: int
    length: int
    records: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Winner:
    """What a commit states: the attempt, its data file, its blocks in the order written."""

    attempt: MapAttempt
    file: str
    blocks: tuple[Block, ...]

    @property
    def output(self) -> MapOutput:
        size = sum(block.length for block in self.blocks)
        return MapOutput(
            self.attempt, WORKER, Totals(len(self.blocks), size, size, sum(block.records for block in self.blocks))
        )


def remove(directory: Path) -> None:
    """Remove an application's or a shuffle's directory. Removing what is not there is a no-op."""
    going = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    try:
        directory.rename(going)
    except FileNotFoundError:
        return
    shutil.rmtree(going, ignore_errors=True)  # a late writer may add a file meanwhile; nobody finds it


class ShuffleFiles:
    """The files of one shuffle."""

    def __init__(self, root: Path, spec: ShuffleSpec) -> None:
        self._spec = spec
        self._directory = root / spec.id.app / f"{spec.id.shuffle}.{spec.id.generation}"

    def register(self) -> None:
        """Make the directory of a shuffle whose generation nobody else has."""
        part = self._directory.with_name(f".{self._directory.name}")
        part.mkdir()
        (part / "lock").touch()
        (part / "spec.json").write_text(self._properties())
        part.rename(self._directory)

    def unregister(self) -> None:
        """Remove all data of the shuffle."""
        remove(self._directory)

    def check_registered(self) -> None:
        """:raises UnknownShuffle: it is not."""
        if not self._directory.is_dir():
            raise UnknownShuffle("it has no directory", shuffle=self._spec.id)

    def data_file(self, attempt: MapAttempt) -> Path:
        """A name for what an attempt writes. Nobody else has it."""
        self.check_registered()
        return self._directory / f"{attempt.map}.{attempt.attempt}.{uuid.uuid4().hex}"

    def commit(self, stated: Winner) -> MapOutput:
        """Make this attempt the winner of its map, or return who is.

        :raises UnknownShuffle: the shuffle is gone.
        :raises MapOutputLost: this very attempt was the winner and its data is gone.
        """
        with self._locked():
            had = self._winner(stated.attempt.map)
            if had is not None and not self._is_lost(had):
                return had.output
            if had is not None and had.attempt == stated.attempt:
                raise self._lost(had)
            part = self._directory / f".{uuid.uuid4().hex}"
            part.write_text(json.dumps([list(_numbers(stated.attempt)), stated.file, stated.blocks]))
            part.rename(self._directory / f"{stated.attempt.map}.json")
        return stated.output

    def outputs(self) -> list[MapOutput]:
        """The winners whose data is there, ascending by map.

        :raises UnknownShuffle: the shuffle is gone.
        """
        self.check_registered()
        winners = (self._winner(map) for map in range(self._spec.maps))
        return [winner.output for winner in winners if winner is not None and not self._is_lost(winner)]

    def winners(self, maps: range) -> list[Winner]:
        """The winner of each of the maps.

        :raises UnknownShuffle, MapOutputNotWritten, MapOutputLost: there is none, of at least one map.
        """
        self.check_registered()
        found = [winner for winner in map(self._winner, maps) if winner is not None]
        if lost := [winner for winner in found if self._is_lost(winner)]:
            raise self._lost(lost[0])
        self._spec.check_written(maps, (winner.attempt.map for winner in found))
        return found

    def payloads(self, winner: Winner, partitions: range) -> Iterator[tuple[Block, bytes]]:
        """The blocks of these partitions, each compared with its checksum.

        :raises MapOutputLost, BlockCorrupt: the data is gone, or is not what was written.
        """
        wanted = [block for block in winner.blocks if block.partition in partitions]
        if not wanted:
            return
        try:
            file = (self._directory / winner.file).open("rb")
        except FileNotFoundError:
            self.check_registered()
            raise self._lost(winner) from None
        with file:
            for block in wanted:
                payload = os.pread(file.fileno(), block.length, block.offset)
                if len(payload) != block.length or zlib.crc32(payload) != block.crc32:
                    raise BlockCorrupt(
                        f"{winner.file} at byte {block.offset}", shuffle=self._spec.id, output=winner.attempt
                    )
                yield block, payload

    def lose(self, map: int) -> None:
        """Remove the data of a map's winner, as somebody with `rm` would."""
        winner = self._winner(map)
        if winner is not None:
            (self._directory / winner.file).unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = (self._directory / "lock").open("rb")
        except FileNotFoundError:
            raise UnknownShuffle("it has no directory", shuffle=self._spec.id) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for a look and a rename
            self.check_registered()
            yield

    def _winner(self, map: int) -> Winner | None:
        try:
            (number, attempt), file, blocks = json.loads((self._directory / f"{map}.json").read_text())
        except FileNotFoundError:
            return None
        return Winner(MapAttempt(number, attempt), file, tuple(Block(*block) for block in blocks))

    def _is_lost(self, winner: Winner) -> bool:
        return not (self._directory / winner.file).exists()

    def _lost(self, winner: Winner) -> MapOutputLost:
        return MapOutputLost(f"{winner.file} is gone", worker=WORKER, shuffle=self._spec.id, output=winner.attempt)

    def _properties(self) -> str:
        return json.dumps([self._spec.partitions, self._spec.maps, self._spec.codec, self._spec.content])


def _numbers(attempt: MapAttempt) -> tuple[int, int]:
    return attempt.map, attempt.attempt
