"""The rules of credits.py one by one, each with the numbers at its edge."""

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_transport.credits import INITIAL_CREDIT, MOST_BATCHES, GrantPolicy, ReceiveWindow, SendWindow

MIB = 1 << 20


def sent(window: SendWindow, *sizes: int) -> SendWindow:
    """`window` after batches that must all pass."""
    for size in sizes:
        after = window.try_send(size)
        assert after is not None, f"{size} bytes did not pass {window}"
        window = after
    return window


def test_initial_credit_is_what_the_protocol_says() -> None:
    assert INITIAL_CREDIT == MIB
    assert SendWindow().available == ReceiveWindow().granted == MIB


def test_a_sender_spends_its_credit_to_the_last_byte_and_not_further() -> None:
    window = sent(SendWindow(), MIB - 1)
    assert window.try_send(2) is None
    assert sent(window, 1).try_send(1) is None


def test_a_batch_without_payload_needs_no_credit() -> None:
    assert sent(SendWindow(), MIB, 0).available == 0
    assert sent(SendWindow(), 5 * MIB, 0).available == -4 * MIB


def test_grants_are_cumulative() -> None:
    window = sent(SendWindow(), MIB).granted_to(MIB + 10)
    assert window.available == 10


def test_late_and_repeated_grants_change_nothing() -> None:
    window = sent(SendWindow(), MIB).granted_to(3 * MIB)
    assert window.granted_to(3 * MIB) == window.granted_to(2 * MIB) == window.granted_to(0) == window


def test_a_batch_larger_than_the_window_goes_out_alone_at_the_start() -> None:
    assert sent(SendWindow(), 5 * MIB).try_send(1) is None


def test_a_batch_larger_than_the_window_waits_for_what_is_outstanding() -> None:
    window = sent(SendWindow(), 1)
    assert window.try_send(MIB + 1) is None
    assert window.granted_to(MIB + 1).try_send(MIB + 1) is not None


def test_a_batch_of_the_window_is_not_larger_than_the_window() -> None:
    window = sent(SendWindow(), MIB).granted_to(2 * MIB - 1)
    assert window.try_send(MIB) is None


def test_the_window_is_the_largest_credit_there_has_been() -> None:
    window = sent(SendWindow().granted_to(4 * MIB), 4 * MIB).granted_to(6 * MIB)
    assert (window.window, window.available) == (4 * MIB, 2 * MIB)
    assert window.try_send(5 * MIB) is None  # larger than the window, but not all is granted again
    assert window.try_send(3 * MIB) is None  # within the window: waits for its credit
    assert window.granted_to(8 * MIB).try_send(5 * MIB) is not None


def test_an_idle_sender_forgets_its_largest_window() -> None:
    window = sent(SendWindow().granted_to(4 * MIB), 2 * MIB).idle()
    assert (window.window, window.available) == (MIB, 2 * MIB)
    assert window.try_send(3 * MIB) is not None


@pytest.mark.parametrize(
    ("backlog", "left", "window"), [(1, 0, MIB), (1, 3 * MIB, 3 * MIB), (2 * MIB, 0, 2 * MIB), (9 * MIB, MIB, 4 * MIB)]
)
def test_a_sender_that_waits_remembers_no_more_of_its_window_than_it_waits_for(
    backlog: int, left: int, window: int
) -> None:
    waiting = sent(SendWindow().granted_to(4 * MIB), 4 * MIB - left).waits(backlog)
    assert (waiting.window, waiting.available) == (window, left)


def test_a_batch_that_is_waited_with_still_waits_for_its_credit() -> None:
    window = sent(SendWindow().granted_to(4 * MIB), 4 * MIB).granted_to(5 * MIB).waits(2 * MIB)
    assert window.try_send(2 * MIB) is None
    assert window.granted_to(6 * MIB).try_send(2 * MIB) is not None


@pytest.mark.parametrize("n", [-1, -MIB])
def test_negative_sizes_are_refused(n: int) -> None:
    for call in (SendWindow().try_send, ReceiveWindow().received, ReceiveWindow().consumed):
        with pytest.raises(InvalidArgument, match=str(n)):
            call(n)
    with pytest.raises(InvalidArgument, match=str(n)):
        ReceiveWindow().received(0, n)


