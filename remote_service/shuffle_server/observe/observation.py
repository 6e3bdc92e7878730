"""A server's instruments, and the endpoint that shows them and serves the page; off unless an address is given."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

from prometheus_client import disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector

from shuffle_api.address import Address
from shuffle_api.errors import ShuttingDown
from shuffle_server.observe.api import Api
from shuffle_server.observe.collector import ServerCollector
from shuffle_server.observe.families import BOTH, Parts
from shuffle_server.observe.figures import Figures, MasterSources, Sources, gather
from shuffle_server.observe.health import Check, Health
from shuffle_server.observe.http_endpoint import HttpEndpoint, Request, Response, Route
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import http_listen
from shuffle_server.security import is_loopback
from shuffle_transport.security import Authenticate

log = logging.getLogger(__name__)
_HTML = Path(__file__).with_name("page.html").read_bytes()


def _policy() -> str:
    """The page's script and style are allowed by their hashes, and nothing else; it only talks to its server."""
    allowed = {"script": "'none'", "style": "'none'"}
    for kind in allowed:
        for part in re.findall(rf"<{kind}>(.*?)</{kind}>".encode(), _HTML, re.DOTALL):
            allowed[kind] = f"'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


_HEADERS = (("Content-Security-Policy", _policy()), ("Referrer-Policy", "no-referrer"))


def _page(request: Request) -> Response:
    return Response(HTTPStatus.OK, "text/html; charset=utf-8", _HTML, _HEADERS)


PAGE: dict[str, Route] = {"/": _page}


def _no_icon(request: Request) -> Response:
    """Browsers ask for it by themselves."""
    return Response(HTTPStatus.NO_CONTENT, "", b"")


class Observation:
    """Answers from its constructor on: first that the server starts, after `attach` how it is, until `close`.

    :param listen: HOST:PORT, or empty for no endpoint.
    :param parts: of a server that run in this process.
    :param authenticate: whom a token comes from, for the API; None: it wants none.
    :param https: the server's certificate; None: it answers in plain text.
    :raises InvalidArgument: the address is none, or in use.
    """

    def __init__(
        self,
        listen: str,
        parts: Parts = BOTH,
        authenticate: Authenticate | None = None,
        https: ssl.SSLContext | None = None,
    ) -> None:
        self._authenticate, self._https = authenticate, https
        self.instruments = Instruments(parts)
        self.address = ""
        self._sources: Sources | None = None
        self._health: Health | None = None
        self._could_not_lead: Callable[[], str] | None = None  # of a standby
        self._stopping = False
        self._http: HttpEndpoint | None = None
        if listen:
            self._listen(listen)

    def _listen(self, listen: str) -> None:
        host = (address := http_listen(listen)).host
        # They would be series of their own in the text format, and say nothing but when the server started.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self.instruments.registry
        traffic = self.instruments.traffic if "worker" in self.instruments.parts else None
        master = "master" in self.instruments.parts
        registry.register(ServerCollector(traffic, self._figures, self._is_ready, self._leads if master else None))
        ProcessCollector(registry=registry)
        routes = {"/metrics": self._metrics, "/health": self._alive, "/ready": self._ready, "/favicon.ico": _no_icon}
        if master:
            api = Api(self._leading, self._authenticate, self._https is not None or is_loopback(host))
            routes |= {"/leader": self._leader, **PAGE, **api.routes()}
        self._http = HttpEndpoint(host, address.port, routes, self.instruments.monitoring_cut, self._https)
        self.address = str(Address(host, self._http.port))
        if not is_loopback(host):
            log.warning(
                "metrics on %s are shown to whoever asks; they name no application. %s",
                self.address,
                "The page and its API want the token, over TLS"
                if self._authenticate and self._https
                else "The page and its API are refused: give --tls-cert, or --http-listen a loopback address for them"
                if self._authenticate
                else "The page and its API name applications and workers"
                if master
                else "",
            )

    @property
    def ready(self) -> Sequence[tuple[str, str]]:
        """What the ready line says of it."""
        return [("metrics", self.address)] if self.address else []

    def attach(self, sources: Sources, need_bytes: int) -> None:
        """The server has started; this is what to look at."""
        self._could_not_lead = None
        self._sources, self._health = sources, Health(sources, need_bytes)

    def stand_by(self, could_not_lead: Callable[[], str]) -> None:
        """Another master leads; asked why this one could not take over now, empty if it could."""
        self._could_not_lead = could_not_lead

    def stopping(self) -> None:
        """The server takes no new work from now on."""
        self._stopping = True

    def close(self) -> None:
        """Stop answering. Call once."""
        if self._http is not None:
            self._http.close()

    def _figures(self) -> Figures | None:
        return None if self._sources is None else gather(self._sources)

    def _is_ready(self) -> bool:
        return all(check.ok for check in self._ready_checks())

    def _ready_checks(self) -> Sequence[Check]:
        if self._stopping:
            return [Check("accepting", False, "the server is stopping")]
        if self._could_not_lead is not None:
            reason = self._could_not_lead()
            return [Check("database", not reason, reason)]
        if self._health is None:
            return [Check("accepting", False, "the server is starting: it reads its journal and its files")]
        return [Check("accepting", True), *self._health.ready()]

    def _leads(self) -> bool:
        return self._leader_check().ok

    def _leader_check(self) -> Check:
        if self._health is not None and not self._stopping:
            return self._health.leader()
        return Check("leader", False, "another master leads" if self._could_not_lead else "it starts or stops")

    def _leading(self) -> MasterSources:
        master = None if self._sources is None else self._sources.master
        if master is None or self._stopping:
            reason = self._leader_check().reason
            raise ShuttingDown(f"this master does not lead: {reason}", remedy="ask the master that leads")
        return master

    def _metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.accept)
        return Response(HTTPStatus.OK, content_type, encode(self.instruments.registry))

    def _alive(self, request: Request) -> Response:
        return self._answer(() if self._health is None else self._health.alive())

    def _ready(self, request: Request) -> Response:
        return self._answer(self._ready_checks())

    def _leader(self, request: Request) -> Response:
        return self._answer([self._leader_check()])

    def _answer(self, checks: Sequence[Check]) -> Response:
        return _answer(checks, "standby" if self._could_not_lead is not None else "ok")


def _answer(checks: Sequence[Check], well: str) -> Response:
    """200 or 503, and as JSON the checks with their reasons. `well`: the status where all are fulfilled."""
    ok = all(check.ok for check in checks)
    document = {
        "status": well if ok else "failed",
        "checks": {check.name: {"ok": check.ok, "reason": check.reason} for check in checks},
    }
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, "application/json", json.dumps(document, indent=2).encode() + b"\n")
