"""The endpoint itself: paths, methods, addresses, clients that do not behave."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest

from bench.harness.cluster import wait_until
from shuffle_api.errors import InvalidArgument
from shuffle_server.observe import http_endpoint
from shuffle_server.observe.families import WORKER
from shuffle_server.observe.http_endpoint import HttpEndpoint, Request, Response
from shuffle_server.observe.observation import Observation
from tests.shuffle_server.observe.helpers import get


def hello(request: Request) -> Response:
    return Response(HTTPStatus.OK, "text/plain", f"hello {request.accept}".encode())


def of(request: Request) -> Response:
    named = ",".join(f"{name}={value}" for name, value in request.named.items())
    return Response(HTTPStatus.OK, "text/plain", named.encode())


@pytest.fixture(autouse=True)
def _much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "REQUEST_SECONDS", 240.0)


@pytest.fixture
def address() -> Iterator[str]:
    endpoint = HttpEndpoint("127.0.0.1", 0, {"/hello": hello, "/of/{app}/x": of})
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
    assert (answer.status, answer.content_type) == (404, "application/json")
    assert answer.json() == {"error": "there is no path /../etc/passwd", "remedy": "use one of: /hello, /of/{app}/x"}


def test_parts_of_a_path_may_be_named(address: str) -> None:
    assert get(address, "/of/a%7Eb/x?y").text == "app=a~b"
    assert [get(address, path).status for path in ("/of//x", "/of/a/b/x", "/of/a/", "/of/a/y")] == [404] * 4


@pytest.mark.parametrize("method", ["POST", "DELETE", "BREW"])
def test_another_method_is_refused_with_those_there_are(address: str, method: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, "/hello", b"x")
    reply = connection.getresponse()
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")
    assert json.loads(reply.read())["error"] == f"the method {method} is not allowed"
    connection.close()


def test_what_is_no_http_is_refused_in_the_same_way(address: str) -> None:
    with connect(address) as client:
        client.sendall(b"GET /hello HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n")
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 431 ")
    assert set(json.loads(body)) == {"error", "remedy"}


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00", b"GET /hello", b"", b"GET /hello HTTP/9.9\r\n\r\n"])
def test_a_client_that_speaks_something_else_harms_nobody(address: str, sent: bytes) -> None:
    parsed = urllib.parse.urlsplit(f"http://{address}")
    with socket.create_connection((str(parsed.hostname), int(parsed.port or 0)), timeout=60) as connection:
        connection.sendall(sent)
    assert get(address, "/hello").status == 200


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def trickle(clients: list[socket.socket], closing: threading.Event, pause: float) -> None:
    """Clients that send a byte of a header now and then."""
    while not closing.wait(pause):
        for client in clients:
            with suppress(OSError):
                client.sendall(b"a")


def test_slow_clients_four_times_as_many_as_threads_keep_nobody_out(address: str) -> None:
    closing = threading.Event()
    clients = [connect(address) for _ in range(4 * http_endpoint.MOST_REQUESTS)]
    for client in clients:
        client.sendall(b"GET /hello HTTP/1.1\r\nX: ")
    slow = threading.Thread(target=trickle, args=(clients, closing, 1.0))
    slow.start()
    try:
        for _ in range(20):
            assert get(address, "/hello").status == 200
        assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) < 40
    finally:
        closing.set()
        slow.join()
        for client in clients:
            client.close()


@pytest.mark.parametrize("begin", [b"", b"GET /hello HTTP/1.1\r\nX: ", b"GET /large HTTP/1.1\r\n\r\n"])
def test_a_client_has_so_long_for_all_of_a_request(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(http_endpoint, "REQUEST_SECONDS", 0.2)
    routes = {"/hello": hello, "/large": lambda accept: Response(HTTPStatus.OK, "text/plain", bytes(64 << 20))}
    cut: list[None] = []
    endpoint = HttpEndpoint("127.0.0.1", 0, routes, lambda: cut.append(None))
    closing = threading.Event()
    try:
        with connect(f"127.0.0.1:{endpoint.port}") as client:
            client.sendall(begin)
            slow = threading.Thread(target=trickle, args=([client], closing, 0.05))
            slow.start()
            wait_until(lambda: bool(cut) and not endpoint._server._open, "the slow client is cut off")
            assert len(cut) == 1
            closing.set()
            slow.join()
    finally:
        closing.set()
        endpoint.close()


def test_requests_that_are_being_answered_are_not_cut_off_for_others() -> None:
    held = threading.Event()

    def wait(request: Request) -> Response:
        held.wait(60)
        return Response(HTTPStatus.OK, "text/plain", b"done")

    endpoint = HttpEndpoint("127.0.0.1", 0, {"/wait": wait})
    clients = [connect(f"127.0.0.1:{endpoint.port}") for _ in range(http_endpoint.MOST_REQUESTS)]
    for client in clients:
        client.sendall(b"GET /wait HTTP/1.0\r\n\r\n")
    wait_until(
        lambda: [each.waits for each in list(endpoint._server._open.values())] == [False] * len(clients),
        "all are asked",
    )
    with connect(f"127.0.0.1:{endpoint.port}") as one_too_many:
        assert one_too_many.recv(100) == b""
    held.set()
    for client in clients:
        assert client.recv(100).startswith(b"HTTP/1.0 200")
        client.close()
    endpoint.close()


def test_a_slow_client_does_not_delay_the_end() -> None:
    endpoint = HttpEndpoint("127.0.0.1", 0, {"/hello": hello})
    closing = threading.Event()
    with connect(f"127.0.0.1:{endpoint.port}") as client:
        client.sendall(b"GET /hel")
        wait_until(lambda: bool(endpoint._server._open), "the client is there")
        slow = threading.Thread(target=trickle, args=([client], closing, 0.05))
        slow.start()
        endpoint.close()
        closing.set()
        slow.join()


def test_a_browser_that_asks_for_an_icon_finds_none_and_no_error() -> None:
    observation = Observation("127.0.0.1:0", WORKER)
    connection = http.client.HTTPConnection(observation.address, timeout=60)
    connection.request("GET", "/favicon.ico")
    reply = connection.getresponse()
    assert (reply.status, reply.read(), reply.headers["Content-Length"]) == (204, b"", None)
    connection.close()
    observation.close()


def test_an_ipv6_address_is_listened_on() -> None:
    endpoint = HttpEndpoint("::1", 0, {"/hello": hello})
    assert get(f"[::1]:{endpoint.port}", "/hello").status == 200
    endpoint.close()


def test_an_address_in_use_is_named_with_its_option(address: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{address}.*--http-listen"):
        Observation(address)
    with pytest.raises(InvalidArgument, match="--http-listen ':1'"):
        Observation(":1")