def test_a_maximum_below_the_initial_credit_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=str(MIB - 1)):
        GrantPolicy(MIB - 1)


def granted(window: ReceiveWindow, *, pressed: bool = False) -> ReceiveWindow:
    """`window` after a grant that must be due."""
    after = window.grant(pressed=pressed)
    assert after is not None
    return after


def test_a_fixed_window_grants_its_maximum_at_once() -> None:
    assert granted(ReceiveWindow(GrantPolicy(8 * MIB))).granted == 8 * MIB


def test_an_elastic_window_starts_with_the_initial_credit() -> None:
    assert ReceiveWindow(GrantPolicy(8 * MIB, elastic=True)).grant() is None


def test_overspending_is_refused_with_the_numbers() -> None:
    window = ReceiveWindow().received(1)
    with pytest.raises(InvalidArgument) as caught:
        window.received(MIB)
    assert f"{MIB} payload bytes" in str(caught.value)
    assert f"{MIB - 1} bytes of credit" in str(caught.value)


def test_credit_may_be_spent_to_the_last_byte() -> None:
    assert ReceiveWindow().received(MIB - 1).received(1).received(0).arrived == MIB


def test_a_batch_larger_than_the_window_is_taken_when_nothing_is_outstanding() -> None:
    window = ReceiveWindow().received(5 * MIB)
    with pytest.raises(InvalidArgument):
        window.received(1)


def test_consuming_what_is_not_held_is_refused() -> None:
    window = ReceiveWindow().received(10).consumed(4)
    with pytest.raises(InvalidArgument, match="7 bytes consumed of 6 held"):
        window.consumed(7)


FIXED_ANNOUNCED = GrantPolicy(MIB, announced=True)


def elastic_announced() -> ReceiveWindow:
    return ReceiveWindow(GrantPolicy(8 * MIB, elastic=True, announced=True))


@pytest.mark.parametrize(("target", "due"), [(2 * MIB, MIB), (3 * MIB, MIB), (4 * MIB, MIB), (8 * MIB, 2 * MIB)])
def test_grants_of_large_windows_are_due_at_a_quarter(target: int, due: int) -> None:
    window = ReceiveWindow(GrantPolicy(target), granted=target, peak=target, target=target)
    assert window.received(due).consumed(due - 1).grant() is None
    assert granted(window.received(due + 1).consumed(due)).granted == target + due


def test_grants_are_coalesced_to_half_of_the_target() -> None:
    half = MIB // 2
    assert elastic_announced().received(half - 1).consumed(half - 1).grant() is None
    window = elastic_announced().received(half).consumed(half)
    assert granted(window).granted == MIB + half


