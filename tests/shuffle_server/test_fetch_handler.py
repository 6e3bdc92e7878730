"""Pulls: whatever way blocks lie in the files, they arrive in order and in bounded batches."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleSpec
from shuffle_server.store import file_cache as kept_module
from shuffle_server.store.output_file import read_ranges
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker import fetch_handler as serve_module
from shuffle_server.worker.fetch_handler import serve
from shuffle_server.worker.read_plan import FEW_BLOCKS, MAX_BATCH_ROWS, MOST_CHUNKS
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, GET_SCHEMA, parse_batch, totals_of
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, batch, block, open_files, room

PUSHED = st.lists(st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=30)), max_size=2 * FEW_BLOCKS), max_size=3)


def write(store: Store, map_id: int, blocks: list[tuple[int, bytes]], spec: ShuffleSpec = SPEC) -> MapAttempt:
    store.add_shuffle(spec.id)
    output = MapAttempt(map_id, 0)
    writer = store.stage(spec, output, "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(partition, payload) for partition, payload in blocks]))
    assert store.publish(writer, turn) is not None
    return output


def pull(
    store: Store, ranges: list[OutputRange], spec: ShuffleSpec = SPEC
) -> tuple[list[tuple[int, int, bytes]], list[Any], list[int]]:
    """Blocks (map, partition, payload), errors, and the payload bytes of each batch; the end message is checked."""
    blocks: list[tuple[int, int, bytes]] = []
    errors, sizes = [], []
    rows: list[Any] = []
    ended = False
    for data, metadata in serve(store, "w", GET_SCHEMA, spec.id, ranges, lambda _, __: None, lambda _: None, room()):
        assert not ended
        if data.num_rows:
            parsed = parse_batch(data, GET_SCHEMA)
            sizes.append(parsed.payload.nbytes)
            assert len(parsed.rows) <= MAX_BATCH_ROWS
            rows.extend(parsed.rows)
            for output, row, payload in zip(parsed.outputs, parsed.rows.tolist(), parsed.payloads(), strict=True):
                assert crc32c(payload) == row[1]
                blocks.append((output.map, row[0], bytes(payload)))
        control = pb.GetControl.FromString(metadata)
        if control.HasField("error"):
            errors.append(messages.typed_error(control.error))
        if control.HasField("end"):
            ended = True
            assert messages.totals(control.end) == totals_of(np.array(rows, BLOCK_ROW))
    assert ended
    return blocks, errors, sizes


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(PUSHED, st.integers(0, 8), st.integers(0, 8))
def test_any_range_of_any_outputs_is_what_was_written_by_map_and_partition(
    tmp_path_factory: pytest.TempPathFactory, pushed: list[list[tuple[int, bytes]]], first: int, end: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    outputs = [write(store, map_id, blocks) for map_id, blocks in enumerate(pushed)]
    ranges = [OutputRange(output, min(first, end), max(first, end)) for output in outputs]
    expected = [
        (map_id, partition, payload)
        for map_id, blocks in enumerate(pushed)
        for partition, payload in sorted(blocks, key=lambda item: item[0])  # stable: as written within a partition
        if min(first, end) <= partition < max(first, end)
    ]
    blocks, errors, _ = pull(store, ranges)
    assert blocks == expected
    assert not errors


def test_batches_are_bounded_and_a_larger_block_is_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    scattered = [(i % 2, bytes([i]) * (BATCH_BYTES // 4)) for i in range(12)]
    output = write(store, 0, [*scattered, (1, bytes(3 * BATCH_BYTES))])
    blocks, _, sizes = pull(store, [OutputRange(output, 0, 8)])
    assert [payload[0] for _, _, payload in blocks] == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11, 0]
    assert all(size <= BATCH_BYTES for size in sizes[:-1])
    assert sizes[-1] == 3 * BATCH_BYTES


def test_many_empty_blocks_are_bounded_by_rows(tmp_path: Path) -> None:
    store = Store(tmp_path)
    output = write(store, 0, [(0, b"")] * (2 * MAX_BATCH_ROWS + 1))
    blocks, _, sizes = pull(store, [OutputRange(output, 0, 8)])
    assert len(blocks) == 2 * MAX_BATCH_ROWS + 1
    assert len(sizes) == 3


def test_a_file_that_is_gone_or_cut_is_named_in_its_place(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outputs = [write(store, map_id, [(0, b"%d" % map_id)]) for map_id in range(4)]
    next(tmp_path.rglob("1.0.out")).unlink()
    cut = next(tmp_path.rglob("2.0.out"))
    cut.write_bytes(cut.read_bytes()[:-1])
    blocks, errors, _ = pull(store, [OutputRange(output, 0, 8) for output in outputs])
    assert [payload for _, _, payload in blocks] == [b"0", b"3"]
    assert [type(error) for error in errors] == [MapOutputLost, MapOutputLost]
    assert [error.output for error in errors] == outputs[1:3]


def open_outputs(root: Path) -> int:
    return sum(".out" in name for name in open_files(root))


def test_an_output_that_cannot_be_read_in_the_middle_is_named_there_and_the_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    outputs = [write(store, map_id, [(p, b"%d of %d" % (p, map_id)) for p in (0, 2, 1)]) for map_id in range(40)]
    ranges = [OutputRange(output, 0, 8) for output in outputs]
    expected, _, sizes = pull(store, ranges)
    assert len(expected) == 3 * len(outputs)
    assert len(sizes) == 1
    bad = {7, 8, 21, 39}

    def fail(fds: list[int], *arguments: Any) -> None:
        if any(os.readlink(f"/proc/self/fd/{fd}").endswith(tuple(f"/{n}.0.out" for n in bad)) for fd in fds):
            raise OSError(errno.EIO, "Input/output error")
        read_ranges(fds, *arguments)

    monkeypatch.setattr(serve_module, "read_ranges", fail)
    said: list[tuple[int, str]] = []
    for data, metadata in serve(store, "w", GET_SCHEMA, SPEC.id, ranges, lambda _, __: None, lambda _: None, room()):
        said += [(output.map, "served") for output in parse_batch(data, GET_SCHEMA).outputs]
        control = pb.GetControl.FromString(metadata)
        if control.HasField("error"):
            said.append((control.error.output.map, "lost"))
    assert said == [each for n in range(40) for each in ([(n, "lost")] if n in bad else [(n, "served")] * 3)]
    monkeypatch.undo()
    assert pull(store, ranges)[0] == expected
    store.close()
    assert open_outputs(tmp_path) == 0


def test_few_of_the_files_that_go_into_a_message_are_open_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_module, "MOST_KEPT", 0)
    store = Store(tmp_path)
    outputs = [write(store, map_id, [(0, b"%d" % map_id)]) for map_id in range(3 * MOST_CHUNKS)]
    counts: list[int] = []

    def count(*arguments: Any) -> None:
        counts.append(open_outputs(tmp_path))
        read_ranges(*arguments)

    monkeypatch.setattr(serve_module, "read_ranges", count)
    blocks, _, sizes = pull(store, [OutputRange(output, 0, 1) for output in outputs])
    assert [payload for _, _, payload in blocks] == [b"%d" % n for n in range(3 * MOST_CHUNKS)]
    assert len(sizes) == 1
    assert max(counts) <= MOST_CHUNKS + 1
    assert open_outputs(tmp_path) == 0
