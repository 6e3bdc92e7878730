"""Proxies that the environment names are for what lies outside: no connection of a shuffle goes there."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow.flight as fl
import pytest

from shuffle_transport.connect import flight_connection, flight_options, grpc_channel
from shuffle_transport.security import Credentials


class _Actions(fl.FlightServerBase):  # type: ignore[misc]
    def list_actions(self, context: object) -> list[tuple[str, str]]:
        return [("one", "the only one")]


@pytest.fixture(params=["http_proxy", "https_proxy", "grpc_proxy"])
def proxy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that takes no connection; nothing is excepted from it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv(request.param, f"http://127.0.0.1:{closed.getsockname()[1]}")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("proxy")
def test_the_data_endpoint_is_reached_without_the_proxy() -> None:
    with _Actions("grpc+tcp://127.0.0.1:0") as server:
        with flight_connection(f"127.0.0.1:{server.port}", None) as client:
            assert len(list(client.list_actions(flight_options(Credentials(), 60)))) == 1


@pytest.mark.usefixtures("proxy")
def test_the_control_endpoint_is_reached_without_the_proxy() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc_channel(f"127.0.0.1:{port}", None) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
    finally:
        server.stop(None).wait()
