"""The endpoint itself: paths, methods, addresses, clients that do not behave."""

from __future__ import annotations

import http.client
import socket
import urllib.parse
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_server.observe import http_endpoint
from shuffle_server.observe.http_endpoint import HttpEndpoint, Response
from shuffle_server.observe.observation import Observation
from tests.shuffle_server.observe.helpers import get


def hello(accept: str) -> Response:
    return Response(HTTPStatus.OK, "text/plain", f"hello {accept}".encode())


@pytest.fixture
def address() -> Iterator[str]:
    endpoint = HttpEndpoint("127.0.0.1", 0, {"/hello": hello})
    yield f"127.0.0.1:{endpoint.port}"
    endpoint.close()


def test_get_is_answered_by_the_route_of_its_path(address: str) -> None:
    answer = get(address, "/hello?x=1", {"Accept": "a/b"})
    assert (answer.status, answer.content_type, answer.text) == (200, "text/plain", "hello a/b")


def test_head_is_answered_without_a_body(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("HEAD", "/hello", headers={"Accept": "a/b"})
    reply = connection.getresponse()
    assert (reply.status, reply.headers["Content-Length"], reply.read()) == (200, "9", b"")
    connection.close()


def test_another_path_is_told_which_there_are(address: str) -> None:
    answer = get(address, "/../etc/passwd")
    assert (answer.status, answer.text) == (404, "here are: /hello\n")


def test_another_method_is_refused(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("POST", "/hello", b"x")
    assert connection.getresponse().status == 501
    connection.close()


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00", b"GET /hello", b"", b"GET /hello HTTP/9.9\r\n\r\n"])
def test_a_client_that_speaks_something_else_harms_nobody(address: str, sent: bytes) -> None:
    parsed = urllib.parse.urlsplit(f"http://{address}")
    with socket.create_connection((str(parsed.hostname), int(parsed.port or 0)), timeout=60) as connection:
        connection.sendall(sent)
    assert get(address, "/hello").status == 200


def test_more_clients_than_threads_are_cut_off_and_the_next_is_served(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_endpoint._Handler, "timeout", 240.0)  # for which they may be silent
    host, _, port = address.rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(http_endpoint.MOST_REQUESTS)]
    with socket.create_connection((host, int(port)), timeout=60) as one_too_many:
        assert one_too_many.recv(100) == b""
    for connection in silent:
        connection.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 200")
        connection.close()


def test_an_ipv6_address_is_listened_on() -> None:
    endpoint = HttpEndpoint("::1", 0, {"/hello": hello})
    assert get(f"[::1]:{endpoint.port}", "/hello").status == 200
    endpoint.close()


def test_an_address_in_use_is_named_with_its_option(address: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{address}.*--metrics-listen"):
        Observation(address)
    with pytest.raises(InvalidArgument, match="--metrics-listen 'nowhere'"):
        Observation("nowhere")
