"""Records of 20 bytes, answers of 50; whole blocks at a time, and as if one by one."""

from __future__ import annotations

import struct

import numpy as np

from bench.streaming.identity import ANSWER, SAMPLE, Maker, Operator
from shuffle_api.records import unpack_records


def test_records_have_their_time_and_number_one_after_the_other() -> None:
    maker = Maker(4, first=1, step=3)
    blocks = [maker.block(4, 7), maker.block(2, np.array([8, 9]))]
    records = [struct.unpack("<qq4s", record) for block in blocks for record in unpack_records(block)]
    assert [made for made, _, _ in records] == [7, 7, 7, 7, 8, 9]
    assert [number for _, number, _ in records] == [1, 4, 7, 10, 13, 16]
    assert {rest for _, _, rest in records} == {b"rest"}
    assert maker.number_sum == 1 + 4 + 7 + 10 + 13 + 16


def test_answers_are_the_record_and_its_times() -> None:
    maker, operator = Maker(8, first=0, step=1), Operator()
    block = maker.block(8, 5)
    assert operator.take(block) == 8
    assert ANSWER.itemsize == 50
    for record, answer in zip(unpack_records(block), operator.answers(8), strict=True):
        assert answer.tobytes()[:20] == record
        assert answer["made"] == 5
        assert answer["seen"] > 5


def test_operator_counts_what_it_took_and_samples_every_so_many() -> None:
    maker, operator = Maker(50, first=0, step=1), Operator()
    for count in (3, 50, 0, 47):
        operator.take(maker.block(count, 5))
    assert (operator.records, operator.number_sum) == (100, maker.number_sum)
    assert len(operator.latencies_ms()) == len(range(0, 100, SAMPLE))
