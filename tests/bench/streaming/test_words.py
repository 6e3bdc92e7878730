"""Word count: what numpy and Arrow count is what a Counter counts."""

from __future__ import annotations

import collections
import json

import pytest

from bench.streaming import words
from shuffle_api.records import unpack_records


def test_lines_are_json_of_150_bytes() -> None:
    for number in (0, 8191):
        line = words.line(number, 100)
        assert len(line) == 150
        assert json.loads(line)["number"] == number
        assert json.loads(line)["word"] == f"word{number * 7919 % 100:06d}"


@pytest.mark.parametrize("partitions", [1, 3])
def test_windows_are_those_of_a_counter(partitions: int) -> None:
    lines, left = words.Lines(words=37, piece=1000), 12_345
    counters = [words.Counter() for _ in range(partitions)]
    expected = collections.Counter[bytes]()
    while left:
        text = lines.next(left)
        expected.update(json.loads(line)["word"].encode() for line in text.splitlines())
        batch = words.parse(text)
        for partition, payload in words.by_partition(batch, partitions).items():
            assert counters[partition].take(payload) == len(list(unpack_records(payload)))
        left -= batch.num_rows
    windows = sum(count // words.WINDOW for count in expected.values())
    assert sum(counter.windows for counter in counters) == windows
    assert sum(counter.records for counter in counters) == 12_345
    assert words.expected_windows(12_345, 1, 37) == windows
