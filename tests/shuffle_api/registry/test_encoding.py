"""Operations as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MAX_ID, MapAttempt, ShuffleId
from shuffle_api.registry import (
    BeginJournal,
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.registry.encoding import Decoder, encode
from shuffle_api.values import CONTENTS, MapOutput, ShuffleSpec, Totals, WorkerInfo

TEXTS = st.text(max_size=20)
APPS = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", fullmatch=True)
WORKERS = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
NUMBERS, COUNTS = st.integers(0, MAX_ID), st.integers(0, 2**64 - 1)
IDS, ATTEMPTS = st.builds(ShuffleId, APPS, NUMBERS), st.builds(MapAttempt, NUMBERS, NUMBERS)
TOTALS = st.builds(Totals, COUNTS, COUNTS, COUNTS, COUNTS, st.integers(0, 2**32 - 1))
COMMITS = st.builds(CommitMapOutput, IDS, st.builds(MapOutput, ATTEMPTS, WORKERS, TOTALS))
SPECS = st.builds(
    ShuffleSpec, IDS, st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1), TEXTS, st.sampled_from(CONTENTS)
)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    COMMITS,
    st.builds(BeginJournal, TEXTS),
    st.builds(RegisterApp, APPS, TEXTS, TEXTS),
    st.builds(UnregisterApp, APPS),
    st.builds(ExpireApps, st.lists(APPS, max_size=3).map(tuple)),
    st.builds(RegisterShuffle, SPECS),
    st.builds(UnregisterShuffle, IDS),
    st.builds(LoseMapOutput, IDS, ATTEMPTS, TEXTS),
    st.builds(RegisterWorker, st.builds(WorkerInfo, WORKERS, TEXTS, st.integers(0, 65535), COUNTS)),
    st.builds(LoseWorker, WORKERS, TEXTS),
)
COMMIT = CommitMapOutput(ShuffleId("app", 1), MapOutput(MapAttempt(2, 3), "w", Totals(1, 2, 3, 4, 5)))


def decode(data: bytes) -> list[Operation]:
    return list(Decoder().decode(data))


@given(st.lists(OPERATIONS, max_size=5))
def test_operations_back_to_back_are_read_as_they_were(operations: list[Operation]) -> None:
    assert decode(b"".join(map(encode, operations))) == operations


@given(st.lists(OPERATIONS, min_size=1, max_size=3), st.data())
def test_what_is_cut_off_is_refused_and_not_guessed(operations: list[Operation], data: st.DataObject) -> None:
    whole = b"".join(map(encode, operations))
    borders = {len(b"".join(map(encode, operations[:n]))) for n in range(len(operations) + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda size: size not in borders))
    with pytest.raises(InvalidArgument):
        decode(whole[:cut])


@given(st.binary(min_size=1, max_size=80))
def test_garbage_is_refused_with_a_typed_error(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        decode(data)


@given(OPERATIONS, st.data())
def test_a_changed_byte_gives_other_operations_or_a_typed_error(operation: Operation, data: st.DataObject) -> None:
    whole = bytearray(encode(operation))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(whole))
    except InvalidArgument:
        pass


def test_an_operation_of_a_later_release_is_refused_by_name() -> None:
    text = b'{"op":"RegisterMoon","name":"x"}'
    with pytest.raises(InvalidArgument, match=r"RegisterMoon.*release of flight-shuffle that wrote it"):
        decode(b"J" + len(text).to_bytes(4, "little") + text)


def test_numbers_that_do_not_fit_are_refused_before_anything_is_recorded() -> None:
    output = MapOutput(MapAttempt(0, 0), "w", Totals(records=2**64))
    with pytest.raises(InvalidArgument, match="18446744073709551616"):
        encode(CommitMapOutput(ShuffleId("app", 1), output))


def test_equal_names_become_one_object() -> None:
    first, second = Decoder().decode(encode(COMMIT) * 2)
    assert isinstance(first, CommitMapOutput)
    assert isinstance(second, CommitMapOutput)
    assert first.shuffle is second.shuffle
    assert first.output.worker is second.output.worker
