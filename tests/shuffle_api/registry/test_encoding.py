"""Operations as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MAX_ID, MapAttempt, ShuffleId
from shuffle_api.registry import (
    BeginJournal,
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    LoseWorkerOutputs,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    Registry,
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
    st.builds(LoseWorkerOutputs, IDS, WORKERS, TEXTS, COUNTS, COUNTS),
    st.builds(RegisterWorker, st.builds(WorkerInfo, WORKERS, TEXTS, st.integers(0, 65535), COUNTS)),
    st.builds(LoseWorker, WORKERS, TEXTS),
)
COMMIT = CommitMapOutput(ShuffleId("app", 1), MapOutput(MapAttempt(2, 3), "w", Totals(1, 2, 3, 4, 5)))


def decode(data: bytes) -> list[Operation]:
    return list(Decoder().decode(data))


@given(st.lists(OPERATIONS, max_size=5))
def test_operations_back_to_back_are_read_as_they_were(operations: list[Operation]) -> None:
    assert decode(b"".join(map(encode, operations))) == operations


WORKERS_OF_ONE = ("w0", "w1")
OF_ONE = ShuffleId("app", 1)
CHANGES_OF_ONE: st.SearchStrategy[Operation] = st.one_of(
    st.builds(
        CommitMapOutput,
        st.sampled_from([OF_ONE, ShuffleId("app", 2)]),
        st.builds(
            MapOutput,
            st.builds(MapAttempt, st.integers(0, 4), st.integers(0, 1)),
            st.sampled_from([*WORKERS_OF_ONE, "unknown"]),
            st.builds(Totals, st.integers(0, 1) | st.just(2**32), st.integers(0, 1)),
        ),
    ),
    st.builds(
        LoseMapOutput, st.just(OF_ONE), st.builds(MapAttempt, st.integers(0, 4), st.integers(0, 1)), st.just("gone")
    ),
    st.builds(LoseWorker, st.sampled_from(WORKERS_OF_ONE), st.just("gone")),
    st.builds(
        LoseWorkerOutputs,
        st.just(OF_ONE),
        st.sampled_from(WORKERS_OF_ONE),
        st.just("gone"),
        st.integers(0, 4),
        st.integers(0, 5),
    ),
    st.builds(RegisterWorker, st.builds(WorkerInfo, st.sampled_from(WORKERS_OF_ONE), st.just("host"), st.just(1))),
)


@given(st.lists(CHANGES_OF_ONE, max_size=40), st.integers(0, 40), st.sampled_from([1, 2]))
def test_a_replay_leads_to_the_same_state_and_the_same_refusals(
    changes: list[Operation], copied: int, replicas: int
) -> None:
    workers = [RegisterWorker(WorkerInfo(each, "host", 1)) for each in WORKERS_OF_ONE]
    operations: list[Operation] = [
        RegisterApp("app", "i", ""),
        *workers,
        RegisterShuffle(ShuffleSpec(OF_ONE, 3, 4, replicas=replicas)),
        *changes,
    ]
    applied, replayed, decoder = Registry(), Registry(), Decoder()
    copy = Registry()
    for number, operation in enumerate(operations):
        if number == copied:
            copy = replayed.copy()  # shares the shuffle, until it changes
            before = list(copy.operations())
        refused = why(lambda operation=operation: applied.apply(operation))  # type: ignore[misc]
        for each in decoder.replay(encode(operation), replayed.recommit):
            assert why(lambda each=each: each and replayed.apply(each)) == refused  # type: ignore[misc]
    assert replayed == applied
    assert list(replayed.operations()) == list(applied.operations())
    if copied < len(operations):
        assert list(copy.operations()) == before


def why(call: Callable[[], object]) -> str:
    try:
        call()
    except ShuffleError as error:
        return str(error)
    return ""


def test_a_replay_makes_no_objects_of_new_outputs() -> None:
    registry, decoder = Registry(), Decoder()
    for each in (RegisterApp("app", "i", ""), RegisterWorker(WorkerInfo("w", "host", 1))):
        registry.apply(each)
    registry.apply(RegisterShuffle(ShuffleSpec(COMMIT.shuffle, 3, 4)))
    outputs = [MapOutput(MapAttempt(map, 0), "w", Totals(1, 2, 3, 4, 5)) for map in range(3)]
    data = b"".join(encode(CommitMapOutput(COMMIT.shuffle, output)) for output in outputs)
    assert list(decoder.replay(data, registry.recommit)) == [None] * 3
    assert registry.located(COMMIT.shuffle)[0] == outputs


@pytest.mark.parametrize(("map", "attempt"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused_by_a_replay_too(map: int, attempt: int) -> None:
    data = bytearray(encode(COMMIT))
    data[19:35] = struct.pack("<qq", map, attempt)
    registry = Registry()
    for each in (RegisterApp("app", "i", ""), RegisterWorker(WorkerInfo("w", "host", 1))):
        registry.apply(each)
    registry.apply(RegisterShuffle(ShuffleSpec(COMMIT.shuffle, 3, 4)))
    with pytest.raises(InvalidArgument, match="number -1"):
        list(Decoder().replay(bytes(data), registry.recommit))


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
