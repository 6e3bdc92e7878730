"""Control messages of the plugin's channels: JSON objects, checked where they arrive.

Blocks are numbered per map and partition, markers per map. A POSITION is how many of each a reader has:
`[[[partition, block], ...], marker]`. A reader opens a channel `output` with the metadata `{"shuffle": [app, number],
"output": [map, attempt], "partitions": [start, stop], "reader": name, "epoch": attempt, "position": POSITION or null,
"heads": true}`; with `heads` it puts back heads of Arrow blocks (stream_head.py).

From the producer:
* `{"hello": POSITION}`: what comes first; with `"heads": true` blocks may come without their heads.
* `{"marks": [MARK, ...]}`: markers behind the blocks before it. A MARK is `[number, "barrier", checkpoint, unaligned]`
  (and the parallelism as a fifth item where it changes), `[number, "watermark", time]`, `[number, "idle"]`, or
  `[number, "end", map, [[partition, blocks], ...]]`, with the number of blocks.

From the reader:
* `{"ack": POSITION}`: earlier items may be dropped.
* `{"window": bytes}`: the bytes worth having under way.

A task opens a channel `directory` to its driver: `{"id": n, "call": "terms" | "watch" | "bind" | "fail" | "commit",
"shuffle": [app, number], ...}`, answered by `{"id": n, "answer": ...}` or `{"id": n, "error": base64 of an Error}`;
changes of a watched shuffle come as `{"news": [app, number], "event": [...]}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import ShuffleId
from shuffle_api.streaming import Barrier, EndOfPartition, Idle, Marker, Position, Watermark
from shuffle_plugins.pipelined.entries import SequencedMarker

Fields: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


def encode(**fields: Any) -> bytes:
    """A message."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(message: bytes) -> Fields:
    """:raises InvalidArgument: it is no message of ours."""

    def load() -> Fields:
        fields = json.loads(message)
        if not isinstance(fields, dict):
            raise TypeError("not an object")
        return fields

    return checked(load, message)


def checked(parse: Callable[[], T], message: object) -> T:
    """What `parse` finds in a message.

    :raises InvalidArgument: it finds something else than it expects.
    """
    try:
        return parse()
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        shown = repr(message)[:200]
        raise InvalidArgument(
            f"malformed message {shown}: {error!r}", remedy="use the same version of flight-shuffle on both sides"
        ) from None


def encode_marks(marks: list[SequencedMarker], numbers: Callable[[], dict[int, int]]) -> bytes:
    """Markers, in order. An end carries how many blocks each partition had in all."""
    return encode(marks=[_mark(mark, numbers) for mark in marks])


def _mark(mark: SequencedMarker, numbers: Callable[[], dict[int, int]]) -> list[Any]:
    marker = mark.marker
    if isinstance(marker, Barrier):
        rescaled = [marker.parallelism] if marker.parallelism else []
        return [mark.number, "barrier", marker.checkpoint, marker.unaligned, *rescaled]
    if isinstance(marker, Watermark):
        return [mark.number, "watermark", marker.time]
    if isinstance(marker, EndOfPartition):
        return [mark.number, "end", marker.map, list(numbers().items())]
    return [mark.number, "idle"]


def decode_mark(fields: list[Any]) -> tuple[SequencedMarker, dict[int, int]]:
    """A marker, and with an end the number of blocks by partition."""

    def parse() -> tuple[SequencedMarker, dict[int, int]]:
        number, kind, *rest = fields
        marker: Marker
        totals: dict[int, int] = {}
        if kind == "barrier":
            marker = Barrier(int(rest[0]), bool(rest[1]), int(rest[2]) if len(rest) > 2 else 0)
        elif kind == "watermark":
            marker = Watermark(int(rest[0]))
        elif kind == "end":
            marker, totals = EndOfPartition(int(rest[0])), _pairs(rest[1])
        elif kind == "idle":
            marker = Idle()
        else:
            raise ValueError(f"no such marker: {kind}")
        return SequencedMarker(0, int(number), marker), totals

    return checked(parse, fields)


def shuffle_fields(shuffle: ShuffleId) -> list[str | int]:
    """A shuffle's id, as part of a message: the arguments of `ShuffleId`."""
    return [shuffle.app, shuffle.shuffle, shuffle.generation]


def position_fields(position: Position | None) -> Any:
    """A position, as part of a message."""
    return None if position is None else [list(position.blocks.items()), position.markers]


def parse_position(fields: Any) -> Position | None:
    """:raises InvalidArgument: it is none."""
    if fields is None:
        return None
    return checked(lambda: Position(_pairs(fields[0]), int(fields[1])), fields)


def _pairs(fields: Any) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in fields}
