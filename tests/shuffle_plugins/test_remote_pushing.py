"""Pushes of the `remote` plugin's writers: beside the writer's own work, and compressed where that helps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.harness.server import ServerProcess
from shuffle_api import MapAttempt
from shuffle_api.errors import (
    InvalidArgument,
    ServerUnreachable,
    ShuffleError,
    StorageFailed,
    StorageFull,
    StreamBroken,
)
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_plugins.remote.master import RemoteMaster
from shuffle_transport.connect import is_own_address
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.local_files import LocalFileWriter

SECONDS = 300.0
RECORD = b"x" * (32 << 10)
RECORDS = 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process


@contextmanager
def opened(server: ServerProcess, **options: str | int) -> Iterator[tuple[RemoteShuffle, RemoteMaster, ShuffleHandle]]:
    wire: dict[str, str | int] = {"server": server.control, "hand_over": "off", "block_bytes": 64 << 10}
    with RemoteShuffle({**wire, "push_bytes": 256 << 10, **options}) as plugin, plugin.master("app") as master:
        yield plugin, master, master.register_shuffle(1, 1)


def write(plugin: RemoteShuffle, handle: ShuffleHandle) -> None:
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        for _ in range(RECORDS):
            writer.write(0, RECORD)
        writer.commit()


@pytest.mark.parametrize("codec", ["none", "shuffle"])
def test_the_codec_is_left_out_where_no_network_is_crossed(server: ServerProcess, codec: str) -> None:
    with opened(server, hand_over_codec=codec) as (plugin, master, handle):
        write(plugin, handle)
        with plugin.reader(handle, range(1)) as reader:
            assert [record for _, record in reader] == [RECORD] * RECORDS
        [output] = master.map_outputs(handle)
        assert (output.totals.bytes < output.totals.raw_bytes) == (codec == "shuffle")
        assert plugin.statistics().pushed_bytes == output.totals.bytes


def test_a_worker_elsewhere_gets_compressed_blocks(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_plugins.remote.connection.is_own_address", lambda address: False)
    with opened(server) as (plugin, master, handle):
        write(plugin, handle)
        [output] = master.map_outputs(handle)
    assert output.totals.bytes < output.totals.raw_bytes


def test_own_addresses() -> None:
    assert is_own_address("127.0.0.1:9111")
    assert is_own_address("[::1]:9111") in (True, False)  # a host may have no IPv6
    assert not is_own_address("192.0.2.1:9111")  # for documentation (RFC 5737)
    assert not is_own_address("name.invalid:9111")


Push = Callable[..., Any]


def replaced(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Every push calls `before`."""
    push: Push = FlightClient.push

    def pushed(*given: Any, **named: Any) -> Any:
        before()
        return push(*given, **named)

    monkeypatch.setattr(FlightClient, "push", pushed)


def test_a_writer_goes_on_while_blocks_are_sent(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert go_on.wait(SECONDS)

    replaced(monkeypatch, wait)
    with opened(server, hand_over_codec="none") as (plugin, _, handle):
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for _ in range(8):
                writer.write(0, RECORD)
            assert began.wait(SECONDS)  # these are sent
            for _ in range(2):
                writer.write(0, RECORD)  # too little for another push
            go_on.set()
            writer.commit()
        with plugin.reader(handle, range(1)) as reader:
            assert [record for _, record in reader] == [RECORD] * 10


def test_what_a_push_has_met_is_raised_by_every_later_call(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse_the_first() -> None:
        if not refused.is_set():
            refused.set()
            raise StorageFull("the disk of the worker is full")

    replaced(monkeypatch, refuse_the_first)
    with opened(server) as (plugin, master, handle):
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            with pytest.raises(StorageFull):
                for _ in range(RECORDS):
                    writer.write(0, RECORD)
            with pytest.raises(StorageFull):
                writer.commit()
        assert not master.map_outputs(handle)


@pytest.mark.parametrize("by_file", [False, True])
def test_a_refusal_after_an_unanswered_commit_does_not_say_that_the_attempt_has_not_won(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, by_file: bool
) -> None:
    asked: list[str] = []

    def answer_lost(commit: Push) -> Push:
        """The first commit takes effect, its answer is lost; later ones are refused."""

        def call(*given: Any, **named: Any) -> Any:
            if asked:
                raise StorageFailed("the disk of the other worker fails")
            asked.append("commit")
            commit(*given, **named)
            raise ServerUnreachable("127.0.0.1:1", "the connection is reset")

        return call

    monkeypatch.setattr(FlightClient, "push", answer_lost(FlightClient.push))
    monkeypatch.setattr(LocalFileWriter, "commit", answer_lost(LocalFileWriter.commit))
    with opened(server, hand_over="auto" if by_file else "off", hand_over_from=0) as (plugin, master, handle):
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            writer.write(0, RECORD)
            with pytest.raises(StreamBroken, match=r"did not answer the commit, .* the other worker fails"):
                writer.commit()
        [output] = master.map_outputs(handle)
        assert output.output == MapAttempt(0, 0)


def test_an_attempt_that_is_aborted_while_it_is_sent_is_not_sent_again(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushes, began, go_on = [0], threading.Event(), threading.Event()

    def wait() -> None:
        pushes[0] += 1
        began.set()
        assert go_on.wait(SECONDS)
        raise ShuffleError("the worker refuses it")

    replaced(monkeypatch, wait)
    with opened(server, timeout=1) as (plugin, master, handle):
        writer = plugin.writer(handle, MapAttempt(0, 0))
        for _ in range(8):
            writer.write(0, RECORD)
        assert began.wait(SECONDS)
        threading.Timer(0.01, go_on.set).start()
        writer.abort()
        with pytest.raises(InvalidArgument):
            writer.commit()
        assert pushes == [1]
        assert not master.map_outputs(handle)
