"""Batches on the wire: batches come back as views, and contradictory ones are refused."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.values import Totals
from shuffle_transport.blocks import totals_of
from shuffle_transport.channels.wire import (
    EXCHANGE_SCHEMA,
    MAX_PAYLOAD,
    MAX_ROWS,
    MAX_SUM,
    MESSAGE_COST,
    SHORT_TABLE,
    RunningTotals,
    batch_meta,
    check_table,
    inline_batch,
    parse_inline,
    parse_record_batch,
    record_batch,
)
from shuffle_transport.checksum import BLOCK_ROW, FEW_ROWS
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_transport.channels.helpers import batch


@pytest.mark.parametrize("blocks", [[b"abc"], [b""], [b"a", b"", b"bcd" * 1000]])
def test_a_record_batch_holds_views_of_what_it_was_made_of(blocks: list[bytes]) -> None:
    rows, payload = batch(*blocks)
    table = rows.data.cast("B")
    message = record_batch(rows["length"], table, payload)
    assert message.column(0).buffers()[1].address == rows.ctypes.data
    assert message.column(1).buffers()[2].address == pa.py_buffer(payload).address
    parsed, meta = parse_record_batch(message)
    assert bytes(parsed) == payload
    assert bytes(meta.table) == rows.tobytes()
    if payload:
        assert np.frombuffer(parsed, np.uint8).ctypes.data == pa.py_buffer(payload).address


def test_a_slice_of_a_record_batch_is_read_as_what_it_shows() -> None:
    rows, payload = batch(b"aa", b"bbb", b"c")
    parsed, meta = parse_record_batch(record_batch(rows["length"], rows.tobytes(), payload).slice(1, 2))
    assert bytes(parsed) == b"bbbc"
    assert bytes(meta.table) == rows[1:].tobytes()


@pytest.mark.parametrize("blocks", [[b"abc"], [b""], [b"a", b"", b"bcd"]])
def test_an_inline_batch_comes_back(blocks: list[bytes]) -> None:
    rows, payload = batch(*blocks)
    sent = inline_batch(batch_meta(rows.tobytes(), len(payload)), payload)
    control = pb.ExchangeControl.FromString(sent)
    parsed, meta = parse_inline(control.rows, control.payload)
    assert (bytes(parsed), bytes(meta.table)) == (payload, rows.tobytes())


@pytest.mark.parametrize("count", [1, 2])
def test_a_parcel_knows_its_size_and_its_cost_covers_table_and_message(count: int) -> None:
    rows, payload = batch(*[b"x" * 100] * count)
    meta = batch_meta(rows.tobytes(), len(payload))
    assert (meta.blocks, meta.size) == (count, 100 * count)
    assert meta.cost == 100 * count + 32 * count + MESSAGE_COST


@pytest.mark.parametrize(("table", "payload"), [(33, 0), (32 * (MAX_ROWS + 1), 0), (32, MAX_PAYLOAD + 1)])
def test_a_parcel_of_half_a_row_or_too_much_is_refused(table: int, payload: int) -> None:
    with pytest.raises(InvalidArgument):
        batch_meta(bytes(table), payload)


def damaged(field: str, value: int, count: int) -> tuple[np.ndarray, bytes]:
    rows, payload = batch(*[b"x" * 100] * count)
    rows[field][-1] = value
    return rows, payload


@pytest.mark.parametrize("count", [1, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", -1),
        ("length", -1),
        ("length", 99),
        ("raw_length", 99),
        ("raw_length", -1),
        ("raw_length", 2 * MAX_SUM + 2),
        ("raw_length", 2**63 - 1),
        ("records", -1),
        ("records", MAX_SUM + 1),
    ],
)
def test_a_table_that_contradicts_itself_or_its_payload_is_refused(field: str, value: int, count: int) -> None:
    rows, payload = damaged(field, value, count)
    with pytest.raises(InvalidArgument):
        check_table(rows.tobytes(), len(payload))


@pytest.mark.parametrize(("field", "value"), [("partition", -1), ("length", 99), ("raw_length", 99), ("records", -1)])
@pytest.mark.parametrize("at", [0, 57, 99])
def test_a_tally_finds_what_is_wrong_among_a_hundred(field: str, value: int, at: int) -> None:
    running_totals = RunningTotals(checked=False)
    sound, payload = batch(b"x" * 100)
    wrong, _ = damaged(field, value, 1)
    for number in range(99):
        running_totals.add(batch_meta((wrong if number == at else sound).tobytes(), len(payload)))
    if at < 99:
        with pytest.raises(InvalidArgument, match="batches"):
            running_totals.check()
    with pytest.raises(InvalidArgument, match="batches"):
        running_totals.add(batch_meta((wrong if at == 99 else sound).tobytes(), len(payload)))


def test_a_tally_checks_a_long_table_at_once() -> None:
    rows, payload = damaged("records", -1, 300)
    with pytest.raises(InvalidArgument, match="negative"):
        RunningTotals(checked=False).add(batch_meta(rows.tobytes(), len(payload)))


@pytest.mark.parametrize("blocks", [1, SHORT_TABLE // BLOCK_ROW.itemsize, SHORT_TABLE // BLOCK_ROW.itemsize + 1])
def test_a_tally_does_not_keep_the_message(blocks: int) -> None:
    """A view of its table would keep all of it."""
    rows, payload = batch(*[b"x"] * blocks)
    table = rows.tobytes()
    unused = sys.getrefcount(table)
    running_totals = RunningTotals(checked=False)
    running_totals.add(parse_record_batch(record_batch(rows["length"], table, payload))[1])
    assert sys.getrefcount(table) == unused
    assert running_totals.totals == totals_of(rows)


@pytest.mark.parametrize("more", [0, FEW_ROWS])
def test_lengths_that_cancel_out_are_refused(more: int) -> None:
    rows, payload = batch(b"x" * 10, b"y" * 10, *[b"z"] * more)
    rows["length"][:2] = [-5, 25]
    rows["raw_length"] = 25
    with pytest.raises(InvalidArgument, match="negative"):
        check_table(rows.tobytes(), len(payload))


@pytest.mark.parametrize("count", [1, 2, FEW_ROWS, FEW_ROWS + 1])
def test_a_sound_table_is_taken(count: int) -> None:
    rows, payload = batch(*[b"x" * 100] * count)
    rows["crc32c"] = 2**32 - 1
    rows["partition"], rows["raw_length"], rows["records"] = 2**31 - 1, MAX_SUM, MAX_SUM
    check_table(rows.tobytes(), len(payload))


def columns(*arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), schema=EXCHANGE_SCHEMA)


ROW = pa.array([batch(b"0123456789")[0].tobytes()], pa.binary(32))


def with_offsets(*numbers: int) -> pa.RecordBatch:
    """A batch of one block with these offsets, which Arrow would not make: they are changed afterwards."""
    offsets = np.array([0, 10], np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"0123456789")]
    message = columns(ROW, pa.Array.from_buffers(pa.large_binary(), 1, buffers))
    offsets[:] = numbers
    return message


@pytest.mark.parametrize(
    "message",
    [
        pa.RecordBatch.from_arrays([pa.array([1])], ["x"]),
        columns(pa.array([], pa.binary(32)), pa.array([], pa.large_binary())),
        columns(pa.array([None], pa.binary(32)), pa.array([b"0123456789"], pa.large_binary())),
        columns(ROW, pa.array([None], pa.large_binary())),
        with_offsets(0, 11),
        with_offsets(5, 2),
        with_offsets(-1, 9),
    ],
    ids=["columns", "empty", "null row", "null payload", "beyond", "backwards", "before"],
)
def test_a_record_batch_of_another_shape_is_refused(message: pa.RecordBatch) -> None:
    with pytest.raises(InvalidArgument):
        parse_record_batch(message)


class Column:
    """A column whose buffers are shorter than Arrow would make them: off the wire nobody has checked that."""

    def __init__(self, *buffers: bytes | None) -> None:
        self.offset = 0
        self._buffers = [None if data is None else pa.py_buffer(data) for data in buffers]

    def buffers(self) -> list[pa.Buffer | None]:
        return self._buffers


@pytest.mark.parametrize(
    ("table", "offsets", "data"),
    [
        (63, 24, b"0123456789"),
        (64, 23, b"0123456789"),
        (None, 24, b"0123456789"),
        (64, None, b"0123456789"),
        (64, 24, None),
    ],
)
def test_buffers_that_are_too_short_are_refused(table: int | None, offsets: int | None, data: bytes | None) -> None:
    numbers = np.array([0, 5, 10], np.int64).tobytes()

    class Batch:
        schema, num_rows = EXCHANGE_SCHEMA, 2
        columns = (
            Column(None, None if table is None else bytes(table)),
            Column(None, None if offsets is None else numbers[:offsets], data),
        )

    with pytest.raises(InvalidArgument, match="malformed exchange batch"):
        parse_record_batch(Batch())


def test_offsets_that_contradict_the_table_are_found_by_its_check() -> None:
    payload, meta = parse_record_batch(with_offsets(0, 9))
    assert (bytes(payload), meta.size) == (b"012345678", 9)
    with pytest.raises(InvalidArgument, match="9 payload bytes whose table says 10"):
        check_table(meta.table, meta.size)


def test_half_a_row_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="33 bytes"):
        parse_inline(bytes(33), b"")


@pytest.mark.parametrize("batches", [0, 1, 99, 100, 101, 250])
def test_a_tally_is_the_totals_of_all_rows(batches: int) -> None:
    running_totals, tables = RunningTotals(checked=False), [np.zeros(0, BLOCK_ROW)]
    for number in range(batches):
        rows, payload = batch(*[bytes([number % 256]) * 10] * (1 + number % 3))
        running_totals.add(batch_meta(rows.tobytes(), len(payload)))
        tables.append(rows)
    expected: Totals = totals_of(np.concatenate(tables))
    assert running_totals.totals == expected
    assert running_totals.totals == expected
