"""What writers and readers count by partition, whichever way the records went."""

from __future__ import annotations

import json

from tests.shuffle_plugins.hybrid.conftest import Open
from tests.shuffle_plugins.hybrid.scene import eventually, taken, write


def test_records_count_once_live_or_from_the_store(scene: Open) -> None:
    there = scene(partitions=2, wait=60.0)
    with there.writer() as writer, there.reader() as reader:
        records = iter(reader)
        write(writer, 0, 30)
        writer.flush()
        waiting = writer.statistics()
        assert [each.records_out for each in waiting.subpartitions] == [30, 0]
        taken(records, 30)
        eventually(lambda: writer.statistics().lag_records == 0)
        live = reader.statistics()
        assert (live.records_in, live.lag_records) == (30, 0)
        writer.write(1, b"of the other")
        writer.commit()
        list(records)
        found = reader.statistics()
        assert {(each.map, each.partition): each.records_in for each in found.inputs} == {(0, 0): 30, (0, 1): 1}
        assert sum(each.bytes_in for each in found.inputs) == found.live_bytes + found.stored_bytes
    with there.reader() as again:
        list(again)
        assert again.statistics().records_in == 31
        assert json.loads(json.dumps(again.statistics().as_dict()))["inputs"][0]["records_in"] == 30
        assert again.statistics().table().startswith("31 records in")
    assert json.loads(json.dumps(writer.statistics().as_dict()))["subpartitions"][0]["records_out"] == 30
    assert writer.statistics().table(waiting).splitlines()[0].startswith("31 records (")


def test_what_no_live_reader_takes_is_lag(scene: Open) -> None:
    there = scene(wait=60.0)
    with there.writer() as writer:
        write(writer, 0, 5)
        writer.flush()
        [row] = writer.statistics().subpartitions
        assert (row.lag_records, row.lag_seconds > 0, row.unacknowledged_records) == (5, True, 0)
        writer.commit()  # the store has it: nobody lags
        assert writer.statistics().lag_records == 0
