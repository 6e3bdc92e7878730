"""A reader's side by itself: how long it waits for what, and what it makes of markers."""

from __future__ import annotations

import pytest

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
from shuffle_plugins.pipelined import input_receiver as receivers
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.input_gate import InputGate
from shuffle_plugins.pipelined.producer_registry import ProducerLocation, StreamConfig
from shuffle_plugins.pipelined.source import Received, Source
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, write

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
    receiver = receivers.InputReceiver(
        SHUFFLE, gate.inputs[0], gate, lambda bound, position: sources.pop(0), StreamConfig(), 30.0
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
