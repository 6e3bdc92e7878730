"""A worker that serves nonsense: readers and writers end with typed errors, in time, and no record is wrong."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest

from shuffle_api.errors import BlockCorrupt, ProtocolMismatch, ShuffleError, StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport.blocks import Block
from shuffle_transport.checksum import crc32c
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.malformed.evil import (
    MAPS,
    RECORDS,
    EvilWorker,
    batch_of,
    end_of,
    evil_worker,
    handle_of,
    put_result,
)
from tests.shuffle_server.malformed.mutate import changed, damaged

STREAMS = 1500
FIRST_SEED = int(os.environ.get("FLIGHT_SHUFFLE_MALFORMED_SEED", "0"))


def honest(messages: list[bytes]) -> Iterator[bytes]:
    return iter(messages)


def damaged_answer(rng: Random, messages: list[bytes]) -> Iterator[bytes]:
    """One message of a right answer damaged, left out, repeated or put elsewhere."""
    at = rng.randrange(len(messages))
    how = rng.randrange(8)
    if how == 0:
        del messages[at]
    elif how == 1:
        messages.insert(rng.randrange(len(messages) + 1), messages[at])
    elif how == 2:
        messages[at:] = []
    else:
        messages[at] = damaged(messages[at], rng)
    return iter(messages)


def read(plugin: RemoteShuffle, worker: EvilWorker) -> list[tuple[int, bytes]]:
    with plugin.reader(handle_of(worker), range(4)) as reader:
        return list(reader)


def test_an_honest_answer_is_read() -> None:
    with evil_worker(honest) as (plugin, worker):
        assert sorted(read(plugin, worker)) == RECORDS


def test_damaged_answers_end_in_typed_errors_and_give_no_wrong_record() -> None:
    outcomes: dict[str, int] = {}
    with evil_worker(honest) as (plugin, worker):
        for seed in range(FIRST_SEED, FIRST_SEED + STREAMS):
            rng = Random(f"evil {seed}")
            worker.pull = lambda messages, rng=rng: damaged_answer(rng, messages)  # type: ignore[misc]
            try:
                got = read(plugin, worker)
            except ShuffleError as error:
                outcomes[type(error).__name__] = outcomes.get(type(error).__name__, 0) + 1
            else:  # what was damaged did not matter, or the second attempt was better
                assert sorted(got) == RECORDS, f"seed {seed}"
                outcomes["read"] = outcomes.get("read", 0) + 1
    assert outcomes.keys() >= {"StreamBroken", "BlockCorrupt", "ProtocolMismatch", "InvalidArgument"}, outcomes


Lie = Callable[[list[bytes]], list[bytes]]
FIRST = [block for block, _ in MAPS[0]]


def other(**fields: int) -> Lie:
    """The first block of map 0 says something else of itself, in all that is sent, so that the totals agree."""

    def lie(messages: list[bytes]) -> list[bytes]:
        blocks = [dataclasses.replace(FIRST[0], **fields), *FIRST[1:]]  # type: ignore[arg-type]
        return [messages[0], batch_of([(0, b) for b in blocks]).data(), *messages[2:-1], all_of(blocks)]

    return lie


def all_of(first: list[Block]) -> bytes:
    return end_of([*first, *(b for m in (1, 2) for b, _ in MAPS[m])])


def stored(payload: bytes) -> Lie:
    return other(payload=payload, crc32c=crc32c(payload))  # type: ignore[arg-type]


LIES: dict[str, tuple[Lie, type[ShuffleError], str]] = {
    "a partition that was not asked for": (other(partition=4), ProtocolMismatch, "a block of partition 4"),
    "a negative partition": (other(partition=-1), ProtocolMismatch, "a block of partition -1"),
    "a checksum": (other(crc32c=1), BlockCorrupt, "does not match its checksum"),
    "a record count": (other(records=10), BlockCorrupt, "says 10 records and holds 9"),
    "a raw length of 2^40": (other(raw_length=2**40), BlockCorrupt, "declares 1099511627776 raw bytes"),
    "a raw length of 200 MiB": (other(raw_length=200 << 20), BlockCorrupt, "declares 209715200 raw bytes"),
    "a raw length one too long": (other(raw_length=FIRST[0].raw_length + 1), BlockCorrupt, "does not decompress"),
    "a raw length one too short": (other(raw_length=FIRST[0].raw_length - 1), BlockCorrupt, "does not decompress"),
    "noise": (stored(b"\xff" * 60), BlockCorrupt, "does not decompress"),
    "nothing for a map": (lambda m: [*m[:2], *m[3:-1], end_of([b for n in (0, 2) for b, _ in MAPS[n]])],
                          ProtocolMismatch, "0 blocks of map 1 attempt 0, expected were 4"),
    "a map twice": (lambda m: [*m[:3], *m[2:-1], end_of([b for n in (0, 1, 1, 2) for b, _ in MAPS[n]])],
                    ProtocolMismatch, "more blocks of map 1"),
    "maps in another order": (lambda m: [m[0], m[3], m[2], m[1], end_of([b for n in (2, 1, 0) for b, _ in MAPS[n]])],
                              ProtocolMismatch, "0 blocks of map 0|expected were 4"),
    "an end before the last block": (lambda m: [*m[:3], m[4]], BlockCorrupt, "says it served"),
    "the end of another pull": (lambda m: [*m[:4], end_of(FIRST)], BlockCorrupt, "says it served"),
    "a stranger's map": (lambda m: [m[0], batch_of([(9, b) for b in FIRST]).data(), *m[2:]],
                         ProtocolMismatch, "map 9 attempt 0 out of turn"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_consistent_lie_is_refused_by_name(lie: str) -> None:
    make, error, says = LIES[lie]
    with evil_worker(lambda messages: iter(make(messages))) as (plugin, worker), pytest.raises(error, match=says):
        read(plugin, worker)


def test_a_partition_that_was_changed_on_the_way_fails_the_read_and_is_not_retried_into_a_success() -> None:
    # The records of that block are out by then; to go on after them on a new stream would make the lie a result.
    moved = [dataclasses.replace(FIRST[0], partition=1), *FIRST[1:]]
    with evil_worker(honest, retry=5) as (plugin, worker):
        worker.pull = lambda m: iter([m[0], batch_of([(0, b) for b in moved]).data(), *m[2:]])
        with pytest.raises(BlockCorrupt, match="says it served"):
            read(plugin, worker)
        assert worker.pulls == 1


def test_a_worker_that_never_gets_anywhere_is_given_up() -> None:
    with evil_worker(lambda messages: iter(messages[:2]), retry=1) as (plugin, worker):
        with pytest.raises(StreamBroken, match="without its end message"):
            read(plugin, worker)
        assert worker.pulls > 1


def test_damaged_replies_to_a_push_end_in_typed_errors() -> None:
    right = pb.PutReply(granted=8 << 20, blocks_held=3)
    with evil_worker(honest, timeout=60) as (plugin, worker):
        for seed in range(FIRST_SEED, FIRST_SEED + 200):
            rng = Random(f"evil push {seed}")

            def push(sent: Iterator[bytes], rng: Random = rng) -> Iterator[bytes]:
                next(sent)
                for _ in range(rng.randrange(4)):
                    reply = changed(right, rng).SerializeToString()
                    yield put_result(damaged(reply, rng) if rng.random() < 0.5 else reply)

            worker.push = push
            try:
                with plugin.writer(handle_of(worker), MapAttempt(0, 0)) as writer:
                    writer.write(0, b"x" * 100)
                    winner = writer.commit().output
            except ShuffleError:
                continue
            # Damage can turn out as "another attempt of this map has won"; the worker is believed that alone.
            assert winner.map == 0
            assert winner.attempt != 0, f"seed {seed}"