def test_what_is_not_consumed_is_not_granted_again() -> None:
    window = elastic_announced().received(MIB // 2).received(MIB // 2)
    assert window.grant() is None
    assert granted(window.consumed(MIB // 2)).granted == MIB + MIB // 2


def test_a_drained_window_is_restored_for_a_sender_that_does_not_announce() -> None:
    window = ReceiveWindow(GrantPolicy(4 * MIB), granted=4 * MIB, peak=4 * MIB).received(1)
    assert window.grant() is None
    assert granted(window.consumed(1)).granted == 4 * MIB + 1


def test_an_announced_backlog_above_the_credit_left_restores_a_drained_window() -> None:
    window = ReceiveWindow(FIXED_ANNOUNCED).received(400_000, MIB).consumed(400_000)
    assert granted(window).granted == 400_000 + MIB


def test_an_announced_backlog_within_the_credit_left_does_not() -> None:
    left = MIB - 400_000
    assert ReceiveWindow(FIXED_ANNOUNCED).received(400_000, left).consumed(400_000).grant() is None


def test_a_backlog_that_has_arrived_is_none_any_more() -> None:
    window = ReceiveWindow(FIXED_ANNOUNCED).received(400_000, MIB).consumed(400_000)
    window = granted(window)
    assert window.backlog == MIB
    window = window.received(MIB)
    assert window.backlog == 0
    window = granted(window.consumed(MIB))
    assert window.received(400_000).consumed(400_000).grant() is None


def test_batches_that_come_after_an_announcement_but_had_their_credit_are_no_part_of_the_backlog() -> None:
    window = ReceiveWindow(FIXED_ANNOUNCED).received(0, 700_000, spent=800_000)
    window = window.received(800_000)  # another thread's, which took its credit before the announcement
    assert window.backlog == 700_000
    assert granted(window.consumed(800_000)).granted == 800_000 + MIB


def test_a_sender_that_begins_to_wait_while_the_receiver_waits_gets_a_larger_window() -> None:
    window = elastic_announced().received(MIB // 2).received(MIB // 2).consumed(MIB // 2 + 1)
    assert granted(window.received(0, 1000, hungry=True)).target == 2 * MIB
    assert granted(window.received(0, 1000)).target == MIB


def test_a_sender_that_waits_for_the_consumer_does_not() -> None:
    window = elastic_announced().received(MIB // 2).received(MIB // 2).consumed(MIB // 2)
    assert granted(window.received(0, 1000, hungry=True)).target == MIB


def test_a_window_of_many_batches_does_not_grow_because_the_sender_waits() -> None:
    batch = MIB // MOST_BATCHES
    window = elastic_announced()
    for _ in range(MOST_BATCHES):
        window = window.received(batch).consumed(batch)
    assert granted(window.received(0, 1000, hungry=True)).target == MIB


def test_one_large_batch_among_many_small_ones_does_not_make_the_window_larger() -> None:
    window = elastic_announced().received(MIB // 4).consumed(MIB // 4)
    for _ in range(8):
        window = window.received(MIB // 64).consumed(MIB // 64)
    window = window.received(MIB // 8, largest=MIB // 64, batches=8).consumed(MIB // 8)
    assert granted(window.received(0, 1000, hungry=True)).target == MIB


def test_only_batches_since_the_last_grant_count_for_that() -> None:
    window = elastic_announced().received(MIB, largest=MIB // 64, batches=64).consumed(MIB)
    window = granted(window).received(MIB // 2).consumed(MIB // 2)
    assert granted(window.received(0, 1000, hungry=True)).target == 2 * MIB
    window = elastic_announced().received(MIB, largest=MIB // 4, batches=4).consumed(MIB)
    window = granted(window).received(MIB // 2, largest=MIB // 40, batches=20).consumed(MIB // 2)
    assert granted(window.received(0, 1000, hungry=True)).target == MIB


def test_a_control_message_is_no_batch() -> None:
    window = elastic_announced().received(MIB // 2, largest=MIB // 14, batches=7)
    for _ in range(4):
        window = window.received(0)
    assert granted(window.consumed(MIB // 2).received(0, 1000, hungry=True)).target == 2 * MIB


def test_each_wait_makes_the_window_larger_once() -> None:
    window = granted(elastic_announced().received(MIB).consumed(MIB).received(0, 1000, hungry=True))
    assert window.target == 2 * MIB
    window = granted(window.received(2 * MIB).consumed(2 * MIB))
    assert window.target == 4 * MIB  # two batches of 2 MiB
    window = granted(window.received(MIB).received(MIB).consumed(2 * MIB))
    assert window.target == 4 * MIB


def test_a_sender_that_does_not_announce_is_never_taken_for_starved() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB, elastic=True)).received(MIB // 4).consumed(MIB // 4)
    assert granted(window.received(0, 1000, hungry=True)).target == MIB


def test_a_shrunk_window_is_restored_to_the_backlog_but_not_above_the_largest_credit() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB, elastic=True, announced=True), granted=5 * MIB, peak=5 * MIB)
    waiting = window.received(4 * MIB).consumed(4 * MIB)
    assert granted(waiting.received(0, 3 * MIB)).granted == 12 * MIB  # grows to two batches of 4 MiB
    small = waiting._replace(largest=0)
    assert granted(small.received(0, 3 * MIB)).granted == 7 * MIB
    assert granted(small.received(0, 6 * MIB)).granted == 9 * MIB


@pytest.mark.parametrize(("backlog", "peak"), [(1, MIB), (3 * MIB, 3 * MIB), (9 * MIB, 8 * MIB)])
def test_of_the_peak_is_kept_what_the_sender_waits_for(backlog: int, peak: int) -> None:
    large = elastic_announced()._replace(granted=8 * MIB, peak=8 * MIB, target=MIB)
    assert large.received(8 * MIB, backlog).peak == peak
    assert large.received(4 * MIB, backlog).peak == max(peak, 4 * MIB)  # so much may still be out
    silent = large._replace(policy=GrantPolicy(8 * MIB, elastic=True))
    assert silent.received(8 * MIB, backlog).peak == 8 * MIB


def test_a_stream_that_makes_room_halves_its_target_and_gives_the_rest_back_as_it_is_used() -> None:
    window = elastic_announced()._replace(granted=8 * MIB, peak=8 * MIB, target=8 * MIB)
    charges = []
    for _ in range(6):
        window = window.received(MIB, 1).consumed(MIB).smaller()
        window = window.grant(pressed=True) or window
        charges.append(window.charge // MIB)
    assert charges == [7, 6, 5, 4, 3, 2]
    assert window.smaller().smaller().target == MIB


def test_a_sender_that_does_not_announce_is_not_asked_to_make_room() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB, elastic=True), target=8 * MIB)
    assert window.smaller() is window


def test_a_busy_window_keeps_its_size_under_pressure() -> None:
    window = elastic_announced()._replace(granted=4 * MIB, peak=4 * MIB, target=4 * MIB)
    for _ in range(20):
        window = window.received(MIB, 1).consumed(MIB)
        assert window.charge == 4 * MIB
        window = granted(window, pressed=True)
    assert window.target == 4 * MIB


def test_an_empty_backlog_does_not_forget_the_peak_of_a_sender_that_does_not_announce() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB, elastic=True), granted=8 * MIB, peak=8 * MIB, target=8 * MIB)
    drained = window.received(6 * MIB, 0).consumed(6 * MIB)
    assert granted(drained, pressed=True).granted == 14 * MIB


def test_a_backlog_above_the_target_doubles_it() -> None:
    window = elastic_announced().received(MIB, 100 * MIB).consumed(MIB)
    targets = []
    for _ in range(5):
        window = granted(window)
        targets.append(window.target // MIB)
        size = window.granted - window.arrived
        window = window.received(size).consumed(size)
    assert targets == [2, 4, 8, 8, 8]


def test_a_window_holds_two_batches() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB, elastic=True)).received(2 * MIB)
    assert granted(window.consumed(2 * MIB)).target == 4 * MIB
    window = ReceiveWindow(GrantPolicy(3 * MIB, elastic=True)).received(2 * MIB)
    assert granted(window.consumed(2 * MIB)).target == 3 * MIB


def test_an_empty_backlog_halves_the_target_down_to_the_initial_credit() -> None:
    window = ReceiveWindow(
        GrantPolicy(8 * MIB, elastic=True, announced=True), granted=8 * MIB, peak=8 * MIB, target=8 * MIB
    )
    targets = []
    for _ in range(60):
        window = window.received(MIB // 4, 0).consumed(MIB // 4)
        after = window.grant()
        if after is not None:
            window = after
            targets.append(window.target)
    assert targets[:3] == [4 * MIB, 2 * MIB, MIB]
    assert set(targets[3:]) == {MIB}
    assert window.peak == window.charge == MIB


def test_an_empty_backlog_does_not_shrink_the_window_of_a_sender_that_does_not_announce() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB, elastic=True), granted=8 * MIB, peak=8 * MIB, target=8 * MIB)
    window = granted(window.received(MIB, 0).consumed(MIB))
    assert (window.target, window.granted) == (8 * MIB, 9 * MIB)


def test_memory_pressure_stops_growth() -> None:
    window = elastic_announced().received(MIB, 100 * MIB).consumed(MIB)
    assert granted(window, pressed=True).granted == 2 * MIB
    assert granted(window, pressed=True).charge == window.charge


def test_charge_is_what_is_promised_or_held_and_at_least_the_peak() -> None:
    window = ReceiveWindow(GrantPolicy(8 * MIB))
    assert window.charge == MIB
    window = granted(window)
    assert window.charge == 8 * MIB
    window = window.received(6 * MIB).consumed(6 * MIB)
    assert window.charge == 8 * MIB
    assert ReceiveWindow().received(5 * MIB).charge == 5 * MIB
    assert ReceiveWindow().received(5 * MIB).consumed(5 * MIB).charge == MIB
