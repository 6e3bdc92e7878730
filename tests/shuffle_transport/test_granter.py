"""Granting within the memory budget: one stream by hand, then many streams under any schedule."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shuffle_api.errors import InvalidArgument, Overloaded, ShuttingDown
from shuffle_transport.credits import SendWindow
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool

MIB = 1 << 20
LONG = 30.0


def test_the_first_credit_is_reserved_and_given_back() -> None:
    pool = BufferPool(8 * MIB)
    with Granter(pool, 0) as granter:
        assert granter.granted == granter.statistics().reserved == pool.statistics().used == MIB
    granter.close()
    assert pool.statistics().used == 0


def test_a_stream_for_which_there_is_no_room_is_refused() -> None:
    pool = BufferPool(MIB + 1)
    with Granter(pool, 0), pytest.raises(Overloaded, match=str(MIB)):
        Granter(pool, 0.01)


def test_a_closed_pool_takes_no_stream() -> None:
    pool = BufferPool(8 * MIB)
    pool.close()
    with pytest.raises(ShuttingDown):
        Granter(pool, 0)


def test_a_window_below_the_initial_credit_is_refused_before_anything_is_reserved() -> None:
    pool = BufferPool(8 * MIB)
    with pytest.raises(InvalidArgument):
        Granter(pool, 0, maximum=1000)
    assert pool.statistics().used == 0


def test_a_busy_stream_grows_within_the_budget() -> None:
    pool = BufferPool(64 * MIB)
    with Granter(pool, 0, maximum=8 * MIB) as granter:
        assert granter.received(MIB, 100 * MIB) == 2 * MIB
        assert granter.statistics().held == MIB
        assert granter.consumed(MIB) == 5 * MIB
        statistics = granter.statistics()
        assert (statistics.target, statistics.reserved, statistics.held, statistics.grants) == (4 * MIB, 4 * MIB, 0, 2)
        assert (statistics.received, statistics.consumed, statistics.backlog) == (MIB, MIB, 100 * MIB)


def test_what_was_added_up_counts_as_what_came_one_by_one() -> None:
    pool = BufferPool(64 * MIB)
    with Granter(pool, 0, announced=True) as single, Granter(pool, 0, announced=True) as sums:
        grants = []
        for _ in range(6):  # more than half of the first credit
            assert single.received(100_000) is None
            grants.append(single.consumed(100_000))
        assert grants[:5] == [None] * 5
        assert sums.moved(600_000, 6, 100_000, 600_000) == grants[5] == MIB + 600_000
        assert sums.moved(0, 0, 0, 0) is None
        assert sums.statistics() == single.statistics()


def test_more_than_arrived_cannot_be_given_back() -> None:
    with Granter(BufferPool(64 * MIB), 0) as granter, pytest.raises(InvalidArgument, match="consumed"):
        granter.moved(10, 1, 10, 11)


@pytest.mark.parametrize("room", [0, MIB - 1])  # with some the pool is not pressed, and yet it is not enough
def test_a_stream_without_room_to_grow_goes_on_with_what_it_has(room: int) -> None:
    pool = BufferPool(2 * MIB + room, high=1, low=1)
    with pool.reserve(MIB, 0), Granter(pool, 0) as granter:
        assert granter.received(MIB, 100 * MIB) is None
        assert granter.consumed(MIB) == 2 * MIB
        assert granter.statistics().reserved == MIB


def test_a_pressed_pool_stops_growth_before_it_is_full() -> None:
    pool = BufferPool(10 * MIB, high=0.5, low=0.3)
    with pool.reserve(5 * MIB, 0), Granter(pool, 0) as granter:
        granter.received(MIB, 100 * MIB)
        assert granter.consumed(MIB) == 2 * MIB


def test_a_pressed_pool_takes_nothing_from_a_window_while_nobody_waits() -> None:
    pool = BufferPool(20 * MIB, high=0.5, low=0.3)
    with Granter(pool, 0, announced=True) as granter:
        for _ in range(2):
            granter.received(MIB, 100 * MIB)
            granter.consumed(MIB)
        grown = granter.statistics().target
        assert grown > MIB
        with pool.reserve(10 * MIB, 0):
            assert pool.pressed
            for _ in range(4):
                granter.received(MIB // 4)
                granter.consumed(MIB // 4)
            assert granter.statistics().target == grown


def test_a_batch_larger_than_the_window_counts_while_it_is_held() -> None:
    pool = BufferPool(4 * MIB)
    with Granter(pool, 0) as granter:
        granter.received(10 * MIB)
        assert pool.statistics().used == 10 * MIB
        assert pool.pressed
        assert granter.consumed(10 * MIB) == 11 * MIB
        assert pool.statistics().used == MIB


def test_overspending_is_refused() -> None:
    with Granter(BufferPool(MIB), 0) as granter:
        granter.received(MIB)
        with pytest.raises(InvalidArgument, match="credit left"):
            granter.received(MIB + 1)


class Stream:
    """One stream whose wires are empty whenever nothing is held: each batch arrives at once."""

    def __init__(self, pool: BufferPool, announced: bool) -> None:
        self.granter = Granter(pool, 0, announced=announced)
        self.announced = announced
        self.window = SendWindow()
        self.unsent: deque[int] = deque()
        self.held: deque[int] = deque()

    def send(self, *, hungry: bool = False) -> bool:
        """Whether the first unsent batch went out; if not, the backlog was announced."""
        after = self.window.try_send(self.unsent[0])
        if after is None:
            if self.announced:
                self.window = self.window.waits(sum(self.unsent))
                self.hear(self.granter.received(0, sum(self.unsent), hungry=hungry))
            return False
        self.window = after
        self.held.append(self.unsent.popleft())
        self.hear(self.granter.received(self.held[-1]))
        return True

    def idle(self) -> None:
        self.window = self.window.idle()
        self.hear(self.granter.received(0, 0))

    def consume(self) -> None:
        self.hear(self.granter.consumed(self.held.popleft()))

    def hear(self, granted: int | None) -> None:
        if granted is not None:
            self.window = self.window.granted_to(granted)


class Distant(Stream):
    """One whose consumer is quick and whose grants are long under way: they come when the sender has to wait."""

    def hear(self, granted: int | None) -> None:
        self.coming = granted or getattr(self, "coming", 0)

    def go_on(self, size: int) -> None:
        """Send 40 batches of this size."""
        for _ in range(40):
            self.unsent.append(size)
            while not self.send(hungry=True):
                super().hear(self.coming)
            self.consume()


@pytest.mark.parametrize("size", [MIB // 4, MIB, 3 * MIB])
def test_streams_that_are_always_busy_make_room_for_new_ones(size: int) -> None:
    pool = BufferPool(16 * MIB)
    busy = [Distant(pool, announced=True) for _ in range(2)]

    def go_on_until(true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONG
        while not true():
            assert time.monotonic() < deadline
            for stream in busy:
                stream.go_on(size)

    def grown() -> bool:
        return pool.statistics().used > 7 * MIB

    go_on_until(grown)
    with pool.reserve(pool.budget - pool.statistics().used, 0):  # so that nothing is left
        with ThreadPoolExecutor(4) as threads:
            new = [threads.submit(Granter, pool, 2 * LONG) for _ in range(4)]
            try:
                go_on_until(lambda: all(granter.done() for granter in new))
            finally:
                pool.close()
        for granter in new:
            granter.result().close()
    for stream in busy:
        stream.granter.close()
    assert pool.statistics().used == 0


class ManyStreams(RuleBasedStateMachine):
    """Streams come, send, stop and go; none waits for ever and memory stays within the budget."""

    @initialize(budget=st.integers(2, 40), high=st.sampled_from([0.5, 0.75, 1]))
    def start(self, budget: int, high: float) -> None:
        self.pool = BufferPool(budget * MIB, high=high, low=high / 2)
        self.streams: list[Stream] = []

    @rule(announced=st.booleans())
    def open(self, announced: bool) -> None:
        try:
            self.streams.append(Stream(self.pool, announced))
        except Overloaded:
            assert self.pool.statistics().used > self.pool.budget - MIB

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), sizes=st.lists(st.integers(0, 5 * MIB), min_size=1, max_size=5))
    def write(self, data: st.DataObject, sizes: list[int]) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        stream.unsent += sizes
        while stream.unsent and stream.send():
            pass

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        if stream.held:
            stream.consume()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def idle(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        if stream.announced and not stream.unsent:
            stream.idle()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def run_dry(self, data: st.DataObject) -> None:
        """One stream comes to its end while all the others stand still, holding what they hold."""
        stream = data.draw(st.sampled_from(self.streams))
        while stream.unsent or stream.held:
            if stream.held:
                stream.consume()
            elif not stream.send():
                assert stream.send(), f"deadlock: {stream.window}, {stream.granter.statistics()}"

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.streams.pop(data.draw(st.integers(0, len(self.streams) - 1))).granter.close()

    @invariant()
    def memory_is_accounted_for(self) -> None:
        if not hasattr(self, "pool"):
            return
        statistics = [stream.granter.statistics() for stream in self.streams]
        assert self.pool.statistics().used == sum(s.reserved for s in statistics)
        assert all(s.reserved >= max(s.held, s.granted - s.consumed) for s in statistics)
        # Above the budget only by batches that were larger than their window.
        beyond = sum(max(0, s.received - s.granted) for s in statistics)
        assert self.pool.statistics().used <= self.pool.budget + beyond

    def teardown(self) -> None:
        for stream in getattr(self, "streams", []):
            stream.granter.close()
        assert not hasattr(self, "pool") or self.pool.statistics().used == 0


ManyStreams.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestManyStreams = ManyStreams.TestCase
