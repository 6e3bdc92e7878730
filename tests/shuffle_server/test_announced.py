"""Addresses of servers: IPv6 from end to end, and what is announced where a server listens on all addresses."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.address import Address
from shuffle_api.errors import InvalidArgument
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.announced import announced_host
from shuffle_server.cli import roles
from shuffle_server.options import ServerOptions
from tests.shuffle_server.helpers import read_all, write_map


@pytest.mark.parametrize("advertise", ["", "::1", "[::1]"])
def test_a_job_through_a_server_at_an_ipv6_address(tmp_path: Path, advertise: str) -> None:
    options = [*(("--advertise", advertise) if advertise else ()), "--metrics-listen", "[::1]:0"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", options, listen="[::1]:0") as server,
        RemoteShuffle({"server": server.control, "hand_over": "off"}) as plugin,
        plugin.master("job") as job,
    ):
        assert server.control.startswith("[::1]:")
        assert server.data.startswith("[::1]:")
        handle = job.register_shuffle(4, 2)
        expected = [record for n in (0, 1) for record in write_map(plugin, handle, n, 100)]
        assert read_all(plugin, handle) == sorted(expected)


def test_a_server_on_all_addresses_announces_the_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "this_machine")
    monkeypatch.setattr(socket, "getaddrinfo", found("127.0.0.1"))
    for wildcard in ("0.0.0.0", "::"):
        assert announced_host("", Address(wildcard, 1)) == "this_machine"
        assert announced_host("public", Address(wildcard, 1)) == "public"
    assert announced_host("", Address("10.0.0.1", 1)) == "10.0.0.1"


@pytest.mark.parametrize(
    ("bound", "advertise", "place", "opened"),
    [
        ("127.0.0.1:9112", "public", "127.0.0.1", "http://127.0.0.1:9112"),
        ("0.0.0.0:9112", "", "127.0.0.1", "http://this_machine:9112"),
        ("[::]:9112", "public", "127.0.0.1", "http://public:9112"),
        ("0.0.0.0:9112", "[2001:db8::1]", "127.0.0.1", "http://[2001:db8::1]:9112"),
        ("0.0.0.0:9112", "", None, "http://localhost:9112"),
    ],
)
def test_at_a_terminal_the_page_is_named_by_an_address_that_can_be_opened(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bound: str,
    advertise: str,
    place: str | None,
    opened: str,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "this_machine")
    monkeypatch.setattr(socket, "getaddrinfo", found(place))
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    options = ServerOptions(data_dir="d", advertise=advertise)
    roles._advise("master", {"control": "a:1", "metrics": bound}, options)
    assert capsys.readouterr().err.splitlines()[0] == f"page: {opened}/   metrics: {opened}/metrics"
    roles._advise("worker", {"data": "a:2", "metrics": bound}, options)
    assert capsys.readouterr().err.splitlines()[0] == f"metrics: {opened}/metrics"


@pytest.mark.parametrize("place", ["192.0.2.1", None])
def test_a_server_on_all_addresses_whose_machine_has_no_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, place: str | None
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", found(place))
    with pytest.raises(InvalidArgument, match="--advertise"):
        announced_host("", Address("0.0.0.0", 9110))


def found(place: str | None) -> Callable[..., list[tuple[object, ...]]]:
    """What a name resolves to."""

    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        if place is None:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", (place, 0))]

    return getaddrinfo
