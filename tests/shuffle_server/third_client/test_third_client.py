"""docs/protocol.md is enough to write a client from: what one says, the other understands."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import ErrorCode
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.third_client.blocks import Block, Sums, crc32c, raw_block, records_of
from tests.shuffle_server.third_client.client import Control, Data, Refused
from tests.shuffle_server.third_client.protobuf import decode, last

APP, NUMBER, PARTITIONS, MAPS = "third", 7, 4, 3


@pytest.fixture
def control(server: ServerProcess) -> Iterator[Control]:
    client = Control(server.control)
    yield client
    client.close()


@pytest.fixture
def data(control: Control) -> Iterator[Data]:
    client = Data(control.begin(APP, NUMBER, PARTITIONS, MAPS, "lz4"), APP, NUMBER)
    yield client
    client.close()


@pytest.fixture
def handle(server: ServerProcess, data: Data) -> ShuffleHandle:
    return ShuffleHandle("remote", ShuffleSpec(ShuffleId(APP, NUMBER), PARTITIONS, MAPS, "lz4"), server.control)


def batch(*records: tuple[int, bytes]) -> list[Block]:
    return [raw_block(partition, [record]) for partition, record in records]


def whole(map_id: int, attempt: int = 0) -> tuple[int, int, int, int]:
    return map_id, attempt, 0, PARTITIONS


def test_it_is_written_from_the_document_alone() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        if path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text())
        named = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        named += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
        assert not [name for name in named if name.startswith("shuffle_") or "flight" in name], path


def test_the_examples_of_the_document() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    block = Block(1, b"123456789", 9, 1, 0xE3069283)
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
    assert f"{Sums().plus([block]).digest:#010x}" in text
    assert Sums().digest == 0


def test_what_it_pushes_others_read(data: Data, handle: ShuffleHandle, server: ServerProcess) -> None:
    records = [(0, b"a"), (3, b""), (1, b"ccc"), (0, b"d" * 1000)]
    for map_id in range(MAPS):
        pushed = data.push((map_id, 0), PARTITIONS, "lz4", [batch(*records[:2]), batch(*records[2:])])
        assert pushed.committed is not None
    with RemoteShuffle({"server": server.control}) as plugin:
        assert read_all(plugin, handle) == sorted(records * MAPS)


def test_what_others_write_it_pulls(data: Data, control: Control, handle: ShuffleHandle, server: ServerProcess) -> None:
    with RemoteShuffle({"server": server.control}) as plugin:
        written = sorted(record for map_id in range(MAPS) for record in write_map(plugin, handle, map_id))
    located = control.locate(APP, NUMBER)
    assert [map_id for map_id, _, _ in located] == list(range(MAPS))
    pulled = list(data.pull([whole(map_id, attempt) for map_id, attempt, _ in located]))
    assert len(pulled) == sum(sums.blocks for _, _, sums in located)
    assert sorted((b.partition, record) for b in pulled for record in records_of(b.payload)) == written
    some = list(data.pull([(2, 0, 1, 3), (0, 0, 3, 4)]))
    places = [(2, 1), (2, 2), (0, 3)]
    assert {(b.map, b.partition) for b in some} == set(places)
    assert [places.index((b.map, b.partition)) for b in some] == sorted(
        places.index((b.map, b.partition)) for b in some
    )


def test_it_waits_for_credit_and_sends_a_block_larger_than_the_window(data: Data) -> None:
    pieces = [os.urandom(size) for size in (600 << 10, 600 << 10, 3 << 20, 1 << 20, 900 << 10)]
    batches = [[Block(0, piece, len(piece), 0, _fast_crc32c(piece))] for piece in pieces]
    pushed = data.push((0, 0), PARTITIONS, "lz4", batches)
    assert pushed.waits > 0
    assert pushed.held == len(pieces)
    assert pushed.committed is not None


def test_a_broken_push_goes_on_where_it_broke_off(data: Data) -> None:
    first, second = batch((0, b"one"), (1, b"two")), batch((2, b"three"))
    with pytest.raises(Refused, match="without its end message"):
        data.push((0, 0), PARTITIONS, "lz4", [first], end=False)
    pushed = data.push((0, 0), PARTITIONS, "lz4", [second], before=first)
    assert pushed.held == 3
    again = data.push((0, 0), PARTITIONS, "lz4", [second], before=first)
    assert again.committed == pushed.committed
    assert [list(records_of(b.payload)) for b in data.pull([whole(0)])] == [[b"one"], [b"two"], [b"three"]]


def test_the_winner_of_a_map_is_named_to_the_loser(data: Data) -> None:
    data.push((1, 5), PARTITIONS, "lz4", [batch((0, b"first"))])
    late = data.push((1, 6), PARTITIONS, "lz4", [batch((0, b"second"))])
    assert late.committed is not None
    assert last(decode(last(late.committed, 1)), 2) == 5


def test_refusals_are_found_where_the_document_says(data: Data, control: Control) -> None:
    with pytest.raises(Refused) as refused:
        control.call("Heartbeat", {1: "nobody"})
    assert refused.value.code == ErrorCode.UNKNOWN_APP
    with pytest.raises(Refused) as refused:
        control.call("Hello", {1: 99})
    assert refused.value.code == ErrorCode.PROTOCOL_MISMATCH
    with pytest.raises(Refused) as refused:
        data.push((0, 0), PARTITIONS + 1, "lz4", [batch((0, b"x"))])
    assert refused.value.code == ErrorCode.INVALID_ARGUMENT
    with pytest.raises(Refused) as refused:
        list(data.pull([(0, 0, 0, PARTITIONS + 1)]))
    assert refused.value.code == ErrorCode.INVALID_ARGUMENT
    with pytest.raises(Refused) as refused:
        list(data.pull([whole(2)]))
    assert refused.value.code == ErrorCode.MAP_OUTPUT_LOST


def _fast_crc32c(data: bytes) -> int:
    import crc32c as fast

    return int(fast.crc32c(data))
