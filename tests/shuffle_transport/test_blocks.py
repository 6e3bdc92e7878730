"""Block batches: a batch reads back as it was built, and a malformed one is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.values import Totals
from shuffle_transport.blocks import (
    GET_SCHEMA,
    MAX_SUM,
    PUT_SCHEMA,
    Block,
    add_rows,
    add_table,
    get_batch,
    parse_batch,
    parse_table,
    put_batch,
    table_rows,
    totals_of,
)
from shuffle_transport.checksum import FEW_ROWS, crc32c, digest

PAYLOADS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=40), st.integers(0, 9)), max_size=20)


def blocks_of(items: list[tuple[int, bytes, int]]) -> list[Block]:
    return [Block(p, crc32c(data), len(data) + extra, extra, data) for p, data, extra in items]


def over_the_wire(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


@given(PAYLOADS)
def test_a_push_batch_reads_back_as_the_blocks_it_was_built_of(items: list[tuple[int, bytes, int]]) -> None:
    blocks = blocks_of(items)
    rows = table_rows(blocks)
    parsed = parse_batch(over_the_wire(put_batch(rows, b"".join(data for _, data, _ in items))), PUT_SCHEMA)
    assert (parsed.rows == rows).all()
    assert [bytes(p) for p in parsed.payloads()] == [data for _, data, _ in items]
    assert not parsed.outputs


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=20))
def test_each_block_of_a_pull_batch_is_of_its_output(outputs: list[tuple[int, int]]) -> None:
    rows = table_rows([Block(n, crc32c(b"x"), 1, 1, b"x") for n in range(len(outputs))])
    maps, attempts = (np.array(numbers, np.int64) for numbers in zip(*outputs, strict=True))
    parsed = parse_batch(over_the_wire(get_batch(GET_SCHEMA, maps, attempts, rows, b"x" * len(rows))), GET_SCHEMA)
    assert list(parsed.outputs) == [MapAttempt(*numbers) for numbers in outputs]


@given(PAYLOADS, st.integers(0, 20), st.integers(0, 20))
def test_any_slice_of_a_batch_reads_as_that_slice(items: list[tuple[int, bytes, int]], start: int, length: int) -> None:
    rows = table_rows(blocks_of(items))
    batch = put_batch(rows, b"".join(data for _, data, _ in items)).slice(start, length)
    parsed = parse_batch(over_the_wire(batch), PUT_SCHEMA)
    assert (parsed.rows == rows[start : start + length]).all()
    assert [bytes(p) for p in parsed.payloads()] == [data for _, data, _ in items[start : start + length]]


def test_a_pull_batch_says_which_map_output_each_block_is_of() -> None:
    rows = table_rows(blocks_of([(0, b"a", 0), (1, b"bc", 0)]))
    batch = get_batch(GET_SCHEMA, np.array([4, 2**40]), np.array([0, 3]), rows, b"abc")
    parsed = parse_batch(over_the_wire(batch), GET_SCHEMA)
    assert list(parsed.outputs) == [MapAttempt(4, 0), MapAttempt(2**40, 3)]


def test_the_payload_is_a_view_of_the_received_buffer() -> None:
    batch = over_the_wire(put_batch(table_rows(blocks_of([(0, b"abcd", 0)])), b"abcd"))
    received = batch.column("payload").buffers()[2]
    parsed = parse_batch(batch, PUT_SCHEMA)
    assert np.frombuffer(parsed.payload, np.uint8).ctypes.data == received.address


@given(PAYLOADS, st.integers(0, 20))
def test_totals_add_up_whatever_the_cut(items: list[tuple[int, bytes, int]], cut: int) -> None:
    rows = table_rows(blocks_of(items))
    assert add_rows(totals_of(rows[:cut]), rows[cut:]) == totals_of(rows)


@pytest.mark.parametrize("count", [0, 1, FEW_ROWS, FEW_ROWS + 1])
def test_totals_of_a_packed_table_are_those_of_its_rows(count: int) -> None:
    rows = table_rows(blocks_of([(n, bytes(n), n % 3) for n in range(count)]))
    totals = add_table(Totals(1, 2, 3, 4, 5), rows.tobytes())
    assert totals == add_rows(Totals(1, 2, 3, 4, 5), rows)
    sums = [int(rows[name].sum()) for name in ("length", "raw_length", "records")]
    assert totals == Totals(1 + count, 2 + sums[0], 3 + sums[1], 4 + sums[2], digest(rows, 5))


@pytest.mark.parametrize("count", [4, 4 * FEW_ROWS])
def test_totals_of_every_other_row(count: int) -> None:
    rows = table_rows(blocks_of([(n, bytes(n), n % 3) for n in range(count)]))
    assert totals_of(rows[::2]) == totals_of(rows[::2].copy())


def strange(**columns: pa.Array) -> pa.RecordBatch:
    good = put_batch(table_rows(blocks_of([(0, b"ab", 0), (1, b"cd", 0)])), b"abcd")
    arrays = [columns.get(field.name, good.column(field.name)) for field in PUT_SCHEMA]
    fields = [pa.field(name, array.type, nullable=False) for name, array in zip(PUT_SCHEMA.names, arrays, strict=True)]
    return pa.record_batch(arrays, schema=pa.schema(fields))


@pytest.mark.parametrize(
    ("column", "array", "says"),
    [
        ("partition", pa.array([0, 1], pa.int64()), "partition:int64"),
        ("payload", pa.array([b"a", b"b"], pa.binary()), "payload:binary"),
        ("records", pa.array([1, None], pa.int64()), "null in block column records"),
        ("records", pa.array([1, -1], pa.int64()), "record count is negative"),
        ("raw_length", pa.array([1, 2], pa.int64()), "raw_length is below"),
    ],
)
def test_what_is_no_block_batch_is_refused(column: str, array: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse_batch(strange(**{column: array}), PUT_SCHEMA)


@pytest.mark.parametrize("offsets", [(0, 2, 5), (0, 3, 2), (-1, 2, 4), (0, 2, 2**62), (0, -(2**62), 4)])
def test_offsets_that_leave_the_buffer_are_refused(offsets: tuple[int, ...]) -> None:
    batch = over_the_wire(put_batch(table_rows(blocks_of([(0, b"ab", 0), (1, b"cd", 0)])), b"abcd"))
    held = np.array([0, 2, 4], np.int64)
    buffers = [None, pa.py_buffer(held), pa.py_buffer(b"abcd")]
    payload = pa.Array.from_buffers(pa.large_binary(), 2, buffers)
    batch = pa.RecordBatch.from_arrays([*batch.columns[:-1], payload], schema=PUT_SCHEMA)
    held[:] = offsets  # Arrow checks batches that it builds, not those it receives
    with pytest.raises(InvalidArgument, match="malformed"):
        parse_batch(batch, PUT_SCHEMA)


@pytest.mark.parametrize("count", [FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("raw_length", 0, "raw_length is below"),
        ("records", -1, "record count is negative"),
        ("raw_length", MAX_SUM, "the raw_length of a batch add up"),
        ("records", MAX_SUM + 1, "the records of a batch add up"),
        ("length", -1, "negative length"),
    ],
)
def test_one_bad_row_of_many_or_few_is_found(count: int, column: str, value: int, says: str) -> None:
    rows = table_rows(blocks_of([(n, b"ab", 0) for n in range(count)]))
    assert (parse_table(rows.tobytes(), 2 * count) == rows).all()
    with pytest.raises(InvalidArgument, match="payload bytes at once"):
        parse_table(rows.tobytes(), 2 * count - 1)
    rows[column][count // 2] = value
    with pytest.raises(InvalidArgument, match=says):
        parse_table(rows.tobytes(), 2 * count)


@pytest.mark.parametrize("column", ["raw_length", "records"])
def test_numbers_that_would_not_add_up_in_64_bits_are_refused(column: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the {column} of a batch add up to more"):
        parse_batch(strange(**{column: pa.array([2**62, 2**62], pa.int64())}), PUT_SCHEMA)


def test_a_batch_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.blocks.MAX_BATCH_BYTES", 3)
    batch = put_batch(table_rows(blocks_of([(0, b"ab", 0), (1, b"cd", 0)])), b"abcd")
    with pytest.raises(InvalidArgument, match="4 payload bytes at once"):
        parse_batch(batch, PUT_SCHEMA)
    assert len(parse_batch(batch.slice(0, 1), PUT_SCHEMA).rows) == 1


def test_columns_whose_names_are_no_text_are_refused_by_name() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, strange().schema) as writer:
        writer.write_batch(strange())
    garbled = sink.getvalue().to_pybytes().replace(b"crc32c", b"\xff\xfe\xfd\xfc\xfb\xfa")
    with pytest.raises(InvalidArgument, match="names that are not UTF-8"):
        parse_batch(pa.ipc.open_stream(garbled).read_next_batch(), PUT_SCHEMA)
