"""A reader's side by itself: how long it waits for what, and what it makes of markers."""

from __future__ import annotations

import time

import pytest

from bench.harness.cluster import wait_until
from shuffle_api.errors import DeadlineExceeded, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import (
    Alignment,
    Barrier,
    Captured,
    EndOfPartition,
    Guarantee,
    Idle,
    Marker,
    Position,
    Watermark,
)
from shuffle_plugins.pipelined import PipelinedReader, PipelinedShuffle
from shuffle_plugins.pipelined import input_receiver as receivers
from shuffle_plugins.pipelined.driver_registry import DriverRegistry
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.input_gate import InputGate
from shuffle_plugins.pipelined.producer_registry import ProducerLocation, StreamConfig
from shuffle_plugins.pipelined.registry_watch import RegistryWatch
from shuffle_plugins.pipelined.source import Received, Source
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, data, records_of, rest, write

SHUFFLE = ShuffleId("inbox", 0)
LATE = StreamConfig(Guarantee.EXACTLY_ONCE, Alignment.ALIGNED_WITH_TIMEOUT, alignment_timeout=100.0)
END = Received([], [], [SequencedMarker(0, 0, EndOfPartition(0))], {0: 0})


class Scripted(Source):
    """Breaks 100 s of `clock` after it was opened, or gives the end."""

    first = Position({0: 0})

    def __init__(self, clock: list[float], *, breaks: bool) -> None:
        self.clock, self.breaks = clock, breaks

    def receive(self, timeout: float) -> Received:
        if not self.breaks:
            return END
        self.clock[0] += 100.0
        raise StreamBroken("the connection broke")

    def release(self, stored: int) -> None: ...

    def resize(self, window: int, timeout: float) -> None: ...

    def acknowledge(self, position: Position, timeout: float) -> None: ...

    def finish(self, timeout: float) -> None: ...

    def close(self) -> None: ...


def test_connection_may_come_back_however_long_it_had_been_there(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(receivers, "ServingClock", lambda cap: lambda: clock[0])
    gate = InputGate(SHUFFLE, range(1), StreamConfig(), None)
    sources = [Scripted(clock, breaks=True), Scripted(clock, breaks=True), Scripted(clock, breaks=False)]
    watch = RegistryWatch(SHUFFLE, lambda: DriverRegistry(lambda shuffle: None))
    receiver = receivers.InputReceiver(
        watch, gate.inputs[0], gate, lambda bound, position: sources.pop(0), StreamConfig(), 30.0
    )
    receiver.on_event(ProducerLocation(MapAttempt(0, 0), "there"))
    receiver.start()
    try:
        while gate.take(WAIT) is not None:
            pass
    finally:
        receiver.close()
    assert receiver.reconnects == 2


def arrives(gate: InputGate, map: int, number: int, marker: Marker) -> None:
    gate.put(
        gate.inputs[map], Scripted([0.0], breaks=False), Received([], [], [SequencedMarker(0, number, marker)], {})
    )


def test_time_of_an_alignment_ends_with_its_checkpoint() -> None:
    gate = InputGate(SHUFFLE, range(2), LATE, None)
    arrives(gate, 0, 0, Barrier(1))
    assert gate._overtake_at is not None
    arrives(gate, 1, 0, Barrier(1))
    assert gate.take(WAIT) == Barrier(1)
    assert isinstance(gate.take(WAIT), Captured)
    assert gate._overtake_at is None


def test_input_counts_again_when_its_data_is_handed_out() -> None:
    gate = InputGate(SHUFFLE, range(2), StreamConfig(), None)
    arrives(gate, 0, 0, Idle())
    block = SequencedBlock(0, 0, 0, 1, b"block", 5)
    gate.put(gate.inputs[0], Scripted([0.0], breaks=False), Received([block], [5], [], {}))
    assert isinstance(gate.take(WAIT), tuple)
    arrives(gate, 1, 0, Watermark(10))
    with pytest.raises(DeadlineExceeded):
        gate.take(0.0)


def test_barrier_before_the_end_overtakes_when_its_time_is_up(scene: Open) -> None:
    there = scene(guarantee="exactly_once", alignment="aligned_with_timeout", alignment_timeout=0.05)
    with there.writer() as writer:
        write(writer, range(3))
        writer.emit(Barrier(1))
        writer.commit()
        assert [block.records for block in writer.state(1, WAIT).blocks] == [3]


def break_directory(plugin: PipelinedShuffle) -> None:
    """The connection to the driver ends, and the plugin has noticed."""
    [channel] = plugin._endpoint._registries.values()
    channel._channel.cancel("as if the driver had been away for too long")
    wait_until(lambda: channel.broken, "the connection has ended")


def test_reader_finds_a_producer_that_came_after_the_connection_to_the_driver_had_broken(scene: Open) -> None:
    there = scene()
    with PipelinedShuffle({"local": False, "timeout": WAIT}) as other, other.reader(there.handle, range(1)) as reader:
        break_directory(other)
        with there.writer() as writer:
            write(writer, range(10))
            writer.commit()
            assert records_of(rest(reader)) == data(*range(10))


def test_reader_of_a_producer_that_was_replaced_while_the_driver_was_away_reads_the_next_one(scene: Open) -> None:
    there = scene(guarantee="at_least_once")
    with PipelinedShuffle({"local": False, "timeout": WAIT}) as other, other.reader(there.handle, range(1)) as reader:
        with there.writer() as writer:
            write(writer, range(10))
            writer.flush()
            got = records_of([reader.poll(WAIT)])  # type: ignore[list-item]
            break_directory(other)
            writer.abort()
        with there.writer(attempt=1) as writer:
            write(writer, range(20))
            writer.commit()
            got += records_of(rest(reader))
    assert set(got) == set(data(*range(20)))


def test_reader_whose_driver_is_gone_says_so_and_is_not_told_to_ask_again(scene: Open) -> None:
    there = scene()
    with PipelinedShuffle({"local": False, "timeout": 1.0}) as other, other.reader(there.handle, range(1)) as reader:
        there.plugin._endpoint.close(0.0)  # nothing is unregistered: a driver that dies says nothing
        with pytest.raises(StreamBroken, match="the driver is lost: "):
            poll_to_the_end(reader)


def test_a_look_while_another_thread_looks_does_not_say_that_the_driver_is_there() -> None:
    away = StreamBroken("nobody answers")

    def find() -> DriverRegistry:
        if looks:
            assert watch.renew() is looks[0]  # as of another thread meanwhile
        looks.append(away)
        raise away

    looks: list[StreamBroken] = []
    watch = RegistryWatch(SHUFFLE, find)
    with pytest.raises(StreamBroken):
        watch.begin(lambda event: None)
    looks.clear()
    assert [watch.renew(), watch.renew()] == [away, away]


def poll_to_the_end(reader: PipelinedReader) -> None:
    """As a task that has other things to do."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            if reader.poll(0.05) is None:
                return
        except DeadlineExceeded:
            continue


def test_an_error_that_is_asked_for_again_and_again_does_not_grow() -> None:
    gate = InputGate(SHUFFLE, range(1), StreamConfig(), None)
    gate.fail(StreamBroken("the producer is lost"))
    lengths = set()
    for _ in range(3):
        with pytest.raises(StreamBroken) as caught:
            gate.take(WAIT)
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1
