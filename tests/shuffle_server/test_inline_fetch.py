"""Small pulls in one answer: it holds the same blocks as a stream, and all else is left to the stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.harness.server import ServerProcess
from shuffle_api.errors import ErrorCode
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store import compacted_files as regions_module
from shuffle_server.store.compacted_file import CompactedFile
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.inline_fetch import MOST_BLOCKS, MOST_BYTES, fetch_inline
from shuffle_transport import messages
from shuffle_transport.blocks import totals_of
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, open_files, room, write_map
from tests.shuffle_server.observe.helpers import Scrape
from tests.shuffle_server.secured import Secured
from tests.shuffle_server.test_fetch_handler import PUSHED, pull, write

TIMEOUT_S = 30.0


def parsed(answer: bytes) -> list[tuple[int, int, bytes]] | None:
    """Its blocks (map, partition, payload), checked as a reader does; None: it names the stream."""
    got = pb.WholeGet.FromString(answer)
    if got.stream:
        assert answer == pb.WholeGet(stream=True).SerializeToString()
        return None
    rows = np.frombuffer(got.table, BLOCK_ROW)
    maps, attempts = np.frombuffer(got.maps, np.int64), np.frombuffer(got.attempts, np.int64)
    assert len(maps) == len(attempts) == len(rows)
    assert not attempts.any()
    assert messages.totals(got.end) == totals_of(rows)
    blocks, at = [], 0
    for number, (partition, checksum, length, _, _) in zip(maps.tolist(), rows.tolist(), strict=True):
        payload = got.payload[at : at + length]
        assert crc32c(payload) == checksum
        blocks.append((number, partition, payload))
        at += length
    assert at == len(got.payload)
    return blocks


def whole(store: Store, ranges: list[OutputRange]) -> list[tuple[int, int, bytes]] | None:
    served: list[tuple[int, int]] = []
    with room() as held:
        blocks = parsed(fetch_inline(store, SPEC.id, ranges, lambda *counts: served.append(counts), held))
    assert served == ([] if blocks is None else [(len(blocks), sum(len(payload) for _, _, payload in blocks))])
    return blocks


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(PUSHED, st.integers(0, 8), st.integers(0, 8), st.booleans())
def test_an_answer_holds_what_a_stream_serves(
    tmp_path_factory: pytest.TempPathFactory, pushed: list[list[tuple[int, bytes]]], first: int, end: int, merged: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regions_module, "LEAST_OUTPUTS", 2)
        patch.setattr(regions_module, "LEAST_MERGED", 2)
        store = Store(tmp_path_factory.mktemp("store"), options=StoreOptions(compaction=CompactionOptions(1 << 20)))
        outputs = [write(store, map_id, blocks) for map_id, blocks in enumerate(pushed)]
        ranges = [OutputRange(output, min(first, end), max(first, end)) for output in outputs]
        if merged:
            for _ in range(2):
                whole(store, ranges)  # which counts as reading, too
            assert store.compaction.merge() == (len(outputs) > 1)
        assert whole(store, ranges) == pull(store, ranges)[0]


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_too_much_for_an_answer_is_not_even_read(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    ranges = [
        OutputRange(write(store, 0, [(0, bytes(MOST_BYTES - 10))]), 0, 8),
        OutputRange(write(store, 1, [(0, bytes(10 + more))]), 0, 8),
    ]
    blocks = pull(store, ranges)[0]
    read, files = os.pread, set()

    def noted(fd: int, *arguments: Any) -> bytes:
        files.add(os.readlink(f"/proc/self/fd/{fd}"))
        return read(fd, *arguments)

    monkeypatch.setattr(os, "pread", noted)
    assert whole(store, ranges) == (None if more else blocks)
    assert len(files) == (0 if more else 2)


@pytest.mark.parametrize("more", [0, 1])
def test_empty_blocks_do_not_make_an_answer_large(more: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    ranges = [
        OutputRange(write(store, 0, [(0, b"")] * MOST_BLOCKS), 0, 8),
        OutputRange(write(store, 1, [(0, b"")] * more), 0, 8),
    ]
    assert whole(store, ranges) == (None if more else [(0, 0, b"")] * MOST_BLOCKS)
    assert len(pull(store, ranges)[0]) == MOST_BLOCKS + more


def test_what_cannot_be_served_is_left_to_the_stream_to_say(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outputs = [write(store, map_id, [(0, b"%d" % map_id)]) for map_id in range(3)]
    for lost in (2, 0):
        next(tmp_path.rglob(f"{lost}.0.out")).unlink()
        assert whole(store, [OutputRange(output, 0, 8) for output in outputs]) is None
    assert whole(store, [OutputRange(outputs[1], 0, 8)]) == [(1, 0, b"1")]
    store.close()
    assert open_files(tmp_path) == []


def test_a_region_that_is_cut_is_given_up_and_the_answer_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions_module, "LEAST_OUTPUTS", 2)
    monkeypatch.setattr(regions_module, "LEAST_MERGED", 2)
    store = Store(tmp_path, options=StoreOptions(compaction=CompactionOptions(1 << 20)))
    ranges = [OutputRange(write(store, map_id, [(0, b"%d" % map_id)]), 0, 8) for map_id in range(3)]
    before = whole(store, ranges)
    assert whole(store, ranges) == before
    assert store.compaction.merge() == 1

    def torn(self: CompactedFile, *arguments: object) -> None:
        raise OSError("cut")

    monkeypatch.setattr(CompactedFile, "rows", torn)
    assert whole(store, ranges) == before
    assert len(before or ()) == 3


# ---------------------------------------------------------------------- the action, at a real server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "server.log", ["--metrics-listen", "127.0.0.1:0"]) as process:
        yield process


def get(client: fl.FlightClient, ticket: pb.GetTicket) -> bytes:
    [result] = client.do_action(("get", ticket.SerializeToString()), fl.FlightCallOptions(timeout=TIMEOUT_S))
    return bytes(result.body.to_pybytes())


def test_the_action_answers_with_the_blocks_and_counts_as_a_pull(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master, closing(fl.connect(f"grpc://{server.data}")) as client:
        handle = master.register_shuffle(8, 2)
        for map_id in range(2):
            write_map(plugin, handle, map_id)
        before = Scrape(server.metrics)
        key = messages.key_of(handle.spec.id)
        blocks = parsed(get(client, pb.GetTicket(shuffle=key, first_partition=0, end_partition=8)))
        assert blocks
        after = Scrape(server.metrics)
        for name, count in (
            ("pulled_blocks_total", len(blocks)),
            ("pulled_bytes_total", sum(len(payload) for _, _, payload in blocks)),
            ("pull_first_byte_seconds_count", 1),
        ):
            assert after(name) - before(name) == count, name


@pytest.mark.parametrize(
    ("ticket", "code"),
    [
        (pb.GetTicket(maps=[pb.MapAttempt()], first_partition=7, end_partition=9), ErrorCode.INVALID_ARGUMENT),
        (pb.GetTicket(relay=pb.RelayReader(attempt=0)), ErrorCode.INVALID_ARGUMENT),
        (pb.GetTicket(end_partition=8), ErrorCode.MAP_OUTPUT_NOT_WRITTEN),
        (pb.GetTicket(shuffle=pb.ShuffleKey(app="app", shuffle=999)), ErrorCode.UNKNOWN_SHUFFLE),
    ],
)
def test_a_ticket_that_cannot_be_is_refused(
    ticket: pb.GetTicket, code: ErrorCode, server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master, closing(fl.connect(f"grpc://{server.data}")) as client:
        handle = master.register_shuffle(8, 2)
        write_map(plugin, handle, 0)
        if not ticket.HasField("shuffle"):
            ticket.shuffle.CopyFrom(messages.key_of(handle.spec.id))
        with pytest.raises(fl.FlightError) as error:
            get(client, ticket)
        assert ErrorCode(pb.Error.FromString(error.value.extra_info).code) == code


def test_only_the_applications_own_token_gets(secured: Secured) -> None:
    ticket = pb.GetTicket(shuffle=pb.ShuffleKey(app="A", shuffle=1))
    credentials = secured.keys.for_app("B")
    with closing(flight_connection(secured.server.data, credentials.tls)) as connected:
        options = flight_options(credentials, TIMEOUT_S)
        with pytest.raises(fl.FlightUnauthorizedError, match="the token of application"):
            list(connected.do_action(("get", ticket.SerializeToString()), options))
