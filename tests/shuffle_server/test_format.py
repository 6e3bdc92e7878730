"""The file of a map output."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shuffle_server.store import format as format_module
from shuffle_server.store.format import INDEX_ROW, PACKED_ROW, Description, TornFile, build_index, encode_tail
from shuffle_server.store.output_file import load
from shuffle_transport.blocks import table_rows, totals_of
from shuffle_transport.checksum import BLOCK_ROW, FEW_ROWS
from tests.shuffle_server.helpers import SPEC, block

BLOCKS = [block(3, b"ccc"), block(1, b"a"), block(3, b"dddd"), block(0, b"")]


def write_file(path: Path) -> None:
    rows = table_rows(BLOCKS)
    description = Description("app", 3, 0, 1, 2, SPEC.partitions, "none", totals_of(rows))
    payload = b"".join(bytes(memoryview(b.payload)) for b in BLOCKS)
    path.write_bytes(payload + encode_tail(build_index([rows[:1], rows[1:]]), description))


@pytest.mark.parametrize("few", [0, FEW_ROWS])
def test_index_is_by_partition_and_keeps_the_order_within_one(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_module, "FEW_ROWS", few)
    rows = table_rows(BLOCKS)
    index = np.frombuffer(build_index([rows[:1], rows[1:]]), INDEX_ROW)
    assert index["partition"].tolist() == [0, 1, 3, 3]
    assert index["offset"].tolist() == [8, 3, 0, 4]
    assert index["length"].tolist() == [0, 1, 3, 4]
    assert sorted(index["crc32c"].tolist()) == sorted(rows["crc32c"].tolist())
    assert index["records"].tolist() == rows["records"][[3, 1, 0, 2]].tolist()


def test_index_of_nothing_is_empty() -> None:
    assert len(build_index([])) == 0
    assert len(build_index([np.empty(0, BLOCK_ROW)])) == 0


def test_file_reads_back_as_written(tmp_path: Path) -> None:
    write_file(tmp_path / "1.out")
    file = load(tmp_path / "1.out")
    assert file.description.output.attempt == 2
    assert file.description.totals == totals_of(table_rows(BLOCKS))
    assert file.entries(3, 8)["length"].tolist() == [3, 4]
    assert len(file.entries(4, 8)) == 0
    assert list(PACKED_ROW.iter_unpack(file.rows)) == file.index.tolist()


@pytest.mark.parametrize("keep", [0, 1, 31, 32, 40, -1])
def test_a_file_cut_anywhere_is_torn(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "1.out"
    write_file(path)
    os.truncate(path, keep if keep >= 0 else path.stat().st_size - 1)
    with pytest.raises(TornFile):
        load(path)


def test_a_flipped_bit_in_index_description_or_trailer_is_found_at_every_position(tmp_path: Path) -> None:
    path = tmp_path / "1.out"
    write_file(path)
    whole = path.read_bytes()
    payload_bytes = sum(b.length for b in BLOCKS)
    for at in range(payload_bytes, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(TornFile):
            load(path)
