"""Lag and progress of streams: what is written, waits, and was acknowledged, as values, as JSON and as tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shuffle_api.streaming import Barrier, Captured, Watermark
from shuffle_plugins.pipelined import DataBlock
from shuffle_plugins.pipelined.progress import MOST_ROWS, InputStatistics, SubpartitionStatistics, writer_table
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import records_of, until, write
from tests.shuffle_transport.channels.helpers import eventually


def test_lag_is_what_the_reader_has_not_acknowledged(scene: Open) -> None:
    there = scene(partitions=2)
    with there.writer() as writer:
        write(writer, range(100, 110), partition=0)
        write(writer, range(200, 203), partition=1)
        writer.flush()
        one, two = writer.statistics().subpartitions
        assert (one.partition, one.records_out, one.queued_records, one.unacknowledged_records) == (0, 10, 10, 0)
        assert (two.partition, two.records_out, two.lag_records, two.lag_seconds > 0) == (1, 3, 3, True)
        assert one.bytes_out == one.queued_bytes == 10 * (4 + 3)
        with there.reader(range(1)) as reader:
            writer.emit(Barrier(0))
            events = until(reader, Captured)
            assert len(records_of(events)) == 10
            one, two = writer.statistics().subpartitions
            assert (one.queued_records, one.unacknowledged_records, one.lag_records) == (0, 10, 10)
            assert two.queued_records == 3
            before = writer.statistics()
            assert before.lag_records == 13
            reader.acknowledge(0)
            eventually(lambda: writer.statistics().subpartitions[0].lag_records == 0)
            found = writer.statistics()
            assert found.subpartitions[0] == SubpartitionStatistics(0, 10, 70, 0, 0, 0, 0, 0.0)
            assert (found.lag_records, found.records_out, found.bytes_out) == (3, 13, 91)
            assert found.lag_seconds >= before.subpartitions[1].lag_seconds > 0


def test_reader_counts_by_map_and_partition_and_has_the_watermarks(scene: Open) -> None:
    there = scene(partitions=2, maps=2)
    with there.writer(0) as one, there.writer(1) as two, there.reader() as reader:
        write(one, range(5), partition=1)
        one.emit(Watermark(1000))
        two.emit(Watermark(400))
        events = until(reader, Watermark)
        assert events[-1] == Watermark(400)
        found = reader.statistics()
        rows = {(each.map, each.partition): each for each in found.inputs}
        assert set(rows) == {(0, 0), (0, 1), (1, 0), (1, 1)}
        assert (found.watermark, found.watermark_lag(1500), found.lag_records) == (400, 1100, 0)
        assert rows[1, 0] == InputStatistics(1, 0, 0, 0, 0, 0, 400)
        assert rows[0, 1] == InputStatistics(0, 1, 5, 5 * (4 + 1), 0, 0, 1000)
        write(one, range(7), partition=0)
        one.flush()
        eventually(lambda: reader.statistics().lag_records == 7)
        assert isinstance(reader.poll(60.0), DataBlock)
        assert reader.statistics().lag_records == 0


def test_statistics_are_json_and_a_table(scene: Open) -> None:
    there = scene(partitions=2)
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(1500), partition=1)
        writer.emit(Watermark(50))
        until(reader, Watermark)
        written, read = writer.statistics(), reader.statistics()
        plain = json.loads(json.dumps(written.as_dict()))
        assert plain["subpartitions"][1]["records_out"] == plain["records"] == 1500
        assert plain["lag_records"] == sum(each["lag_records"] for each in plain["subpartitions"])
        assert 0 <= plain["back_pressured_share"] <= 1
        plain = json.loads(json.dumps(read.as_dict()))
        assert plain["inputs"][1] == {**plain["inputs"][1], "map": 0, "partition": 1, "records_in": 1500}
        assert (plain["watermark"], plain["lag_records"]) == (50, 0)
        head, names, *rows = written.table().splitlines()
        assert head.startswith("1,500 records (")
        assert names.split()[:3] == ["PARTITION", "RECORDS", "OUT"]
        assert sorted(row.split()[0] for row in rows) == ["0", "1"]
        head, names, *rows = read.table(now=80).splitlines()
        assert "watermark 50, 30 behind" in head
        assert names.endswith("WATERMARK LAG")
        assert [row.split()[-1] for row in rows] == ["30", "30"]


def test_shares_and_rates_are_of_the_time_between_two_moments(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as reader:
        first = replace(writer.statistics(), open_seconds=10.0, back_pressured_seconds=1.0, records=100)
        second = replace(first, open_seconds=14.0, back_pressured_seconds=2.0, records=500)
        assert first.back_pressured_share() == pytest.approx(0.1)
        assert second.back_pressured_share(first) == pytest.approx(0.25)
        assert "100 records/s; back-pressured 25%" in second.table(first)
        assert first.back_pressured_share(first) == 0
        idle = replace(reader.statistics(), open_seconds=10.0, starved_seconds=5.0)
        assert replace(idle, open_seconds=12.0, starved_seconds=7.0).idle_share(idle) == 1.0


def test_table_of_many_partitions_has_the_largest_lags() -> None:
    rows = [SubpartitionStatistics(p, 1000, 4000, p, 4 * p, 0, 0, 0.5) for p in range(100)]
    text = writer_table(rows)
    assert [line.split()[0] for line in text.splitlines()[1:4]] == ["99", "98", "97"]
    assert text.splitlines()[-1] == f"({MOST_ROWS} of 100 subpartitions, the largest lags)"
    assert "500 ms" in text
