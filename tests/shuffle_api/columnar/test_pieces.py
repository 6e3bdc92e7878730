"""Payloads in pieces: the bytes that Arrow writes for the joined batch, whatever the slices are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.columnar.arrays import MOST_TEXT
from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.columnar.joining import joined
from shuffle_api.columnar.pieces import PieceEncoder, Pieces
from shuffle_api.columnar.slices import Chunk, Slice, simple
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from tests.shuffle_api.columnar.strategies import PLAIN, batches, rows_of

SPEC = ShuffleSpec(ShuffleId("app", 0), 1, 1, content="arrow")
COMPLETE = BlockCodec(SPEC)


def declared(schema: Any) -> BlockCodec:
    return BlockCodec(ShuffleHandle("memory", SPEC, "").with_schema(schema).spec)


def sliced(batch: Any, *bounds: tuple[int, int]) -> list[Slice]:
    chunk = Chunk(batch)
    return [Slice(chunk, start, rows) for start, rows in bounds]


def one_block(encoder: PieceEncoder, slices: list[Slice]) -> Pieces:
    [(pieces, rows)] = encoder.encode(slices)
    assert rows == sum(part.rows for part in slices)
    return pieces


@settings(max_examples=500, deadline=None)
@given(batches(), st.data())
def test_the_rows_of_the_slices_in_their_order(many: list[Any], data: st.DataObject) -> None:
    slices = []
    for batch in many:
        if batch.num_rows:
            start = data.draw(st.integers(0, batch.num_rows - 1))
            slices.append(Slice(Chunk(batch), start, data.draw(st.integers(1, batch.num_rows - start))))
    if not slices:
        return
    encoder = PieceEncoder(many[0].schema, COMPLETE)
    for part in (slices, slices[-1:]):  # the second with the head of the first
        expected = joined([one.batch for one in part])
        back = decode(b"".join(one_block(encoder, part)), expected.num_rows)
        back.validate(full=True)
        assert back.schema.equals(expected.schema, check_metadata=True)
        assert rows_of(back) == rows_of(expected)


@pytest.mark.parametrize("kind", [kind for kind in PLAIN if simple(kind)], ids=str)
@given(st.data())
def test_without_nulls_it_is_what_arrow_writes_byte_by_byte(kind: Any, data: st.DataObject) -> None:
    column = pa.array(data.draw(st.lists(PLAIN[kind], min_size=20, max_size=20)), kind)
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("c", kind, metadata={"a": "b"})])
    slices = sliced(pa.record_batch([pa.array(range(20)), column], schema=schema), (3, 11), (0, 3), (19, 1))
    expected = encode(joined([part.batch for part in slices])).to_pybytes()
    assert b"".join(one_block(PieceEncoder(schema, COMPLETE), slices)) == expected
    bare = declared(schema)
    assert bare.bare
    expected = bare.encode(joined([part.batch for part in slices])).to_pybytes()
    assert b"".join(one_block(PieceEncoder(schema, bare), slices)) == expected


def test_values_are_not_copied() -> None:
    batch = pa.record_batch({"n": np.arange(1000), "s": [f"{n:08}" for n in range(1000)]})
    addresses = [buffer.address for column in batch.columns for buffer in column.buffers() if buffer is not None]
    made = one_block(PieceEncoder(batch.schema, COMPLETE), sliced(batch, (0, 1000)))
    lie = [pa.py_buffer(piece).address for piece in made]
    assert addresses[0] in lie
    assert addresses[-1] in lie


def test_texts_that_offsets_cannot_reach_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"s": ["x" * 100] * 10})
    monkeypatch.setitem(MOST_TEXT, 4, 1500)
    assert one_block(PieceEncoder(batch.schema, COMPLETE), sliced(batch, (0, 10), (0, 5)))
    with pytest.raises(InvalidArgument, match="cast the column to large_string"):
        one_block(PieceEncoder(batch.schema, COMPLETE), sliced(batch, (0, 10), (0, 10)))
