"""The byte budget: turns, deadlines, watermarks, and that what is reserved comes back."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shuffle_api.errors import InvalidArgument, Overloaded, ShuttingDown
from shuffle_transport.pool import BufferPool, Reservation

LONG = 60.0  # a deadline that only a failing test meets
FOREVER = 3600.0  # of a wait that must be ended by somebody: at its deadline it would look again, and pass


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere; the test's own timeout is the deadline."""
    waiting = threading.Event()
    while not condition():
        waiting.wait(0.001)


def waiting(pool: BufferPool, count: int) -> None:
    until(lambda: pool.statistics().waiting == count)


def test_a_reservation_counts_until_it_is_closed() -> None:
    pool = BufferPool(100)
    with pool.reserve(60, 0) as reservation:
        assert reservation.size == pool.statistics().used == 60
        assert pool.statistics().reservations == 1
    assert pool.statistics().used == pool.statistics().reservations == 0
    assert pool.statistics().peak == 60


def test_closing_twice_gives_back_once() -> None:
    pool = BufferPool(100)
    with pool.reserve(60, 0), pool.reserve(10, 0) as small:
        small.close()
        small.close()
        assert pool.statistics().used == 60


def test_the_budget_can_be_used_to_the_last_byte() -> None:
    pool = BufferPool(100)
    with pool.reserve(60, 0):
        assert pool.try_reserve(41) is None
        with pool.reserve(40, 0):
            assert pool.try_reserve(1) is None


def test_a_wait_without_room_ends_with_the_numbers() -> None:
    pool = BufferPool(100)
    with pool.reserve(60, 0):
        with pytest.raises(Overloaded) as caught:
            pool.reserve(50, 0.01)
        assert "50 bytes" in str(caught.value)
        assert "60 of 100" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert pool.statistics().refused == 1
        assert pool.statistics().waiting == 0
        assert pool.statistics().stall_seconds > 0


def test_a_waiter_gets_what_is_given_back() -> None:
    pool = BufferPool(100)
    with ThreadPoolExecutor(1) as threads:
        first = pool.reserve(60, 0)
        second = threads.submit(pool.reserve, 50, FOREVER)
        waiting(pool, 1)
        assert pool.statistics().waiting_bytes == 50
        first.close()
        with second.result(LONG) as reservation:
            assert reservation.size == pool.statistics().used == 50


def test_waiters_are_served_in_turn() -> None:
    pool = BufferPool(100)
    with ThreadPoolExecutor(2) as threads:
        first = pool.reserve(60, 0)
        large: Future[Reservation] = threads.submit(pool.reserve, 90, FOREVER)
        waiting(pool, 1)
        small: Future[Reservation] = threads.submit(pool.reserve, 10, FOREVER)
        waiting(pool, 2)
        # There is room for the small one now, but it came later.
        assert pool.try_reserve(1) is None
        assert not first.try_resize(61)
        assert not small.done()
        first.close()
        with large.result(LONG), small.result(LONG):
            assert pool.statistics().used == 100


def test_a_waiter_that_gives_up_lets_the_next_one_pass() -> None:
    pool = BufferPool(100)
    with ThreadPoolExecutor(2) as threads, pool.reserve(60, 0):
        large = threads.submit(pool.reserve, 90, 2.0)
        waiting(pool, 1)
        small = threads.submit(pool.reserve, 10, FOREVER)
        with pytest.raises(Overloaded):
            large.result(LONG)
        small.result(LONG).close()


def test_a_reservation_larger_than_the_budget_passes_alone() -> None:
    pool = BufferPool(100)
    with ThreadPoolExecutor(1) as threads:
        first = pool.reserve(1, 0)
        assert pool.try_reserve(500) is None
        large = threads.submit(pool.reserve, 500, FOREVER)
        waiting(pool, 1)
        first.close()
        with large.result(LONG):
            assert pool.statistics().used == 500
            assert pool.try_reserve(1) is None


def test_growing_needs_room_and_shrinking_gives_it() -> None:
    pool = BufferPool(100)
    with pool.reserve(60, 0) as first, pool.reserve(30, 0) as second:
        assert not second.try_resize(41)
        assert second.size == 30
        assert second.try_resize(40)
        assert first.try_resize(10)
        assert pool.statistics().used == 50
    assert pool.statistics().used == 0


def test_growing_does_not_go_above_the_budget_even_alone() -> None:
    with BufferPool(100).reserve(60, 0) as reservation:
        assert not reservation.try_resize(101)


def test_shrinking_wakes_a_waiter() -> None:
    pool = BufferPool(100)
    with ThreadPoolExecutor(1) as threads, pool.reserve(60, 0) as first:
        second = threads.submit(pool.reserve, 50, FOREVER)
        waiting(pool, 1)
        assert first.try_resize(50)
        second.result(LONG).close()


def test_cover_counts_what_is_there_already_room_or_not() -> None:
    pool = BufferPool(100)
    with pool.reserve(60, 0) as first, pool.reserve(40, 0):
        first.cover(150)
        assert (first.size, pool.statistics().used) == (150, 190)
        first.cover(10)
        assert first.size == 150
        assert first.try_resize(60)
        assert pool.statistics().used == 100


