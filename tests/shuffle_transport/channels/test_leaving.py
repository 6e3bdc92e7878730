"""The end of a stream: the client asks for it, and never half-closes beside the thread that reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.flight as fl
import pytest

from shuffle_transport.channels.client import ExchangeClient
from shuffle_transport.channels.server import ExchangeEndpoint
from shuffle_transport.channels.stream import FlightStream
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA, LEAVE
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channels.helpers import ANY, MIB, TIMEOUT, connected, echo, number_of, numbered

ROOT = Path(__file__).parents[3]


def test_a_server_that_ends_a_stream_while_its_client_leaves_does_not_abort_the_client() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", "shuffle_api", "transport"])}
    command = [sys.executable, str(Path(__file__).with_name("rude.py")), "100", "4"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=4 * TIMEOUT, check=False
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-2000:]


def said_by_clients(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How clients end their streams."""
    said: list[str] = []
    write = FlightStream.write

    def watched(self: FlightStream, message: tuple[object, bytes | None]) -> None:
        if message[1] == LEAVE:
            said.append("leave")
        write(self, message)

    monkeypatch.setattr(FlightStream, "write", watched)
    return said


def echoed(client: ExchangeClient) -> None:
    with client.open("echo") as channel:
        channel.send(*numbered(7, 8), TIMEOUT)
        assert number_of(channel.receive(TIMEOUT)) == 7
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None


def test_a_client_asks_the_server_to_end_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by_clients(monkeypatch)
    with connected(echo) as (client, _):
        echoed(client)
    assert said == ["leave"]


def test_a_server_of_an_older_release_is_half_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.channels.server.SERVED_SCHEMA", EXCHANGE_SCHEMA)
    said = said_by_clients(monkeypatch)
    with connected(echo) as (client, _):
        echoed(client)
    assert said == []


def test_a_client_of_an_older_release_half_closes() -> None:
    def older(self: FlightStream) -> None:
        self._writer.done_writing()

    with ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT) as endpoint:
        with ExchangeClient(f"127.0.0.1:{endpoint.port}", BufferPool(64 * MIB), timeout=TIMEOUT) as client:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FlightStream, "_leave", lambda self: None)
                patch.setattr(
                    FlightStream,
                    "half_close",
                    lambda self: older(self) if isinstance(self._writer, fl.FlightStreamWriter) else None,
                )
                echoed(client)
