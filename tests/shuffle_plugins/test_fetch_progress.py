"""What a worker serves is held against what was asked for."""

from __future__ import annotations

import pytest

from shuffle_api.errors import ProtocolMismatch
from shuffle_api.ids import MapAttempt
from shuffle_api.values import MapOutput, Totals
from shuffle_plugins.remote.fetch_progress import FetchProgress

A, B, C = (MapAttempt(n, 0) for n in range(3))
OUTPUTS = [MapOutput(output, "w", Totals(blocks=blocks)) for output, blocks in ((A, 2), (B, 3), (C, 0))]


def progress(*, whole: bool = True) -> FetchProgress:
    return FetchProgress(OUTPUTS, range(4), whole=whole)


def test_each_block_is_handed_out_once_whatever_breaks() -> None:
    place = progress()
    assert [place.accept(o, 0) for o in (A, A, B)] == [True, True, True]
    assert place.place == (1, 1)
    again = FetchProgress(OUTPUTS[1:], range(4), whole=True, handed=1)
    assert [again.accept(B, p) for p in (0, 1, 1)] == [False, True, True]
    again.finish()


def test_progress_shows_in_the_place() -> None:
    place = progress()
    places = [place.place]
    for output in (A, A, B):
        place.accept(output, 0)
        places.append(place.place)
    assert places == sorted(set(places))


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ([(A, 4)], "a block of partition 4"),
        ([(A, -1)], "a block of partition -1"),
        ([(MapAttempt(0, 1), 0)], "blocks of map 0 attempt 1 out of turn, or not asked for"),
        ([(A, 0), (A, 0), (B, 0), (A, 0)], "blocks of map 0 attempt 0 out of turn"),
        ([(A, 0), (A, 0), (A, 0)], "more blocks of map 0 attempt 0 than"),
        ([(A, 0), (B, 0)], "1 blocks of map 0 attempt 0, expected were 2"),
        ([(A, 0), (A, 0), (C, 0)], "0 blocks of map 1 attempt 0, expected were 3"),
    ],
)
def test_blocks_that_were_not_asked_for_are_refused(blocks: list[tuple[MapAttempt, int]], says: str) -> None:
    place = progress()
    with pytest.raises(ProtocolMismatch, match=says):
        for output, partition in blocks:
            place.accept(output, partition)


def test_a_stream_that_ends_with_blocks_missing_is_refused() -> None:
    place = progress()
    for output in (A, A, B, B):
        place.accept(output, 0)
    with pytest.raises(ProtocolMismatch, match="2 blocks of map 1 attempt 0, expected were 3"):
        place.finish()


def test_of_some_partitions_any_number_of_blocks_will_do_but_not_fewer_than_before() -> None:
    place = progress(whole=False)
    assert place.accept(B, 0)
    assert place.accept(B, 0)
    place.finish()
    again = FetchProgress(OUTPUTS[1:], range(4), whole=False, handed=2)
    assert not again.accept(B, 0)
    with pytest.raises(ProtocolMismatch, match="1 blocks of map 1 attempt 0, expected were 2"):
        again.finish()