def test_a_closed_reservation_cannot_be_resized() -> None:
    reservation = BufferPool(100).reserve(1, 0)
    reservation.close()
    with pytest.raises(InvalidArgument, match="closed"):
        reservation.try_resize(2)


def test_pressure_begins_at_the_high_mark_and_ends_at_the_low_one() -> None:
    pool = BufferPool(100, high=0.8, low=0.5)
    with pool.reserve(79, 0) as reservation:
        seen = [pool.pressed]
        for size in (80, 51, 50, 79):
            assert reservation.try_resize(size)
            seen.append(pool.pressed)
    assert seen == [False, True, True, False, False]


def test_a_pool_that_somebody_waits_for_is_pressed() -> None:
    pool = BufferPool(100, high=1, low=1)
    with ThreadPoolExecutor(1) as threads:
        first = pool.reserve(60, 0)
        seen = [pool.pressed]
        second = threads.submit(pool.reserve, 50, FOREVER)
        waiting(pool, 1)
        seen.append(pool.pressed)
        first.close()
        second.result(LONG).close()
        assert [*seen, pool.pressed] == [False, True, False]


def test_closing_the_pool_ends_all_waits_and_refuses_new_ones() -> None:
    pool = BufferPool(100)
    with ThreadPoolExecutor(1) as threads, pool.reserve(60, 0) as first:
        second = threads.submit(pool.reserve, 50, FOREVER)
        waiting(pool, 1)
        pool.close()
        with pytest.raises(ShuttingDown):
            second.result(LONG)
        with pytest.raises(ShuttingDown):
            pool.reserve(1, 0)
        with pytest.raises(ShuttingDown):
            pool.try_reserve(1)
        assert not first.try_resize(61)
        assert first.try_resize(1)
    assert pool.statistics().used == 0


def test_an_unclosed_reservation_warns_and_gives_its_bytes_back() -> None:
    pool = BufferPool(100)
    forgotten = [pool.reserve(60, 0)]
    with pytest.warns(ResourceWarning, match="60 bytes"):
        forgotten.clear()
    assert pool.statistics().used == pool.statistics().reservations == 0
    pool.reserve(100, 0).close()


@pytest.mark.parametrize(("budget", "high", "low"), [(0, 0.8, 0.5), (10, 0.5, 0.8), (10, 1.1, 0.5), (10, 0.5, 0)])
def test_impossible_pools_are_refused(budget: int, high: float, low: float) -> None:
    with pytest.raises(InvalidArgument, match=str(budget)):
        BufferPool(budget, high=high, low=low)


def test_negative_sizes_are_refused() -> None:
    pool = BufferPool(100)
    with pool.reserve(5, 0) as reservation:
        for call in (partial(pool.reserve, timeout=0), pool.try_reserve, reservation.try_resize):
            with pytest.raises(InvalidArgument, match="-1"):
                call(-1)
    assert pool.statistics().used == 0


def test_many_threads_never_exceed_the_budget() -> None:
    pool = BufferPool(1000)

    def work(seed: int) -> None:
        for i in range(50):
            with pool.reserve((seed * 37 + i * 101) % 400, LONG) as reservation:
                reservation.try_resize(reservation.size // 2)
                reservation.try_resize(reservation.size * 2)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    statistics = pool.statistics()
    assert statistics.peak <= 1000
    assert (statistics.used, statistics.reservations, statistics.waiting, statistics.refused) == (0, 0, 0, 0)


class PoolMachine(RuleBasedStateMachine):
    """Any sequence of calls that do not wait: the sums stay right."""

    @initialize(budget=st.integers(1, 200))
    def start(self, budget: int) -> None:
        self.pool = BufferPool(budget)
        self.open: list[Reservation] = []

    @rule(n=st.integers(0, 250))
    def reserve(self, n: int) -> None:
        used = self.pool.statistics().used
        reservation = self.pool.try_reserve(n)
        assert (reservation is not None) == (used + n <= self.pool.budget or used == 0)
        if reservation is not None:
            self.open.append(reservation)

    @precondition(lambda self: self.open)
    @rule(n=st.integers(0, 250), data=st.data())
    def resize(self, n: int, data: st.DataObject) -> None:
        reservation = data.draw(st.sampled_from(self.open))
        before, used = reservation.size, self.pool.statistics().used
        assert reservation.try_resize(n) == (n <= before or used + n - before <= self.pool.budget)

    @precondition(lambda self: self.open)
    @rule(n=st.integers(0, 250), data=st.data())
    def cover(self, n: int, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.open)).cover(n)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.open.pop(data.draw(st.integers(0, len(self.open) - 1))).close()

    @invariant()
    def the_sums_are_right(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.statistics().used == sum(reservation.size for reservation in self.open)
            assert self.pool.statistics().reservations == len(self.open)

    def teardown(self) -> None:
        for reservation in getattr(self, "open", []):
            reservation.close()


PoolMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase
