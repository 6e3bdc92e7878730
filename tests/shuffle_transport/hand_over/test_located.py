"""A pull out of files: what is not what was asked for goes over the wire, in its place; what is damaged is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from shuffle_api.errors import BlockCorrupt, MapOutputLost, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_transport import messages
from shuffle_transport.checksum import crc32c
from shuffle_transport.flight_client import Pulled
from shuffle_transport.hand_over.located import LOCATED_ROW, LocatedPull
from shuffle_transport.proto import flight_shuffle_pb2 as pb

OUTPUTS = [MapAttempt(n, 0) for n in range(4)]
PAYLOADS = [b"first block", b"second"]


class Wire:
    """A pull that yields the name of each output it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Sequence[MapAttempt]] = []
        self.cancelled = 0

    def __call__(self, outputs: Sequence[MapAttempt]) -> Wire:
        self.asked.append(list(outputs))
        return self

    def __iter__(self) -> Iterator[Pulled | ShuffleError]:
        for output in self.asked[-1]:
            yield Pulled(output, 0, 4, 1, memoryview(b"wire"))

    def cancel(self) -> None:
        self.cancelled += 1


def located(path: Path, output: MapAttempt, **changes: int) -> pb.LocatedBlocks:
    """Both payloads, in partitions 0 and 1; `changes` are to the second row."""
    path.write_bytes(b"".join(PAYLOADS))
    rows = np.zeros(2, LOCATED_ROW)
    for n, payload in enumerate(PAYLOADS):
        rows[n] = (n, crc32c(payload), len(payload), len(payload), 1, n * len(PAYLOADS[0]))
    for name, value in changes.items():
        rows[name][1] = value
    return pb.LocatedBlocks(output=messages.attempt_of(output), path=str(path), index=rows.tobytes())


def read(found: list[pb.LocatedBlocks], wire: Wire, served: list[int]) -> list[tuple[int, bytes]]:
    items = []
    for item in LocatedPull(OUTPUTS, range(2), found, wire, served.append):
        assert isinstance(item, Pulled)
        items.append((item.output.map, bytes(item.payload)))
    return items


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": 2},
        {"partition": -1},
        {"length": -1},
        {"raw_length": 1},
        {"records": -1},
        {"offset": -5},
        {"offset": 1 << 40},
    ],
)
def test_what_was_not_asked_for_is_pulled_in_its_place(changes: dict[str, int], tmp_path: Path) -> None:
    wire, served = Wire(), list[int]()
    lost = pb.LocatedBlocks(
        output=messages.attempt_of(OUTPUTS[2]), error=messages.error_message(MapOutputLost("it is not here"))
    )
    found = [located(tmp_path / "0", OUTPUTS[0]), located(tmp_path / "1", OUTPUTS[1], **changes), lost]
    own = [(0, payload) for payload in PAYLOADS]
    assert read(found, wire, served) == [*own, (1, b"wire"), (2, b"wire"), (3, b"wire")]
    assert wire.asked == [OUTPUTS[1:]]
    assert wire.cancelled == 1
    assert served == [sum(map(len, PAYLOADS))]


def test_an_index_that_ends_early_is_pulled(tmp_path: Path) -> None:
    whole = located(tmp_path / "0", OUTPUTS[0])
    cut = pb.LocatedBlocks(output=whole.output, path=whole.path, index=whole.index[:-1])
    last = located(tmp_path / "3", OUTPUTS[3])
    wire, served = Wire(), list[int]()
    assert read([cut, last], wire, served) == [(n, b"wire") for n in range(3)] + [(3, each) for each in PAYLOADS]
    assert wire.asked == [OUTPUTS[:3]]


def test_a_block_that_is_not_what_its_checksum_says_is_named(tmp_path: Path) -> None:
    found = [located(tmp_path / str(output.map), output) for output in OUTPUTS]
    (tmp_path / "2").write_bytes(b"first block" + b"secOnd")
    items = iter(LocatedPull(OUTPUTS, range(2), found, Wire(), lambda _: None))
    assert len([next(items) for _ in range(5)]) == 5
    with pytest.raises(BlockCorrupt, match="partition 1") as error:
        next(items)
    assert error.value.output == OUTPUTS[2]
