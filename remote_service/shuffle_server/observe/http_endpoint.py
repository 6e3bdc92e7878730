"""A small HTTP server for the page, its API and monitoring: GET on a few paths, nothing else.

A client that is slow to ask, or to read the answer, keeps nobody else out: it has REQUEST_SECONDS for all of it, and
when there are as many connections as there may be, the oldest one that waits for its client makes room for the next.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from shuffle_api.address import Address
from shuffle_api.errors import InvalidArgument
from shuffle_api.periodic import PeriodicTask

log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0  # from the connection to the end of the answer
MOST_REQUESTS = 16  # connections at once, each of which takes a thread
LOOK_SECONDS = 0.2  # between two looks for connections whose time is over


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def json_response(
    status: HTTPStatus, document: Mapping[str, Any], headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An answer in JSON, on one line."""
    return Response(status, "application/json", json.dumps(document).encode() + b"\n", headers)


@dataclass(frozen=True, slots=True)
class Request:
    """What a GET asks: the headers Accept and Authorization, what is behind the question mark, and of the path what
    stands where its route has a name in braces."""

    accept: str
    authorization: str = ""
    query: str = ""
    named: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Request], Response]
"""Answers GET of a path, whose parts may be names in braces: `/apps/{app}`."""
ALLOWED = "GET, HEAD"


class HttpEndpoint:
    """Answers from its constructor on, until `close`.

    :raises InvalidArgument: it cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        cut: Callable[[], None] = lambda: None,
        https: ssl.SSLContext | None = None,
    ) -> None:
        """:param cut: called for each connection that is closed before it has its answer.
        :param https: the certificate to answer with over TLS."""
        try:
            self._server = _Server(host, port, routes, cut, https)
        except OSError as error:
            raise InvalidArgument(
                f"cannot listen on {Address(host, port)}: {error}",
                remedy="choose another --http-listen address, or port 0 for any free one",
            ) from error
        self.port: int = self._server.server_address[1]
        self._task = PeriodicTask("metrics-http", self._serve, 1.0, at_once=True)
        self._task.start()

    def _serve(self) -> None:
        self._server.serve_forever(LOOK_SECONDS)

    def close(self) -> None:
        """Stop answering; requests that have come whole are answered first. Call once."""
        self._server.shutdown()
        self._task.close()
        self._server.cut_unread()
        self._server.server_close()


class _HttpConnection:
    """Of a client. `waits`: for the client to send its request, or to take the answer."""

    __slots__ = ("asked", "cut", "deadline", "socket", "waits")

    def __init__(self, socket: socket.socket) -> None:
        self.socket, self.deadline = socket, time.monotonic() + REQUEST_SECONDS
        self.waits, self.asked, self.cut = True, False, False


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 128
    block_on_close = True

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        cut: Callable[[], None],
        https: ssl.SSLContext | None,
    ) -> None:
        self._cut, self._https = cut, https
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.routes = routes
        self._lock = threading.Lock()
        self._open: dict[socket.socket, _HttpConnection] = {}  # the oldest first
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        request, address = super().get_request()
        if self._https is not None:
            # The handshake comes with the first read, in the connection's own thread and time.
            request = self._https.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room():
            with self._lock:
                self._open[request] = _HttpConnection(request)
            super().process_request(request, client_address)
        else:
            self._cut()
            self.shutdown_request(request)

    def _room(self) -> bool:
        """Whether there may be one more connection; the oldest one that waits for its client gives way to it."""
        with self._lock:
            if len(self._open) < MOST_REQUESTS:
                return True
            for request, connection in self._open.items():
                if connection.waits:
                    self._end(connection)
                    del self._open[request]
                    return True
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """Cut off those whose time is over."""
        now = time.monotonic()
        with self._lock:
            for connection in self._open.values():
                if connection.waits and connection.deadline < now:
                    self._end(connection)

    def cut_unread(self) -> None:
        """Cut off those whose request has not come."""
        with self._lock:
            for connection in self._open.values():
                if not connection.asked:
                    self._end(connection)

    def _end(self, connection: _HttpConnection) -> None:
        """Wake the thread that waits for the client, which closes the connection then."""
        if connection.cut:
            return
        connection.cut = True
        self._cut()
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    def asked(self, request: socket.socket) -> bool:
        """A request has come whole; whether it is to be answered."""
        with self._lock:
            connection = self._open.get(request)
            if connection is None or connection.cut:
                return False
            connection.asked, connection.waits = True, False
            return True

    def answered(self, request: socket.socket) -> None:
        """Its answer is about to be sent."""
        with self._lock:
            if connection := self._open.get(request):
                connection.waits = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), OSError):
            log.debug("a client of the metrics endpoint is gone", exc_info=True)
        else:
            log.warning("a request to the metrics endpoint failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self.server.asked(self.connection):
            return
        response = self._response()
        self.server.answered(self.connection)
        self._send(response, body=body)

    def _send(self, response: Response, *, body: bool) -> None:
        self.send_response(response.status)
        if response.body:
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in response.headers:
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(response.body)

    def _response(self) -> Response:
        path, _, query = self.path.partition("?")
        for pattern, route in self.server.routes.items():
            named = _named(pattern, path)
            if named is not None:
                headers = self.headers
                return route(Request(headers.get("Accept", ""), headers.get("Authorization", ""), query, named))
        remedy = f"use one of: {', '.join(self.server.routes)}"
        return json_response(HTTPStatus.NOT_FOUND, {"error": f"there is no path {path}", "remedy": remedy})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses: a method that has no `do_` here, or no HTTP at all."""
        status, allow = HTTPStatus(code), tuple[tuple[str, str], ...]()
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status, allow = HTTPStatus.METHOD_NOT_ALLOWED, (("Allow", ALLOWED),)
            message = f"the method {self.command} is not allowed"
        self.log_error("code %d, message %s", status, message)
        document = {"error": message or status.phrase, "remedy": f"send HTTP with one of the methods {ALLOWED}"}
        self._send(json_response(status, document, allow), body=True)

    def version_string(self) -> str:
        return "flight-shuffle"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.address_string(), format % args)


def _named(pattern: str, path: str) -> dict[str, str] | None:
    """What stands in a path for the names in braces of a pattern; None: it is another path."""
    named = {}
    names, parts = pattern.split("/"), path.split("/")
    if len(names) != len(parts):
        return None
    for name, part in zip(names, parts, strict=True):
        if name.startswith("{") and part:
            named[name[1:-1]] = unquote(part)
        elif name != part:
            return None
    return named
