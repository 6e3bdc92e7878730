"""A writer's queues: what overtakes what, what is kept, who may read."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import cast

import numpy as np
import pytest

from shuffle_api.errors import AttemptSuperseded, DeadlineExceeded, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import Alignment, Barrier, EndOfPartition, Guarantee
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.producer_registry import StreamConfig
from shuffle_plugins.pipelined.pump import pump
from shuffle_plugins.pipelined.queue_memory import QueueMemory
from shuffle_plugins.pipelined.result_partition import ResultPartition
from shuffle_plugins.pipelined.source import LocalSource
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView
from shuffle_transport.channels import BlockChannel
from shuffle_transport.pool import BufferPool

Make = Callable[..., ResultPartition]
UNALIGNED = StreamConfig(Guarantee.EXACTLY_ONCE, Alignment.UNALIGNED)
LATE = StreamConfig(Guarantee.EXACTLY_ONCE, Alignment.ALIGNED_WITH_TIMEOUT)


@pytest.fixture
def make() -> Iterator[Make]:
    """Opens outputs: `make(config, partitions, memory=...)`."""
    with ExitStack() as stack:

        def make_output(
            config: StreamConfig, partitions: int = 1, *, memory: int = 64 << 20, limit: int = 1 << 20
        ) -> ResultPartition:
            spec = ShuffleSpec(ShuffleId("output", 0), maps=1, partitions=partitions)
            pool = BufferPool(memory)
            output = ResultPartition(spec, MapAttempt(0, 0), config, QueueMemory(pool, 1.0, limit, 4 << 20))
            stack.callback(output.fail, StreamBroken("the test is over"))
            return output

        yield make_output


def put(output: ResultPartition, size: int = 100, partition: int = 0) -> None:
    with output.changed:
        output.locked_put(partition, bytes(size), 1)


def emit(output: ResultPartition, barrier: Barrier) -> None:
    with output.changed:
        calls = output.locked_emit(barrier)
    for call in calls:
        call()


def numbers(taken: tuple[list[SequencedBlock], list[SequencedMarker]]) -> tuple[list[int], list[int]]:
    """Of the blocks and of the markers."""
    return [block.number for block in taken[0]], [mark.number for mark in taken[1]]


def take(view: SubpartitionView) -> tuple[list[int], list[int]]:
    return numbers(view.take(1 << 20, 0))


def test_nothing_written_after_an_overtaking_barrier_goes_out_before_it(make: Make) -> None:
    output = make(UNALIGNED)
    view = output.subscribe("reader", 0, range(1), None)
    urgent: list[SequencedMarker] = []
    view.urgent = urgent.append
    put(output)
    with output.changed:
        calls = output.locked_emit(Barrier(1))
    put(output)  # by another thread, before the emitter has come to its calls
    assert take(view) == ([], [0])
    assert take(view) == ([0, 1], [])
    for call in calls:
        call()
    assert [mark.number for mark in urgent] == [0]


def test_barrier_that_has_overtaken_does_not_capture_again_when_its_time_is_up(make: Make) -> None:
    output = make(LATE)
    view = output.subscribe("reader", 0, range(1), None)
    view.urgent = lambda mark: None
    put(output)
    view.take(1 << 20, 0)  # it is in the sender's hand
    put(output)
    emit(output, Barrier(1))
    with output.changed:
        for _ in range(2):
            output.locked_overtake_late()
        state = output.locked_state(1)
    assert state is not None
    assert [block.number for block in state[1]] == [0, 1]


def test_log_is_kept_while_memory_suffices_though_not_for_twice_as_much(make: Make) -> None:
    output = make(StreamConfig(), memory=3 << 20, limit=2 << 20)
    view = output.subscribe("reader", 0, range(1), None)
    put(output, 900 << 10)
    view.take(2 << 20, 0)
    for _ in range(2):
        with output.changed:
            output.locked_wait_for_room(500 << 10, 0.0)
        put(output, 500 << 10)
    assert output.statistics().forgotten_blocks == 0


def test_state_that_was_handed_out_stays_though_its_barrier_is_sent_again(make: Make) -> None:
    output = make(LATE)
    first = output.subscribe("first", 0, range(1), None)
    put(output)
    emit(output, Barrier(1))
    assert take(first) == ([0], [0])
    assert take(first) == ([], [])  # both are out
    with output.changed:
        state = output.locked_state(1)
    assert state is not None
    assert state[1] == []
    output.subscribe("second", 1, range(1), None)  # all of it waits again
    with output.changed:
        assert output.locked_overtake_late() == []
        assert output.locked_state(1) == state


def test_superseded_reader_that_has_come_to_its_end_consumes_nothing(make: Make) -> None:
    output = make(StreamConfig())
    first = output.subscribe("first", 0, range(1), None)
    put(output)
    with output.changed:
        output.locked_emit(EndOfPartition(0))
    output.subscribe("second", 1, range(1), None)
    first.close(finished=True)
    assert not output.consumed


def test_reader_that_is_refused_one_partition_has_taken_none(make: Make) -> None:
    output = make(StreamConfig(), partitions=2)
    early = output.subscribe("early", 0, range(1), None)
    output.subscribe("late", 2, range(1, 2), None)
    with pytest.raises(AttemptSuperseded):
        output.subscribe("both", 1, range(2), None)
    early.check()
    assert output.connected == 2


def test_log_counts_while_nothing_waits_and_is_given_up_when_memory_is_short(make: Make) -> None:
    output = make(StreamConfig(), memory=2 << 20)
    view = output.subscribe("reader", 0, range(1), None)
    for _ in range(3):
        with output.changed:
            output.locked_wait_for_room(900 << 10, 0.0)
        put(output, 900 << 10)
        view.take(1 << 20, 0)
        found = output.statistics()
        assert found.logged_bytes <= found.reserved_bytes <= 2 << 20
    assert found.forgotten_blocks > 0


def test_failed_output_keeps_no_data(make: Make) -> None:
    output = make(LATE)
    view = output.subscribe("reader", 0, range(1), None)
    payload = np.zeros(100, np.uint8)
    gone = weakref.ref(payload)
    with output.changed:
        output.locked_put(0, payload.data, 1)
    view.take(100, 0)
    emit(output, Barrier(1, unaligned=True))
    del payload
    output.fail(StreamBroken("it gave up"))
    assert gone() is None
    assert not output.knows(1)


def test_queue_may_be_full_again_when_the_slow_reader_has_left(make: Make) -> None:
    output = make(StreamConfig())
    slow = output.subscribe("slow", 0, range(1), None)
    slow.resize(64 << 10)
    assert output.limit == 64 << 10
    slow.close()
    assert output.limit == 1 << 20
    output.subscribe("next", 1, range(1), None).resize(64 << 10)
    output.subscribe("last", 2, range(1), None)
    assert output.limit == 1 << 20


def test_who_waits_for_a_barrier_is_told_when_it_is_out(make: Make) -> None:
    output = make(LATE)
    view = output.subscribe("reader", 0, range(1), None)
    emit(output, Barrier(1))
    assert take(view) == ([], [0])
    found: list[object] = []

    def wait() -> None:
        with output.changed:
            waiting.set()
            output.changed.wait_for(lambda: output.locked_state(1) is not None, 30.0)
            found.append(output.locked_state(1))
            assert time.monotonic() < deadline

    waiting, deadline = threading.Event(), time.monotonic() + 30.0
    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(30.0)
    assert take(view) == ([], [])
    thread.join()
    assert found[0] is not None


def test_markers_pass_a_reader_in_this_process_that_has_no_room(make: Make) -> None:
    output = make(UNALIGNED)
    source = LocalSource(output.subscribe("reader", 0, range(1), None), window=100)
    put(output, 100)
    assert len(source.receive(1.0).blocks) == 1
    put(output, 100)
    emit(output, Barrier(1))
    assert [mark.number for mark in source.receive(0.1).marks] == [0]
    with pytest.raises(DeadlineExceeded):
        source.receive(0.0)


class Silent:
    """A reader's channel on which nothing comes for some time, then that it leaves."""

    ready = False

    def __init__(self) -> None:
        self.looks = 0

    def send_control(self, message: bytes, timeout: float) -> None: ...

    def receive(self, timeout: float) -> None:
        self.looks += 1
        if self.looks < 5:
            raise DeadlineExceeded("nothing came")


def test_reader_may_take_long_over_what_it_has_after_the_end(make: Make) -> None:
    output = make(StreamConfig())
    view = output.subscribe("reader", 0, range(1), None)
    with output.changed:
        output.locked_emit(EndOfPartition(0))
    channel = Silent()
    pump(view, cast(BlockChannel, channel), 0.1)
    assert channel.looks == 5
    assert output.consumed


class Prompt(Silent):
    """A channel whose reader leaves as soon as it has the end."""

    def send_control(self, message: bytes, timeout: float) -> None:
        self.ready = b'"end"' in message

    def receive(self, timeout: float) -> None:
        return None


def test_reader_that_leaves_at_once_with_the_end_has_read_everything(make: Make) -> None:
    output = make(StreamConfig())
    view = output.subscribe("reader", 0, range(1), None)
    with output.changed:
        output.locked_emit(EndOfPartition(0))
    pump(view, cast(BlockChannel, Prompt()), 0.1)
    assert output.consumed
