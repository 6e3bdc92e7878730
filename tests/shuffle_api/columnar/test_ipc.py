"""Batches as payloads of blocks: damaged payloads are refused, dictionaries shrink to the values that a block uses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.errors import BlockCorrupt

WORDS = [f"word {n}" for n in range(1_000)]


def test_a_block_is_an_arrow_stream_that_anything_reads() -> None:
    batch = pa.record_batch({"a": [1, None], "b": ["x", "y"]})
    with pa.ipc.open_stream(encode(batch)) as stream:
        assert stream.read_all().to_batches() == [batch]


@pytest.mark.parametrize("index", [pa.int16(), pa.uint16(), pa.int64()], ids=str)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_slice_takes_along_only_the_values_it_uses(index: Any, ordered: bool) -> None:
    indices = pa.array([7, None, 900, 7, 3, None], index)
    column = pa.DictionaryArray.from_arrays(indices, pa.array(WORDS), ordered=ordered)
    batch = pa.record_batch([column], names=["d"])
    for start in range(5):
        part = batch.slice(start, 4)
        payload = encode(part)
        assert payload.size < 1_000
        back = decode(payload, part.num_rows)
        assert back.schema.equals(batch.schema)
        assert back.to_pylist() == part.to_pylist()
        words = back.column("d").dictionary.to_pylist()
        assert words == sorted(set(filter(None, part.column("d").to_pylist())), key=WORDS.index)


def test_a_dictionary_column_of_nulls_alone() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array(["a", "b", "c"]))
    assert decode(encode(pa.record_batch([column], names=["d"])), 2).to_pylist() == [{"d": None}] * 2


def test_nested_dictionaries_stay_whole() -> None:
    column = pa.StructArray.from_arrays([pa.array(["a", "b"]).dictionary_encode()], names=["d"])
    batch = pa.record_batch([column], names=["s"])
    assert decode(encode(batch.slice(1)), 1).to_pylist() == [{"s": {"d": "b"}}]


def test_unaligned_payloads_are_read_right() -> None:
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
    payload = encode(batch).to_pybytes()
    for shift in range(9):
        back = decode(memoryview(b"." * shift + payload)[shift:], 3)
        assert back.equals(batch)
        assert back.column(0).buffers()[1].address % 8 == 0


def test_what_is_no_stream_of_one_batch_is_corrupt() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    payload = encode(batch).to_pybytes()
    two = pa.BufferOutputStream()
    with pa.ipc.new_stream(two, batch.schema) as stream:
        stream.write_batch(batch)
        stream.write_batch(batch)
    cases = [(b"", 0), (b"nonsense" * 9, 3), (payload[:100], 3), (payload, 2), (two.getvalue().to_pybytes(), 6)]
    for bad, records in cases:
        with pytest.raises(BlockCorrupt):
            decode(bad, records)
