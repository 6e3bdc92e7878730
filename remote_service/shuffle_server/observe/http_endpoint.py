"""A small HTTP server for monitoring: GET on a few paths, nothing else, nobody asked who they are."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from shuffle_api.errors import InvalidArgument
from shuffle_api.periodic import PeriodicTask

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # for which a client may be silent
MOST_REQUESTS = 16  # at once; more are cut off: nobody needs them, and each takes a thread


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: HTTPStatus
    content_type: str
    body: bytes


Route = Callable[[str], Response]
"""Answers GET, given the request's Accept header."""


class HttpEndpoint:
    """Answers from its constructor on, until `close`.

    :raises InvalidArgument: it cannot listen there.
    """

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        try:
            self._server = _Server(host.strip("[]"), port, routes)
        except OSError as error:
            raise InvalidArgument(
                f"cannot listen on {host}:{port}: {error}",
                remedy="choose another --metrics-listen address, or port 0 for any free one",
            ) from error
        self.port: int = self._server.server_address[1]
        self._task = PeriodicTask("metrics-http", self._server.serve_forever, 1.0, at_once=True)
        self._task.start()

    def close(self) -> None:
        """Stop answering; requests under way are answered first. Call once."""
        self._server.shutdown()
        self._task.close()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    block_on_close = True

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.routes = routes
        self._slots = threading.BoundedSemaphore(MOST_REQUESTS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.warning("a request to the metrics endpoint failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        route = self.server.routes.get(self.path.partition("?")[0])
        if route is None:
            known = " ".join(self.server.routes)
            response = Response(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"here are: {known}\n".encode())
        else:
            response = route(self.headers.get("Accept", ""))
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(response.body)

    def version_string(self) -> str:
        return "flight-shuffle"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.address_string(), format % args)
