"""Blocks of a shuffle whose schema was declared leave it out, and no handle without it reads them by mistake."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from tests.shuffle_api.columnar.strategies import batches, rows_of

SPEC = ShuffleSpec(ShuffleId("app", 0), 1, 1, content="arrow")


def declared(schema: Any) -> BlockCodec:
    return BlockCodec(ShuffleHandle("memory", SPEC, "").with_schema(schema).spec)


@settings(max_examples=200, deadline=None)
@given(batches(most=1))
def test_rows_come_back_with_the_schema_and_from_anywhere_in_memory(many: list[Any]) -> None:
    [batch] = many
    codec = declared(batch.schema)
    payload = codec.encode(batch).to_pybytes()
    for shift in (0, 1, 4):
        back = codec.decode(memoryview(bytes(shift) + payload)[shift:], batch.num_rows)
        back.validate(full=True)
        assert back.schema.equals(batch.schema, check_metadata=True)
        assert rows_of(back) == rows_of(batch)


def test_a_wide_table_costs_its_rows_and_no_schema() -> None:
    wide = pa.record_batch({f"a column with a name {number}": pa.array([number]) for number in range(1000)})
    assert declared(wide.schema).encode(wide).size < encode(wide).size - wide.schema.serialize().size + 64


def test_blocks_with_a_schema_are_read_as_well() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    assert declared(batch.schema).decode(encode(batch), 2).equals(batch)


def test_a_handle_without_the_schema_says_what_is_missing() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    with pytest.raises(InvalidArgument, match="a block without its schema"):
        BlockCodec(SPEC).decode(declared(batch.schema).encode(batch), 2)


def test_damage_is_told_from_a_missing_schema() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    codec = declared(batch.schema)
    payload = codec.encode(batch)
    for wrong, records in ((payload, 3), (payload.slice(0, payload.size - 16), 2), (b"", 0), (b"x" * 40, 1)):
        with pytest.raises(BlockCorrupt):
            codec.decode(wrong, records)
        if wrong is not payload:
            with pytest.raises((BlockCorrupt, InvalidArgument)):
                BlockCodec(SPEC).decode(wrong, records)
    assert decode(encode(batch), 2).equals(batch)
