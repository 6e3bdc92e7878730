"""Which blocks are sent again and which are skipped, number by number."""

import pytest

from shuffle_api.errors import InvalidArgument, ProtocolMismatch
from shuffle_transport.resume import HeldBlocks, SentBlocks


def test_a_sender_goes_back_to_what_was_acknowledged() -> None:
    place = SentBlocks().send(5).acknowledge(3).reconnect()
    assert place == SentBlocks(next=3, acknowledged=3, written=5)


def test_unacknowledged_blocks_are_kept() -> None:
    assert SentBlocks().send(5).acknowledge(3).retained == range(3, 5)
    assert SentBlocks().send(5).acknowledge(5).retained == range(5, 5)


def test_blocks_acknowledged_before_the_new_stream_passed_them_are_kept() -> None:
    place = SentBlocks().send(5).reconnect().send(1).acknowledge(4)
    assert place.retained == range(1, 5)
    assert place.send(3).retained == range(4, 5)


def test_late_acknowledgements_change_nothing() -> None:
    place = SentBlocks().send(5).acknowledge(3)
    assert place.acknowledge(2) == place.acknowledge(3) == place


def test_an_acknowledgement_of_what_was_never_sent_is_refused() -> None:
    with pytest.raises(ProtocolMismatch, match="claims 6 blocks, 5 were sent"):
        SentBlocks().send(5).acknowledge(6)
    # What an earlier stream sent may well be held, although this stream has not come to it.
    assert SentBlocks().send(5).reconnect().acknowledge(5).acknowledged == 5


@pytest.mark.parametrize(("first", "skips"), [(0, [2, 1, 0]), (1, [2, 0, 0]), (3, [0, 0, 0])])
def test_held_blocks_are_skipped(first: int, skips: list[int]) -> None:
    place = HeldBlocks(held=3).open(first)
    seen = []
    for _ in range(3):
        skip, place = place.receive(2)
        seen.append(skip)
    assert seen == skips
    assert place == HeldBlocks(held=first + 6, next=first + 6)


def test_a_stream_shorter_than_what_is_held_takes_nothing_away() -> None:
    assert HeldBlocks(held=3).open(0).receive(1) == (1, HeldBlocks(held=3, next=1))


@pytest.mark.parametrize("first", [4, -1])
def test_a_stream_that_leaves_a_gap_is_refused(first: int) -> None:
    with pytest.raises(InvalidArgument, match=f"block {first}, but only 3"):
        HeldBlocks(held=3).open(first)
