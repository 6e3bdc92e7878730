"""Operations as bytes: what a log of them, or a snapshot, holds.

An operation is a tag byte and what follows. A commit, which is nearly all there is, is a row of numbers and two names;
every other operation is JSON of its fields, so that a new one needs no code here.

The bytes are trusted no further than their shape: whoever stores or sends them adds the checksum.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.operations import CommitMapOutput, Operation, RegisterShuffle
from shuffle_api.slots_json import COMPACT_JSON, fields_of
from shuffle_api.values import MapOutput, Totals

JSON, COMMIT = 0x4A, 0x43
_JSON = struct.Struct("<BI")  # tag, bytes of JSON
_COMMIT = struct.Struct("<BBBqqqqQQQQI")  # tag, bytes of app and of worker, shuffle, generation, map, attempt, totals

_KINDS: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(Operation)}


def encode(operation: Operation) -> bytes:
    """The bytes of one operation; they say themselves where they end.

    :raises InvalidArgument: a number of a commit does not fit into 64 bits (its digest: 32), or a name is too long.
    """
    if type(operation) is not CommitMapOutput:
        data = COMPACT_JSON.encode({"op": type(operation).__name__, **fields_of(operation)}).encode()
        return _JSON.pack(JSON, len(data)) + data
    output, attempt = operation.output, operation.output.output
    return encode_commit(operation.shuffle, output.worker, attempt.map, attempt.attempt, output.totals.numbers)


def encode_commit(id: ShuffleId, worker: str, map: int, attempt: int, totals: Sequence[int]) -> bytes:
    """The bytes of a commit, of which there may be millions.

    :param totals: their `numbers`.
    :raises InvalidArgument: as `encode`.
    """
    app, name = id.app.encode(), worker.encode()
    try:
        head = _COMMIT.pack(COMMIT, len(app), len(name), id.shuffle, id.generation, map, attempt, *totals)
    except struct.error as error:
        raise InvalidArgument(
            f"{Totals(*totals)} or worker {worker!r} cannot be recorded: {error}",
            remedy="totals are counts below 2**64 and a digest below 2**32, a worker id has 64 characters at most",
            shuffle=id,
            output=MapAttempt(map, attempt),
        ) from error
    return head + app + name


Commit = Callable[[ShuffleId, str, int, int, Sequence[int]], bool]
"""Applies the commit of a shuffle, at a worker, of a map, by an attempt, with the totals blocks, bytes, raw bytes,
records and digest; False: it is to be applied as an operation."""


def _kept(*commit: object) -> bool:
    return False


class Decoder:
    """Makes operations of bytes. Equal names become one object, since a registry holds them a million times."""

    def __init__(self) -> None:
        self._ids: dict[tuple[bytes, int, int], ShuffleId] = {}
        self._workers: dict[bytes, str] = {}

    def decode(self, data: bytes) -> Iterator[Operation]:
        """The operations that `data` is made of, back to back.

        :raises InvalidArgument: it is not, or holds an operation that this version does not know.
        """
        return typing.cast(Iterator[Operation], self.replay(data, _kept))

    def replay(self, data: bytes, commit: Commit) -> Iterator[Operation | None]:
        """As `decode`, with None for each commit that `commit` has applied: no objects are made of it."""
        at, end = 0, len(data)
        while at < end:
            if data[at] == COMMIT:
                names = at + _COMMIT.size
                if names > end:
                    raise _short(end - at)
                _, app_size, worker_size, number, generation, map, attempt, *totals = _COMMIT.unpack_from(data, at)
                middle = names + app_size
                at = middle + worker_size
                if at > end:
                    raise _short(end - names + _COMMIT.size)
                key = data[names:middle], number, generation
                id = self._ids.get(key)
                if id is None:
                    id = self._ids[key] = ShuffleId(_text(key[0]), number, generation)
                name = data[middle:at]
                worker = self._workers.get(name)
                if worker is None:
                    worker = self._workers[name] = _text(name)
                if commit(id, worker, map, attempt, totals):
                    yield None
                else:
                    yield CommitMapOutput(id, MapOutput(MapAttempt(map, attempt), worker, Totals(*totals)))
            elif data[at] == JSON:
                operation, at = _other(data, at)
                if isinstance(operation, RegisterShuffle):  # the key of its registry, which is then found by identity
                    id = operation.spec.id
                    self._ids[id.app.encode(), id.shuffle, id.generation] = id
                yield operation
            else:
                raise InvalidArgument(f"an operation with the unknown tag {data[at]:#04x}", remedy=_REMEDY)


_REMEDY = "read it with the release of flight-shuffle that wrote it"


def _other(data: bytes, at: int) -> tuple[Operation, int]:
    begin = at + _JSON.size
    end = begin + (_JSON.unpack_from(data, at)[1] if begin <= len(data) else 0)
    if begin > len(data) or end > len(data):
        raise _short(len(data) - at)
    try:
        fields = json.loads(data[begin:end])
        kind = _KINDS[fields.pop("op")]
        return typing.cast(Operation, _build(kind, fields)), end
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"no operation: {data[begin:end][:200]!r} ({error})", remedy=_REMEDY) from error


def _build(kind: Any, value: Any) -> Any:
    """A (nested) dataclass of its fields."""
    if not dataclasses.is_dataclass(kind):
        return tuple(value) if isinstance(value, list) else value
    hints = typing.get_type_hints(kind)
    return typing.cast(Any, kind)(**{name: _build(hints[name], field) for name, field in value.items()})


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the name {data!r} is not UTF-8", remedy=_REMEDY) from error


def _short(size: int) -> InvalidArgument:
    return InvalidArgument(f"the last {size} bytes are no whole operation", remedy=_REMEDY)
