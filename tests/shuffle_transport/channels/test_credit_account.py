"""The account of a receiving window: small amounts wait, but never while a sender does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffle_api.errors import InvalidArgument, Overloaded, StreamBroken
from shuffle_transport.channels.credit_account import CONTROL_COST, MAX_CONTROLS, PART, CreditAccount
from shuffle_transport.credits import INITIAL_CREDIT
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool


@pytest.fixture
def account() -> Iterator[CreditAccount]:
    account = CreditAccount("here", Granter(BufferPool(1 << 30), 1, announced=True))
    yield account
    account.close()


def test_small_amounts_are_known_at_once_though_the_granter_hears_of_them_later(account: CreditAccount) -> None:
    assert account.arrived(1100) is None
    assert account.took(100, 1100) is None
    statistics = account.statistics()
    assert (statistics.received, statistics.consumed, statistics.held) == (1100, 1000, 100)
    assert account.consumed(100) is None
    assert account.statistics().held == 0


def test_a_grant_comes_when_half_of_the_window_is_consumed(account: CreditAccount) -> None:
    grants = []
    for _ in range(INITIAL_CREDIT // 10_000):
        assert account.arrived(10_000) is None
        account.took(9_000, 10_000)
        grants.append(account.consumed(9_000))
    given = [i for i, grant in enumerate(grants) if grant is not None]
    assert len(given) == 1
    assert INITIAL_CREDIT // 2 <= (given[0] + 1) * 10_000 <= INITIAL_CREDIT // 2 + INITIAL_CREDIT // PART + 10_000
    assert account.granted == grants[given[0]]


def test_a_waiting_sender_gets_all_that_is_consumed_at_once(account: CreditAccount) -> None:
    half = INITIAL_CREDIT // 2
    account.arrived(half)
    account.took(half, half)
    assert account.announced(half + 1, half, hungry=False) is None  # half is held
    assert account.consumed(half - 1) is None
    assert account.consumed(1) == INITIAL_CREDIT + half
    assert account.arrived(half + 1) is None
    account.took(half + 1, half + 1)
    assert account.consumed(1000) is None  # nobody waits any more: small amounts do
    assert account.statistics().consumed == half + 1000


@pytest.mark.parametrize(("batches", "grows"), [(64, False), (4, True)])
def test_the_window_of_a_sender_that_waits_grows_by_how_many_batches_were_gathered(batches: int, grows: bool) -> None:
    account = CreditAccount("here", Granter(BufferPool(1 << 30), 1, announced=True))
    half = INITIAL_CREDIT // 2
    for _ in range(batches):
        account.arrived(half // batches)
    account.took(half, half)
    account.consumed(half // 2)
    grant = account.announced(INITIAL_CREDIT, half, hungry=True)
    assert grant == (half // 2 + 2 * INITIAL_CREDIT if grows else None)
    account.close()


def test_what_a_sender_that_waited_sends_is_known_to_the_granter_at_once() -> None:
    granter = Granter(BufferPool(1 << 30), 1, announced=True)
    account = CreditAccount("here", granter)
    half = INITIAL_CREDIT // 2
    account.arrived(half)
    account.took(half, half)
    account.announced(half + 1000, half, hungry=False)
    account.arrived(1000)
    assert granter.outlook.available == half - 1000
    account.close()


def test_batches_that_were_gathered_do_not_count_as_a_large_one() -> None:
    granter = Granter(BufferPool(1 << 30), 1, announced=True)
    account = CreditAccount("here", granter)
    for _ in range(2):
        for _ in range(9):
            account.arrived(100_000)
        account.took(900_000, 900_000)
        account.consumed(900_000)
    assert granter.outlook.target == INITIAL_CREDIT  # twice a batch of 900,000 bytes would be more
    account.close()


def test_a_window_that_makes_room_is_settled_in_smaller_parts() -> None:
    pool = BufferPool(4 * INITIAL_CREDIT, high=1, low=1)
    granter = Granter(pool, 1, announced=True)
    account = CreditAccount("here", granter)
    arrived = 0

    def pass_on(size: int) -> None:
        nonlocal arrived
        account.arrived(size)
        account.took(size, size)
        account.consumed(size)
        arrived += size

    pass_on(INITIAL_CREDIT)
    for _ in range(3):
        account.announced(100 * INITIAL_CREDIT, arrived, hungry=False)
        pass_on(INITIAL_CREDIT)
    assert granter.outlook.target == 4 * INITIAL_CREDIT
    account.announced(0, arrived, hungry=False)
    parts, step = [0], INITIAL_CREDIT // 64
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.reserve, 4 * INITIAL_CREDIT, 60)
        try:
            while not pool.waited_for:
                time.sleep(0.001)
            for _ in range(128):
                before = granter.statistics().consumed
                pass_on(step)
                parts[-1] += step
                if granter.statistics().consumed > before:
                    parts.append(0)
        finally:
            account.close()
        waiting.result().close()
    assert parts[:3] == [INITIAL_CREDIT, INITIAL_CREDIT // 2, INITIAL_CREDIT // 4]


def test_what_was_gathered_counts_when_a_sender_begins_to_wait(account: CreditAccount) -> None:
    account.arrived(1000)
    account.took(900, 1000)
    account.consumed(900)
    assert account.announced(2 * INITIAL_CREDIT, 1000, hungry=False) is not None


@pytest.mark.parametrize("sizes", [[600_000, 600_000], [1000] * (INITIAL_CREDIT // 1000) + [1000]])
def test_a_sender_that_overspends_is_refused(account: CreditAccount, sizes: list[int]) -> None:
    for size in sizes[:-1]:
        account.arrived(size)
    with pytest.raises(InvalidArgument, match="credit left"):
        account.arrived(sizes[-1])


def test_only_what_was_taken_can_be_consumed(account: CreditAccount) -> None:
    account.arrived(5000)
    with pytest.raises(InvalidArgument, match="0 are held"):
        account.consumed(1)
    account.took(4000, 5000)
    with pytest.raises(InvalidArgument, match="4000 are held"):
        account.consumed(4001)
    account.consumed(4000)


def test_control_messages_are_limited_while_they_wait(account: CreditAccount) -> None:
    size = MAX_CONTROLS // 4 - CONTROL_COST
    for _ in range(4):
        account.control(size)
    with pytest.raises(Overloaded, match="here: control messages"):
        account.control(0)
    account.took_control(0)
    account.took_control(size)
    account.control(size)


@pytest.mark.parametrize("announces", [True, False])
def test_a_sender_that_waits_when_the_account_closes_gets_credit_to_send_on(
    account: CreditAccount, announces: bool
) -> None:
    spent = INITIAL_CREDIT - 1024
    for _ in range(33):
        account.arrived(spent // 33)
    account.took(1000, 2000)
    if announces:
        assert account.announced(5000, spent, hungry=False) is None
    assert account.close() == INITIAL_CREDIT + spent
    assert account.close() is None


def test_a_closed_account_takes_nothing_and_gives_nothing(account: CreditAccount) -> None:
    account.arrived(5000)
    account.took(4000, 5000)
    assert account.close() is None
    assert account.consumed(4000) is None
    assert account.statistics().held == 0
    assert account.announced(0, 5000, hungry=False) is None
    with pytest.raises(StreamBroken, match="nobody receives"):
        account.announced(10, 5000, hungry=False)
    with pytest.raises(StreamBroken, match="nobody receives"):
        account.arrived(1)
    with pytest.raises(StreamBroken, match="nobody receives"):
        account.control(1)
    account.close()
