"""A pull out of files: other outputs than those wanted go over the wire, in place; damaged blocks are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from google.protobuf.message import Message

from shuffle_api.errors import BlockCorrupt, MapOutputLost, ProtocolMismatch, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_transport import messages
from shuffle_transport.checksum import crc32c
from shuffle_transport.flight_client import FlightClient, Pulled
from shuffle_transport.local_files.access import ACTION_SECONDS, LocalFileAccess
from shuffle_transport.local_files.index_cache import LOCATED_ROW, LocatedOutputs, OutputIndex, OutputIndexCache
from shuffle_transport.local_files.local_fetch import LocalFetch, locate_blocks
from shuffle_transport.proto import flight_shuffle_pb2 as pb

SHUFFLE = ShuffleId("app", 3)
OUTPUTS = [MapAttempt(n, 0) for n in range(4)]
PAYLOADS = [b"first block", b"second"]
NOTHING: Mapping[str, int] = MappingProxyType({})


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


def located(path: Path, changes: Mapping[str, int] = NOTHING, *, whole: bool = False) -> OutputIndex:
    """Both payloads, in partitions 0 and 1; `changes` are to the second row."""
    path.write_bytes(b"".join(PAYLOADS))
    rows = np.zeros(2, LOCATED_ROW)
    for n, payload in enumerate(PAYLOADS):
        rows[n] = (n, crc32c(payload), len(payload), len(payload), 1, n * len(PAYLOADS[0]))
    for name, value in changes.items():
        rows[name][1] = value
    return OutputIndex(str(path), rows, whole)


class Reading:
    """Pulls of partitions of `OUTPUTS`, which remember what they find out."""

    def __init__(self, found: dict[MapAttempt, OutputIndex], known: OutputIndexCache | None = None) -> None:
        self.known = OutputIndexCache() if known is None else known
        self.wire, self.served = Wire(), list[tuple[str, int, int]]()
        self._located = LocatedOutputs(self.known, "w", SHUFFLE, found)

    def again(self) -> Reading:
        """The next reader, which has what is known."""
        found = {output: self.known.find("w", SHUFFLE, output) for output in OUTPUTS}
        return Reading({output: index for output, index in found.items() if index is not None}, self.known)

    def items(self, partitions: range = range(2)) -> Iterator[Pulled | ShuffleError]:
        return iter(LocalFetch(OUTPUTS, partitions, self._located, self.wire, self._serve))

    def all(self, partitions: range = range(2)) -> list[tuple[int, bytes]]:
        return [(item.output.map, bytes(item.payload)) for item in self.items(partitions) if isinstance(item, Pulled)]

    def _serve(self, index: OutputIndex, blocks: int, size: int) -> None:
        self.served.append((Path(index.path).name, blocks, size))


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
    reading = Reading(
        {OUTPUTS[0]: located(tmp_path / "0"), OUTPUTS[1]: located(tmp_path / "1", changes)}
    )  # the other two are not in files
    own = [(0, payload) for payload in PAYLOADS]
    assert reading.all() == [*own, (1, b"wire"), (2, b"wire"), (3, b"wire")]
    assert reading.wire.asked == [OUTPUTS[1:]]
    assert reading.wire.cancelled == 1
    assert reading.served == [("0", 2, sum(map(len, PAYLOADS)))]


def test_what_lies_between_two_in_files_is_pulled_between_them(tmp_path: Path) -> None:
    reading = Reading({OUTPUTS[3]: located(tmp_path / "3")})
    assert reading.all() == [(n, b"wire") for n in range(3)] + [(3, each) for each in PAYLOADS]
    assert reading.wire.asked == [OUTPUTS[:3]]


@pytest.mark.parametrize("index", [bytes(39), bytes(2 * 40 + 1)])
def test_an_index_that_ends_early_is_none(index: bytes) -> None:
    with pytest.raises(ProtocolMismatch):
        OutputIndex.of(pb.LocatedBlocks(path="x", index=index))


class Telling(LocalFileAccess):
    """The hand-over to a worker that says these things, in the order in which it is asked."""

    def __init__(self, *said: pb.LocatedBlocks) -> None:
        super().__init__("app")
        self._said, self.failures = said, list[str]()

    def nonce(self, worker: str, client: FlightClient) -> bytes | None:
        return b"nonce"

    def act(
        self, client: FlightClient, action: str, request: Message, timeout: float | None = ACTION_SECONDS
    ) -> list[bytes]:
        assert action == "locate"
        return [each.SerializeToString() for each in self._said]

    def failed(self, worker: str, error: ShuffleError | OSError) -> None:
        self.failures.append(type(error).__name__)

    def located(self) -> LocatedOutputs | None:
        maps = map(messages.attempt_of, OUTPUTS[:3])
        with closing(FlightClient("127.0.0.1:1")) as client:
            return locate_blocks(self, "w", client, pb.GetTicket(shuffle=messages.key_of(SHUFFLE), maps=maps))


def test_what_a_worker_has_not_or_says_badly_is_pulled(tmp_path: Path) -> None:
    index = located(tmp_path / "0").rows.tobytes()
    first, second, third = (messages.attempt_of(output) for output in OUTPUTS[:3])
    telling = Telling(
        pb.LocatedBlocks(output=first, path="x", index=index),
        pb.LocatedBlocks(output=second, path="x", index=index[:-1]),
        pb.LocatedBlocks(output=third, error=messages.error_message(MapOutputLost("it is not here"))),
    )
    found = telling.located()
    assert found is not None
    assert [found.get(output) is not None for output in OUTPUTS] == [True, False, False, False]
    assert not telling.failures
    # Of other outputs than were asked for, nothing is believed.
    wrong = Telling(*[pb.LocatedBlocks(output=first, path="x", index=index)] * 3)
    assert wrong.located() is None
    assert wrong.failures == ["ProtocolMismatch"]


def test_a_whole_index_must_be_in_order(tmp_path: Path) -> None:
    rows = located(tmp_path / "0", {"partition": -1}).rows
    assert OutputIndex.of(pb.LocatedBlocks(path="x", index=rows.tobytes())).rows.tolist() == rows.tolist()
    with pytest.raises(ProtocolMismatch, match="order of partitions"):
        OutputIndex.of(pb.LocatedBlocks(path="x", index=rows.tobytes(), whole=True))


def test_a_block_that_is_not_what_its_checksum_says_is_named(tmp_path: Path) -> None:
    reading = Reading({output: located(tmp_path / str(output.map), whole=True) for output in OUTPUTS})
    (tmp_path / "2").write_bytes(b"first block" + b"secOnd")
    items = reading.items()
    assert len([next(items) for _ in range(5)]) == 5
    with pytest.raises(BlockCorrupt, match="partition 1") as error:
        next(items)
    assert error.value.output == OUTPUTS[2]
    assert [reading.known.find("w", SHUFFLE, output) is not None for output in OUTPUTS] == [True, True, False, False]


# ------------------------------------------------------------------ what is known


def test_a_whole_index_is_kept_once_its_file_was_read_and_serves_other_partitions(tmp_path: Path) -> None:
    found = {output: located(tmp_path / str(output.map), whole=True) for output in OUTPUTS}
    found[OUTPUTS[0]] = replace(found[OUTPUTS[0]], rows=found[OUTPUTS[0]].rows[:1], whole=False)
    reading = Reading(found)
    first = [(output.map, PAYLOADS[0]) for output in OUTPUTS]
    assert reading.all(range(1)) == first
    assert len(reading.known) == 3
    again = reading.again()
    assert again.all(range(1, 2)) == [(0, b"wire"), *((output.map, PAYLOADS[1]) for output in OUTPUTS[1:])]
    assert again.served == [(str(n), 1, len(PAYLOADS[1])) for n in range(1, 4)]


def test_a_whole_index_is_not_kept_of_a_file_that_it_is_not_of(tmp_path: Path) -> None:
    reading = Reading({output: located(tmp_path / str(output.map), whole=True) for output in OUTPUTS})
    (tmp_path / "0").write_bytes(b"of another shuffle")  # between the worker's answer and the look into the file
    with pytest.raises(BlockCorrupt):
        reading.all(range(1))
    assert not len(reading.known)


def test_another_file_of_that_name_is_not_read_and_forgotten(tmp_path: Path) -> None:
    reading = Reading({output: located(tmp_path / str(output.map), whole=True) for output in OUTPUTS})
    reading.all(range(1))
    (tmp_path / "new").write_bytes(b"".join(PAYLOADS))
    (tmp_path / "new").rename(tmp_path / "1")  # the same bytes even
    (tmp_path / "2").write_bytes(b"".join(PAYLOADS))  # written over
    (tmp_path / "3").unlink()
    again = reading.again()
    assert again.all(range(1, 2)) == [(0, PAYLOADS[1]), *((n, b"wire") for n in range(1, 4))]
    assert len(reading.known) == 1


def test_that_an_output_has_nothing_of_a_partition_is_believed_of_its_own_file_only(tmp_path: Path) -> None:
    reading = Reading({output: located(tmp_path / str(output.map), whole=True) for output in OUTPUTS})
    reading.all()
    (tmp_path / "1").write_bytes(b"something else")
    (tmp_path / "2").unlink()
    again = reading.again()
    assert again.all(range(2, 3)) == [(1, b"wire"), (2, b"wire")]
    assert again.wire.asked == [OUTPUTS[1:3]]
    assert len(reading.known) == 2


def test_of_what_does_not_fit_that_which_was_wanted_last_stays(tmp_path: Path) -> None:
    index = located(tmp_path / "0", whole=True)
    known = OutputIndexCache(3 * (512 + 80))
    for output in OUTPUTS[:3]:
        known.add("w", SHUFFLE, output, index)
    assert known.find("w", SHUFFLE, OUTPUTS[0]) is index
    known.add("w", SHUFFLE, OUTPUTS[2], index)  # again: it counts once
    known.add("w", SHUFFLE, OUTPUTS[3], index)
    assert [known.find("w", SHUFFLE, output) is index for output in OUTPUTS] == [True, False, True, True]
    assert known.find("v", SHUFFLE, OUTPUTS[0]) is None
    known.forget("w", SHUFFLE, OUTPUTS[0])
    known.forget("w", SHUFFLE, OUTPUTS[0])
    assert len(known) == 2
