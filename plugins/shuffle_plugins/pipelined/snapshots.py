"""Snapshots of a consumer group: what each of its tasks holds at a checkpoint, by key group, and where it stands."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shuffle_api.errors import StorageFailed
from shuffle_api.streaming import InFlight, ReaderState
from shuffle_plugins.pipelined import wire


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task of a group at a checkpoint.

    :ivar key_groups: that it read up to there.
    :ivar parallelism: of the group from there on.
    :ivar generation: likewise; rises with each rescaling.
    :ivar states: by key group, those that have one.
    """

    key_groups: range
    parallelism: int
    generation: int
    reader: ReaderState
    states: Mapping[int, bytes]

    def encode(self) -> bytes:
        """A line of JSON, the payloads of the blocks in flight, the states."""
        reader, blocks = self.reader, self.reader.blocks
        head = {
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "parallelism": self.parallelism,
            "generation": self.generation,
            "checkpoint": reader.checkpoint,
            "positions": [[map, wire.position_fields(position)] for map, position in reader.positions.items()],
            "blocks": [[each.map, each.partition, each.number, each.records, len(each.payload)] for each in blocks],
            "states": [[group, len(state)] for group, state in self.states.items()],
        }
        return b"".join([json.dumps(head).encode(), b"\n", *(each.payload for each in blocks), *self.states.values()])

    @classmethod
    def decode(cls, data: bytes) -> Snapshot:
        """:raises StorageFailed: it is not what `encode` made."""
        line, _, rest = data.partition(b"\n")
        try:
            head: dict[str, Any] = json.loads(line)
            at = 0

            def piece(size: int) -> bytes:
                nonlocal at
                at += size
                return rest[at - size : at]

            blocks = [
                InFlight(map, partition, number, records, piece(size))
                for map, partition, number, records, size in head["blocks"]
            ]
            states = {int(group): piece(size) for group, size in head["states"]}
            positions = {int(map): wire.parse_position(fields) for map, fields in head["positions"]}
            found = {map: position for map, position in positions.items() if position is not None}
            reader = ReaderState(int(head["checkpoint"]), found, tuple(blocks))
            snapshot = cls(range(*head["key_groups"]), head["parallelism"], head["generation"], reader, states)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageFailed(f"a snapshot of {len(data)} bytes is malformed: {error!r}") from None
        if at != len(rest):
            raise StorageFailed(f"a snapshot of {len(data)} bytes has {len(rest)} bytes of payload, not {at}")
        return snapshot


class SnapshotStore(Protocol):
    """Where the tasks of a group put their snapshots, and find those of the others. Thread-safe; pickle it."""

    def put(self, checkpoint: int, key_groups: range, snapshot: bytes) -> bool:
        """Keep it, whole or not at all. False: there is one of this checkpoint and these key groups, and it stays."""

    def get(self, checkpoint: int, key_groups: range) -> bytes:
        """One that is there."""

    def list(self) -> Mapping[int, list[range]]:
        """Of which key groups there are snapshots, by checkpoint."""


class DirectorySnapshots:
    """Snapshots as files of a directory that all tasks of the group share.

    Nothing is deleted by itself: see `delete_before` and `delete_after`.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def put(self, checkpoint: int, key_groups: range, snapshot: bytes) -> bool:
        path = self._path(checkpoint, key_groups)
        new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new.open("wb") as file:
                file.write(snapshot)
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(new)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed(f"snapshot {checkpoint} of key groups {key_groups} is not written", error) from None
        finally:
            new.unlink(missing_ok=True)

    def get(self, checkpoint: int, key_groups: range) -> bytes:
        try:
            return self._path(checkpoint, key_groups).read_bytes()
        except OSError as error:
            raise self._failed(f"snapshot {checkpoint} of key groups {key_groups} is not read", error) from None

    def list(self) -> Mapping[int, list[range]]:
        found: dict[int, list[range]] = {}
        for path in self._directory.glob("*/[0-9]*-[0-9]*"):
            start, _, stop = path.name.partition("-")
            found.setdefault(int(path.parent.name), []).append(range(int(start), int(stop)))
        return found

    def delete_before(self, checkpoint: int) -> None:
        """Nobody goes back behind it."""
        self._delete(range(checkpoint))

    def delete_after(self, checkpoint: int) -> None:
        """Producers go back to it: consumers do so as well."""
        self._delete(range(checkpoint + 1, max(self.list(), default=0) + 1))

    def _delete(self, checkpoints: range) -> None:
        for checkpoint, there in self.list().items():
            if checkpoint in checkpoints:
                for key_groups in there:
                    self._path(checkpoint, key_groups).unlink(missing_ok=True)

    def _path(self, checkpoint: int, key_groups: range) -> Path:
        return self._directory / str(checkpoint) / f"{key_groups.start}-{key_groups.stop}"

    def _failed(self, what: str, error: OSError) -> StorageFailed:
        return StorageFailed(f"{what} in {self._directory}: {error.strerror}")
