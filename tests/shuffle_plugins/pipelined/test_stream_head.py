"""The schema of Arrow blocks over a channel: once, and each block is for the reader what was written."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.buffer import Buffer
from shuffle_api.columnar import RoundRobinPartitioner
from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.ipc_messages import END
from shuffle_api.streaming import Barrier, Captured
from shuffle_plugins.pipelined import DataBlock
from shuffle_plugins.pipelined.pump import pump
from shuffle_plugins.pipelined.stream_head import HeadRemover, HeadRestorer
from shuffle_transport.channels import BlockChannel
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import rest, until

COLUMNS, BATCHES = 300, 40


def wide(number: int) -> Any:
    return pa.record_batch({f"a column with a long name {i}": pa.array([number + i]) for i in range(COLUMNS)})


def write(writer: Any, start: int, stop: int) -> None:
    for number in range(start, stop):
        writer.write_batch(wide(number), RoundRobinPartitioner())
        writer.flush()


def values(blocks: list[DataBlock]) -> list[int]:
    return [decode(block.payload, block.records).column(0)[0].as_py() for block in blocks]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of payload that went over channels."""
    sizes: list[int] = []
    send = BlockChannel.send

    def counted(self: BlockChannel, rows: Any, payload: Buffer, *args: Any, **options: Any) -> None:
        send(self, rows, payload, *args, **options)
        sizes.append(memoryview(payload).nbytes)

    monkeypatch.setattr(BlockChannel, "send", counted)
    return sizes


@pytest.mark.parametrize("reach", ["connected"])
def test_schema_of_a_wide_table_travels_once_per_stream(scene: Open, sent: list[int]) -> None:
    there = scene(content="arrow", flush_timeout=60)
    batch = wide(0)
    schema, whole = batch.schema.serialize().size, encode(batch).size
    assert schema > whole / 2
    with there.writer() as writer, there.reader() as reader:
        write(writer, 0, BATCHES)
        writer.commit()
        blocks = [event for event in rest(reader) if isinstance(event, DataBlock)]
    assert values(blocks) == list(range(BATCHES))
    assert [memoryview(block.payload).nbytes for block in blocks] == [whole] * BATCHES
    assert sum(sent) == whole + (BATCHES - 1) * (whole - schema + len(END))


def test_reader_that_goes_on_from_a_checkpoint_gets_the_schema_again(scene: Open) -> None:
    there = scene(content="arrow", flush_timeout=60, guarantee="exactly_once")
    with there.writer() as writer:
        with there.reader() as reader:
            write(writer, 0, 5)
            writer.emit(Barrier(0))
            events = until(reader, Captured)
            assert values([event for event in events if isinstance(event, DataBlock)]) == list(range(5))
            assert isinstance(events[-1], Captured)
            write(writer, 5, 8)
        write(writer, 8, 10)
        with there.reader(attempt=1, restore=events[-1].state) as reader:
            writer.commit()
            blocks = [event for event in rest(reader) if isinstance(event, DataBlock)]
            assert values(blocks) == list(range(5, 10))


@pytest.mark.parametrize("reach", ["connected"])
def test_reader_that_does_not_put_heads_back_gets_whole_blocks(
    scene: Open, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shuffle_plugins.pipelined.endpoint.pump", lambda *arguments, heads: pump(*arguments))
    there = scene(content="arrow", flush_timeout=60)
    with there.writer() as writer, there.reader() as reader:
        write(writer, 0, 5)
        writer.commit()
        assert values([event for event in rest(reader) if isinstance(event, DataBlock)]) == list(range(5))
    assert sum(sent) == 5 * encode(wide(0)).size


@pytest.mark.parametrize("seed", range(20))
def test_any_payloads_come_out_as_they_went_in(seed: int) -> None:
    chance = random.Random(seed)
    tables = [wide(0), pa.record_batch({"n": [1, 2]}), pa.record_batch({"t": pa.array(["a"]).dictionary_encode()})]
    streams = [bytes(encode(table)) for table in tables] + [bytes(tables[1].serialize())]
    odd = [b"", b"x", END[:4], END[:4] + b"\xff" * 8, streams[0][:100], bytes(100_000), streams[1] * 5000]
    remover, restorer, shortened = HeadRemover(), HeadRestorer(), 0
    for _ in range(200):
        payload = chance.choice(streams if chance.random() < 0.7 else odd)
        carried = remover.shortened(payload)
        shortened += carried is not payload
        assert bytes(restorer.whole(carried)) == payload
    assert shortened
