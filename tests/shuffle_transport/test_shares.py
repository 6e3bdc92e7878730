"""A pool whose memory is shared among owners."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffle_api.errors import Overloaded, ShuttingDown
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.shares import NOBODY, Owner
from tests.shuffle_transport.test_pool import LONG, waiting

A, B, C = Owner("a"), Owner("b"), Owner("c")


def test_an_owner_leaves_a_part_of_the_budget_to_others() -> None:
    pool = BufferPool(80)
    with pool.reserve(70, 0.0, A) as first:
        with pytest.raises(Overloaded, match="70 of 80 are in use, 70 of them by application a"):
            pool.reserve(1, 0.01, A)
        assert not first.try_resize(71)
        with pool.reserve(10, 0.0, B):
            assert pool.statistics().owners == 2
            assert pool.statistics().largest_share == 70
    with pool.reserve(75, 0.0, A):  # more than the bound passes alone
        pass


def test_who_waits_because_of_its_own_bound_holds_up_nobody_else() -> None:
    pool = BufferPool(80)
    with ThreadPoolExecutor(1) as threads, pool.reserve(70, 0.0, A):
        waiter = threads.submit(pool.reserve, 1, LONG, A)
        waiting(pool, 1)
        assert not pool.waited_for
        with pool.reserve(5, 0.0, B) as other:
            assert other.try_resize(6)
        pool.close()
        with pytest.raises(ShuttingDown):
            waiter.result(LONG)


def test_the_owner_with_the_smallest_share_is_served_first() -> None:
    pool = BufferPool(80)
    served: list[str] = []

    def take(owner: Owner) -> None:
        with pool.reserve(10, LONG, owner):
            served.append(owner.name)

    held = [pool.reserve(30, 0.0, A), pool.reserve(20, 0.0, B), pool.reserve(30, 0.0, NOBODY)]
    with ThreadPoolExecutor(3) as threads:
        waits = []
        for count, owner in enumerate((A, B, C), 1):
            waits.append(threads.submit(take, owner))
            waiting(pool, count)
        held[2].try_resize(20)
        for wait in waits:
            wait.result(LONG)
    assert served == ["c", "b", "a"]
    for each in held:
        each.close()
    assert (pool.statistics().owners, pool.statistics().used) == (0, 0)


def test_what_is_idle_is_lent_to_those_who_wait_and_comes_back_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.pool.IDLE_SECONDS", 0.0)
    pool = BufferPool(80)
    idle, busy, other = pool.reserve(40, 0.0, A), pool.reserve(30, 0.0, A), pool.reserve(10, 0.0, B)
    idle.idle = True
    pool.reclaim()
    assert not idle.lent  # nobody waits
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(pool.reserve, 30, LONG, B)
        waiting(pool, 1)
        pool.reclaim()
        second = waiter.result(LONG)
    assert (pool.statistics().used, pool.statistics().lent) == (70, 40)
    assert pool.statistics().largest_share == 70  # what is lent is its owner's
    idle.cover(1)
    assert (pool.statistics().used, pool.statistics().lent) == (110, 0)
    assert pool.try_reserve(1, C) is None
    for each in (idle, busy, other, second):
        each.close()
    assert pool.statistics().used == 0


def test_no_more_is_lent_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.pool.IDLE_SECONDS", 0.0)
    monkeypatch.setattr("shuffle_transport.pool.MOST_LENT", 50)
    pool = BufferPool(80)
    held = [pool.reserve(35, 0.0, A), pool.reserve(35, 0.0, A), pool.reserve(10, 0.0, B)]
    for each in held[:2]:
        each.idle = True
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(pool.reserve, 40, LONG, C)
        waiting(pool, 1)
        pool.reclaim()
        assert (pool.statistics().lent, pool.statistics().waiting) == (35, 1)
        for each in held:
            each.close()  # one of them while it is lent
        waiter.result(LONG).close()
    assert (pool.statistics().used, pool.statistics().lent) == (0, 0)


def test_what_is_outgoing_leaves_most_of_the_budget_and_is_given_up_when_it_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shuffle_transport.pool.STALLED_SECONDS", 0.0)
    pool = BufferPool(80)
    asked: list[str] = []
    out = Owner("a", outgoing=True)
    first = pool.reserve(20, 0.0, out, stalled=lambda: asked.append("first"))
    with pytest.raises(Overloaded):
        pool.reserve(1, 0.01, Owner("b", outgoing=True))
    with pool.reserve(50, 0.0, A):  # incoming: it does not wait for what is outgoing
        pass
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(pool.reserve, 1, LONG, Owner("b", outgoing=True))
        waiting(pool, 1)
        pool.reclaim()
        assert (asked, pool.statistics().stalled) == (["first"], 1)
        first.close()
        waiter.result(LONG).close()
    assert pool.statistics().outgoing == 0


def test_a_sender_that_sends_nothing_lends_what_is_reserved_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.pool.IDLE_SECONDS", 0.0)
    pool = BufferPool(2 << 20)
    with ThreadPoolExecutor(1) as threads, Granter(pool, 0.0, owner=A) as granter:
        waiter = threads.submit(pool.reserve, (3 << 19) + 1, LONG, B)
        waiting(pool, 1)
        granter.received(100)
        pool.reclaim()
        assert pool.statistics().lent == 0  # it holds something
        granter.consumed(100)
        pool.reclaim()
        with waiter.result(LONG):
            assert pool.statistics().lent == 1 << 20
            granter.received(100)  # it goes on, at once
            granter.consumed(100)
            assert pool.statistics().lent == 0
            assert pool.statistics().used > pool.budget
    assert pool.statistics().used == 0
