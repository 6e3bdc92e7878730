"""What the plugin's own thread meets in one writer fails that writer, with its reason, and no other."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from shuffle_api.columnar import HashPartitioner
from shuffle_api.errors import InternalError, InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.streaming import Barrier
from shuffle_plugins.pipelined import DataBlock, PipelinedWriter
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene, data, records_of, until

EXACTLY: dict[str, OptionValue] = {
    "guarantee": "exactly_once",
    "alignment": "aligned_with_timeout",
    "alignment_timeout": 0.2,
    "window": "1m",
    "debloat_target": 0.0,
    "linger": 0.0,
}


def words(start: int) -> pa.RecordBatch:
    """Arrow joins no two of them: a dictionary within a struct has a null among its values."""
    values = pa.array([f"w{start}", None])
    nested = pa.StructArray.from_arrays([pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values)], ["d"])
    return pa.record_batch({"k": [start, start], "s": nested})


def second_writer(there: Scene) -> PipelinedWriter:
    """Of another shuffle of the same plugin."""
    return there.plugin.writer(there.master.register_shuffle(1, 1), MapAttempt(0, 0))


def await_failure(writer: PipelinedWriter) -> None:
    """Return when the plugin's thread has come by."""
    deadline = time.monotonic() + WAIT
    while writer.usable:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("options", [{}, EXACTLY])
def test_dictionaries_that_cannot_be_joined_fail_their_writer_only(
    scene: Open, options: dict[str, OptionValue]
) -> None:
    there = scene(content="arrow", **options)
    with there.writer() as good, second_writer(there) as bad, there.reader() as reader:
        for start in (0, 100):
            bad.write_batch(words(start), HashPartitioner("k"))
        await_failure(bad)
        for call in (bad.flush, bad.commit, lambda: bad.write_batch(words(0), HashPartitioner("k"))):
            with pytest.raises(InvalidArgument, match="column 's' of 2 batches cannot be joined"):
                call()
        for number in range(3):  # without a flush: it is the ticker that sends them
            good.write_batch(pa.record_batch({"x": [number]}), HashPartitioner("x"))
            assert isinstance(until(reader, DataBlock)[-1], DataBlock)


def test_barriers_of_the_others_still_overtake(scene: Open) -> None:
    there = scene(content="arrow", **EXACTLY)
    with there.writer() as good, second_writer(there) as bad, there.reader():
        for start in (0, 100):
            bad.write_batch(words(start), HashPartitioner("k"))
        await_failure(bad)
        for _ in range(3):
            good.write_batch(pa.record_batch({"x": list(range(100_000))}), HashPartitioner("x"))
        good.emit(Barrier(1))
        assert good.state(1, WAIT).checkpoint == 1


def test_an_exception_that_nobody_expected_is_named(
    scene: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there = scene()
    with there.writer() as good, second_writer(there) as bad, there.reader() as reader:

        def broken() -> None:
            raise MemoryError("no room for a block")

        monkeypatch.setattr(bad, "flush_late", broken)
        bad.write(0, b"x")
        await_failure(bad)
        with pytest.raises(InternalError, match="MemoryError: no room for a block"):
            bad.write(0, b"y")
        assert "the flush of map 0 attempt 0" in caplog.text
        good.write(0, b"1")
        assert records_of(until(reader, DataBlock)) == data(1)
