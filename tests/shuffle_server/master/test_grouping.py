"""Many waiters, one piece of work."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffle_api.errors import DeadlineExceeded, InternalError, StorageFailed
from shuffle_server.master.grouping import Batcher

TIMEOUT = 60.0


class Work:
    """Doubles numbers; each call may be held until it is let go."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, items: list[int]) -> list[int]:
        self.groups.append(list(items))
        self.begun.release()
        assert self.go.acquire(timeout=TIMEOUT)
        return [2 * item for item in items]


def test_what_comes_while_a_group_is_worked_on_is_the_next_group() -> None:
    work = Work()
    batcher = Batcher(work, timeout=TIMEOUT, what="doubling")
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(batcher.wait, batcher.add(1))
        assert work.begun.acquire(timeout=TIMEOUT)
        others = [pool.submit(batcher.wait, batcher.add(n)) for n in (2, 3, 4)]
        work.go.release(2)
        assert [each.result(TIMEOUT) for each in (first, *others)] == [2, 4, 6, 8]
    assert work.groups == [[1], [2, 3, 4]]


def test_many_threads_get_the_results_of_their_own_items() -> None:
    sizes: list[int] = []

    def work(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return [2 * item for item in items]

    batcher = Batcher(work, timeout=TIMEOUT, what="doubling")
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda n: batcher.wait(batcher.add(n)), range(3000)))
    assert results == [2 * n for n in range(3000)]
    assert sum(sizes) == 3000


def test_an_error_is_that_of_its_group_and_the_next_group_is_worked_on() -> None:
    def work(items: list[int]) -> list[int]:
        if 13 in items:
            raise StorageFailed("thirteen")
        return items

    batcher = Batcher(work, timeout=TIMEOUT, what="counting")
    bad, also = batcher.add(13), batcher.add(1)
    for ticket in (bad, also, bad):
        with pytest.raises(StorageFailed, match="thirteen"):
            batcher.wait(ticket)
    assert batcher.wait(batcher.add(2)) == 2


def test_a_bug_in_the_work_reaches_its_leader_and_leaves_nobody_waiting() -> None:
    def work(items: list[int]) -> list[int]:
        raise ZeroDivisionError

    batcher = Batcher(work, timeout=TIMEOUT, what="dividing")
    ticket = batcher.add(1)
    with pytest.raises(ZeroDivisionError):
        batcher.wait(ticket)
    with pytest.raises(InternalError, match="dividing"):
        batcher.wait(ticket)


def test_who_waits_too_long_is_told_so_and_the_work_goes_on() -> None:
    work = Work()
    batcher = Batcher(work, timeout=0.05, what="doubling")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(batcher.wait, batcher.add(1))
        assert work.begun.acquire(timeout=TIMEOUT)
        with pytest.raises(DeadlineExceeded, match=r"doubling took more than 0\.05 s"):
            batcher.wait(batcher.add(2))
        work.go.release(2)
        assert first.result(TIMEOUT) == 2
    assert batcher.wait(batcher.add(3)) == 6
    assert work.groups == [[1], [2, 3]]


def test_a_leader_lingers_until_as_many_have_come_as_the_last_time() -> None:
    groups: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        groups.append(list(items))
        return items

    batcher = Batcher(work, timeout=TIMEOUT, what="counting", linger=TIMEOUT)
    assert [batcher.wait(ticket) for ticket in [batcher.add(n) for n in range(3)]] == [0, 1, 2]
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(batcher.wait, batcher.add(3))
        others = [batcher.add(4), batcher.add(5)]
        assert leader.result(TIMEOUT) == 3
        assert [batcher.wait(ticket) for ticket in others] == [4, 5]
    assert groups == [[0, 1, 2], [3, 4, 5]]


def test_who_is_alone_does_not_linger_and_who_lingers_in_vain_goes_on() -> None:
    batcher: Batcher[int, int] = Batcher(list, timeout=TIMEOUT, what="counting", linger=0.05)
    pair = [batcher.add(1), batcher.add(2)]
    assert [batcher.wait(ticket) for ticket in pair] == [1, 2]
    assert batcher.wait(batcher.add(3)) == 3  # expects one more, in vain
    patient: Batcher[int, int] = Batcher(list, timeout=TIMEOUT, what="counting", linger=10 * TIMEOUT)
    for n in range(100):
        assert patient.wait(patient.add(n)) == n


def test_a_caller_that_comes_long_after_the_last_group_does_not_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    batcher: Batcher[int, int] = Batcher(list, timeout=TIMEOUT, what="counting", linger=0.01)
    tickets = [batcher.add(number) for number in range(5)]
    assert [batcher.wait(ticket) for ticket in tickets] == list(range(5))
    monkeypatch.setattr(batcher, "_ended", batcher._ended - 1.0)

    def lingered(*_: object) -> bool:
        raise AssertionError("it waits for company")

    monkeypatch.setattr(batcher._company, "wait_for", lingered)
    assert batcher.wait(batcher.add(7)) == 7
