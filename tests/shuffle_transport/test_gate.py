"""The gate that waits for credit: order, deadlines, failure, and the backlog it announces to the peer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StorageFull, StreamBroken
from shuffle_transport.credits import UNANNOUNCED
from shuffle_transport.gate import CreditGate

MIB = 1 << 20
LONG = 60.0  # a deadline that only a failing test meets
FOREVER = 3600.0  # of a wait that must be ended by somebody: at its deadline it would look again, and pass


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere; the test's own timeout is the deadline."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


def waited(event: threading.Event) -> None:
    assert event.wait(LONG)


def waiting(gate: CreditGate, count: int) -> None:
    until(lambda: gate.statistics().waiting == count)


def test_the_initial_credit_passes_without_waiting() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB - 1, 0)
    gate.acquire(1, 0)
    statistics = gate.statistics()
    assert (statistics.sent, statistics.available, statistics.waits) == (MIB, 0, 0)


def test_a_batch_waits_for_its_grant() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    with ThreadPoolExecutor(1) as threads:
        batch = threads.submit(gate.acquire, 10, FOREVER, queued=5)
        waiting(gate, 1)
        assert gate.statistics().backlog == 15
        gate.granted(MIB + 9)
        assert not batch.done()
        gate.granted(MIB + 10)
        batch.result(LONG)
    statistics = gate.statistics()
    assert (statistics.sent, statistics.waits, statistics.backlog, statistics.waiting) == (MIB + 10, 1, 0, 0)
    assert statistics.stall_seconds > 0


def test_no_grant_in_time_is_an_error_with_the_numbers_and_takes_nothing() -> None:
    gate = CreditGate("worker w1, map 3")
    gate.acquire(MIB, 0)
    with pytest.raises(DeadlineExceeded) as caught:
        gate.acquire(10, 0.01)
    for part in ("worker w1, map 3", "10 bytes", f"{MIB} of {MIB} granted"):
        assert part in str(caught.value)
    assert gate.statistics().sent == MIB
    assert gate.statistics().waiting == 0


def test_a_grant_that_is_too_small_for_the_first_does_not_let_the_second_pass() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(gate.acquire, 100, FOREVER)
        waiting(gate, 1)
        second = threads.submit(gate.acquire, 1, 2.0)
        waiting(gate, 2)
        gate.granted(MIB + 3)
        with pytest.raises(DeadlineExceeded):
            second.result(LONG)
        gate.granted(MIB + 100)
        first.result(LONG)


def test_one_grant_lets_all_pass_whom_it_covers() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    with ThreadPoolExecutor(3) as threads:
        sends = [threads.submit(gate.acquire, size, FOREVER) for size in (100, 1, 2)]
        waiting(gate, 3)
        gate.granted(MIB + 103)
        for future in sends:
            future.result(LONG)
    assert gate.statistics().available == 0


def test_a_waiter_that_gives_up_lets_the_next_one_pass() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB - 5, 0)
    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(gate.acquire, 10, 2.0)
        waiting(gate, 1)
        small = threads.submit(gate.acquire, 5, FOREVER)
        with pytest.raises(DeadlineExceeded):
            large.result(LONG)
        small.result(LONG)


def test_a_later_batch_does_not_pass_while_an_earlier_one_waits() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB - 5, 0)
    with ThreadPoolExecutor(1) as threads:
        large = threads.submit(gate.acquire, 10, FOREVER)
        waiting(gate, 1)
        with pytest.raises(DeadlineExceeded):
            gate.acquire(5, 0.01)
        gate.granted(2 * MIB)
        large.result(LONG)


def test_failure_wakes_those_who_wait_and_refuses_those_who_come() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    with ThreadPoolExecutor(1) as threads:
        batch = threads.submit(gate.acquire, 1, FOREVER)
        waiting(gate, 1)
        gate.fail(StorageFull("no room on w1"))
        gate.fail(StreamBroken("later"))
        with pytest.raises(StorageFull, match="no room on w1"):
            batch.result(LONG)
    with pytest.raises(StorageFull):
        gate.acquire(0, 0)


def test_a_closed_gate_says_whose_stream_is_closed() -> None:
    gate = CreditGate("worker w1")
    gate.close()
    gate.close()
    with pytest.raises(StreamBroken, match="worker w1"):
        gate.acquire(1, 0)


def test_the_backlog_is_announced_before_a_wait_and_only_then() -> None:
    announced: list[int] = []
    gate = CreditGate("w1", announced.append)
    gate.acquire(MIB, 0)
    assert announced == []
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(gate.acquire, 10, FOREVER, queued=MIB)
        until(lambda: announced == [MIB + 10])
        second = threads.submit(gate.acquire, 20, FOREVER)
        until(lambda: announced == [MIB + 10, MIB + 30])
        gate.idle()  # somebody waits: nothing to say
        gate.granted(2 * MIB)
        first.result(LONG)
        second.result(LONG)
    gate.idle()
    assert announced == [MIB + 10, MIB + 30, 0]


def test_who_waits_with_little_does_so_in_silence_until_it_is_much_together() -> None:
    announced: list[int] = []
    gate = CreditGate("w1", announced.append)
    gate.acquire(MIB, 0)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(gate.acquire, UNANNOUNCED, FOREVER)
        until(lambda: gate.waiting)
        second = threads.submit(gate.acquire, 1, FOREVER)
        until(lambda: announced == [UNANNOUNCED + 1])
        gate.granted(2 * MIB)
        first.result(LONG)
        second.result(LONG)


def test_an_idle_gate_forgets_its_largest_window() -> None:
    gate = CreditGate("w1")
    gate.granted(8 * MIB)
    assert gate.statistics().window == 8 * MIB
    gate.idle()
    assert gate.statistics().window == MIB


def test_what_is_announced_is_all_that_is_remembered_of_the_largest_window() -> None:
    gate = CreditGate("w1")
    gate.granted(8 * MIB)
    gate.acquire(7 * MIB, 0)
    assert not gate.waiting
    assert gate.announcement() == (0, 7 * MIB)
    assert gate.statistics().window == 8 * MIB
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(gate.acquire, 2 * MIB, FOREVER)
        until(lambda: gate.waiting)
        assert gate.announcement() == (2 * MIB, 7 * MIB)
        assert gate.statistics().window == 2 * MIB
        gate.granted(9 * MIB)
        waiter.result(LONG)
    assert gate.statistics().available == 0


def test_a_grant_that_comes_while_the_backlog_is_announced_is_not_missed() -> None:
    gate = CreditGate("w1", lambda backlog: gate.granted(MIB + backlog))
    gate.acquire(MIB, 0)
    gate.acquire(MIB, 0)
    assert gate.statistics().available == 0


def test_a_failing_announcement_reaches_the_caller_and_leaves_no_waiter() -> None:
    def broken(backlog: int) -> None:
        raise StreamBroken(f"could not announce {backlog}")

    gate = CreditGate("w1", broken)
    gate.acquire(MIB, 0)
    with pytest.raises(StreamBroken, match="announce 1048576"):
        gate.acquire(MIB, FOREVER)
    assert gate.statistics().waiting == 0


def test_negative_sizes_are_refused() -> None:
    gate = CreditGate("w1")
    with pytest.raises(InvalidArgument, match="-1"):
        gate.acquire(-1, 0)
    assert gate.statistics().waiting == 0


def test_a_gate_with_less_than_half_of_its_window_left_is_low() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB // 2, 0)
    seen = [gate.low]
    gate.acquire(1, 0)
    seen.append(gate.low)
    gate.granted(MIB + MIB // 2)
    seen.append(gate.low)
    assert seen == [False, True, False]


def test_a_gate_is_starved_while_somebody_waits_whose_credit_has_not_come() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    seen = [gate.starved]

    def read(there: Callable[[], bool], until: float) -> None:
        seen.append(gate.starved)
        gate.granted(MIB + 9)
        seen.append(gate.starved)
        gate.granted(MIB + 10)
        seen.append(gate.starved)

    gate.acquire(10, LONG, read=read)
    seen.append(gate.starved)
    assert seen == [False, True, True, False, False]


def test_a_gate_is_starved_by_who_waits_behind_one_that_has_its_credit() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    leaves = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(gate.acquire, 10, FOREVER, read=lambda there, until: waited(leaves))
        waiting(gate, 1)
        second = pool.submit(gate.acquire, 10, FOREVER)
        waiting(gate, 2)
        gate.granted(MIB + 10)
        assert gate.starved
        leaves.set()
        first.result(LONG)
        assert gate.starved
        gate.granted(MIB + 20)
        second.result(LONG)
    assert not gate.starved


def test_who_waits_reads_until_its_credit_is_there_or_the_stream_is_broken() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    seen: list[bool] = []

    def granted(there: Callable[[], bool], until: float) -> None:
        seen.append(there())
        gate.granted(MIB + 10)
        seen.append(there())

    def broken(there: Callable[[], bool], until: float) -> None:
        seen.append(there())
        gate.fail(StreamBroken("cut"))
        seen.append(there())

    gate.acquire(10, LONG, read=granted)
    with pytest.raises(StreamBroken, match="cut"):
        gate.acquire(10, LONG, read=broken)
    assert seen == [False, True, False, True]


def test_who_reads_is_not_done_when_it_is_another_ones_turn() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    seen: list[bool] = []

    def read(there: Callable[[], bool], until: float) -> None:
        gate.granted(MIB + 5)  # enough for this thread, and not for who is first
        seen.append(there())
        gate.granted(MIB + 15)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gate.acquire, 10, FOREVER)
        waiting(gate, 1)
        gate.acquire(5, LONG, read=read)
        first.result(LONG)
    assert seen == [False]


def test_who_waits_reads_until_its_deadline() -> None:
    gate = CreditGate("w1")
    gate.acquire(MIB, 0)
    until: list[float] = []
    before = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        gate.acquire(10, 0.01, read=lambda there, deadline: until.append(deadline))
    assert before <= until[0] - 0.01 <= time.monotonic()


def test_a_batch_larger_than_the_window_overtakes_none_of_another_thread() -> None:
    gate = CreditGate("w1", shared=True)
    gate.acquire(10, 0)  # has its credit, and its thread has not come to sending it
    gate.granted(MIB + 10)
    with ThreadPoolExecutor() as pool:
        large = pool.submit(gate.acquire, 2 * MIB, FOREVER)
        until(lambda: bool(vars(gate._changed)["_waiters"]))  # it has looked, and sleeps
        assert gate.statistics().waiting == 1
        gate.sent()
        large.result(LONG)
    gate.sent()


def test_batches_within_the_credit_wait_for_no_other_thread() -> None:
    gate = CreditGate("w1", shared=True)
    gate.acquire(10, 0)
    assert gate.try_acquire(MIB - 10)
    assert gate.try_acquire(0)


def test_a_grant_counts_from_what_has_passed() -> None:
    gate = CreditGate("w1")
    assert gate.try_acquire(MIB)
    gate.granted(MIB + 5)
    assert gate.statistics().available == 5
    assert not gate.try_acquire(6)


def test_what_was_given_back_may_pass_again_and_holds_up_nobody() -> None:
    gate = CreditGate("w1", shared=True)
    for size in (MIB, MIB, 2 * MIB):  # the last goes alone: nothing is under way
        assert gate.try_acquire(size)
        gate.give_back(size)
    assert gate.statistics().available == MIB
