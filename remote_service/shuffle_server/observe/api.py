"""The read-only JSON API of a master: what the page and programs ask. However many ask, the status behind it is made at
most once a second, and for that at most a twentieth of a processor is used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs

import numpy as np

from shuffle_api.address import Address
from shuffle_api.errors import AppExpired, InvalidArgument, ShuffleError, UnknownApp, UnknownShuffle
from shuffle_api.ids import name_of
from shuffle_server.compaction_shown import CompactionShown
from shuffle_server.observe.figures import MasterSources, Skew
from shuffle_server.observe.http_endpoint import Request, Response, json_response
from shuffle_server.status_pages import all_pages, state_of
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import SCHEME, Authenticate

FRESH_SECONDS = 1.0
MOST_SHARE = 0.05
ROWS = 50  # in an answer, where the request does not say
MOST_ROWS = 1000
LARGEST, DRAWN = 10, 200  # partitions of a shuffle that are listed, and drawn
QUANTILES = {"median": 50, "p99": 99, "max": 100}

Row = dict[str, Any]
T = TypeVar("T")


class Api:
    """Answers below /api/v1.

    :param leading: the master in this process; raises ShuttingDown while it does not lead.
    :param authenticate: whom the token of a request comes from; None: none is wanted.
    :param shown: whether tokens may come in over this endpoint: they are encrypted, or do not leave the machine.
    """

    def __init__(self, leading: Callable[[], MasterSources], authenticate: Authenticate | None, shown: bool) -> None:
        self._leading = leading
        self._authenticate, self._shown = authenticate, shown
        self._lock = threading.Lock()
        self._due = 0.0  # when the status is made anew
        self._reply = pb.StatusReply()

    def routes(self) -> dict[str, Callable[[Request], Response]]:
        """What answers each path."""
        made = {"cluster": self._cluster, "workers": self._workers, "apps": self._apps, "shuffles": self._shuffles}
        made |= {"shuffles/{app}/{shuffle}/partitions": self._partitions, "events": self._events_page}
        return {f"/api/v1/{name}": self._answering(make) for name, make in made.items()}

    def _answering(self, make: Callable[[Mapping[str, str]], Row]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            refusal = self._refusal(request.authorization)
            if refusal is not None:
                return refusal
            try:
                query = {name: values[-1] for name, values in parse_qs(request.query).items()}
                return json_response(HTTPStatus.OK, make({**query, **request.named}))
            except InvalidArgument as error:
                return _error(HTTPStatus.BAD_REQUEST, error)
            except (UnknownApp, AppExpired, UnknownShuffle) as error:
                return _error(HTTPStatus.NOT_FOUND, error)
            except ShuffleError as error:
                return _error(HTTPStatus.SERVICE_UNAVAILABLE, error)

        return answer

    def _refusal(self, authorization: str) -> Response | None:
        """Why a request is refused; None when it may look at everything."""
        if self._authenticate is None:
            return None
        if not self._shown:
            text = (
                "this endpoint does not encrypt tokens: give --tls-cert, or --http-listen a loopback address for ssh -L"
            )
            return json_response(HTTPStatus.FORBIDDEN, {"error": text})
        try:
            principal = self._authenticate([authorization] if authorization else [], [])
        except ShuffleError as error:
            return _error(HTTPStatus.UNAUTHORIZED, error)
        if principal.app is None:
            return None
        return json_response(HTTPStatus.FORBIDDEN, {"error": f"the API is for the cluster's token, as {SCHEME} TOKEN"})

    def _whole(self) -> pb.StatusReply:
        with self._lock:
            if time.monotonic() >= self._due:
                began = time.thread_time()
                self._reply = all_pages(self._leading().status)
                spent = time.thread_time() - began
                self._due = time.monotonic() + max(FRESH_SECONDS, spent / MOST_SHARE)
            return self._reply

    def _cluster(self, query: Mapping[str, str]) -> Row:
        master, reply = self._leading(), self._whole()
        return {
            "server": reply.server,
            "epoch": reply.epoch,
            "leader": master.address,
            "standbys": list(master.standbys()),
            "uptime_seconds": round(reply.uptime_seconds, 1),
            "workers": len(reply.workers),
            "workers_silent": sum(worker.silent for worker in reply.workers),
            "workers_draining": sum(worker.draining for worker in reply.workers),
            "workers_lost": reply.workers_lost,
            "outputs_lost": reply.outputs_lost,
            "directories_out": sum(bool(disk.out) for state in reply.states for disk in state.disks),
            "memory_used": sum(state.memory_used for state in reply.states),
            "memory_budget": sum(state.memory_budget for state in reply.states),
            "streams_waiting": sum(state.waiting_streams for state in reply.states),
            "credit_stalls": sum(state.credit_stalls for state in reply.states),
            "credit_stall_seconds": round(sum(state.credit_stall_seconds for state in reply.states), 3),
            "apps": len(reply.apps),
            "shuffles": len(reply.shuffles),
            "outputs_degraded": sum(each.degraded for each in reply.shuffles),
            "bytes": sum(each.totals.bytes for each in reply.shuffles),
            "bytes_pushed": reply.bytes_pushed,
            "bytes_pulled": reply.bytes_pulled,
        }

    def _workers(self, query: Mapping[str, str]) -> Row:
        reply = self._whole()
        states = {state.worker: state for state in reply.states}
        rows = [_worker(each, states.get(each.id, pb.WorkerStatus())) for each in reply.workers]
        rows += [
            {"worker": each.worker, "address": each.address, "state": "lost", "reason": each.reason}
            for each in reply.lost
        ]
        return _page(rows, query, WORKER_ORDERS, dict, "worker")

    def _apps(self, query: Mapping[str, str]) -> Row:
        return _page(self._whole().apps, query, APP_ORDERS, _app, "-bytes")

    def _shuffles(self, query: Mapping[str, str]) -> Row:
        app, reply = query.get("app"), self._whole()
        decided = CompactionShown(reply)
        found: Iterable[pb.ShuffleStatus] = reply.shuffles
        if app:
            found = [each for each in found if app in (each.shuffle.app, name_of(each.shuffle.app))]
        return _page(found, query, SHUFFLE_ORDERS, lambda each: _shuffle(each, decided.of(each)), "-bytes")

    def _partitions(self, query: Mapping[str, str]) -> Row:
        number = _number(query, "shuffle", 0, 2**63)
        skew = self._leading().skew(query["app"], number)
        return {"app": skew.app, "shuffle": number, **_skew_row(skew)}

    def _events_page(self, query: Mapping[str, str]) -> Row:
        after, limit = _number(query, "after", 0, 2**63), _number(query, "limit", ROWS, MOST_ROWS)
        rows = [
            {
                "number": each.number,
                "unix_seconds": round(each.unix_seconds, 3),
                "kind": each.kind,
                "worker": each.worker,
                "app": each.app,
                "text": each.text,
            }
            for each in self._leading().events(after, limit)
        ]
        return {"rows": rows}


def _app(app: pb.AppStatus) -> Row:
    return {
        "app": app.app,
        "name": app.name,
        "user": app.driver.user,
        "host": app.driver.host,
        "began": app.driver.began or None,
        "heartbeat_seconds": round(app.idle_seconds, 1),
        "shuffles": app.shuffles,
        "bytes": app.bytes,
    }


def _shuffle(shuffle: pb.ShuffleStatus, compaction: str) -> Row:
    return {
        "app": shuffle.shuffle.app,
        "shuffle": shuffle.shuffle.shuffle,
        "partitions": shuffle.partitions,
        "maps": shuffle.maps,
        "committed": shuffle.committed,
        "records": shuffle.totals.records,
        "bytes": shuffle.totals.bytes,
        "replicas": shuffle.replicas,
        "degraded": shuffle.degraded,
        "compaction": compaction,
    }


def _worker(worker: pb.Worker, state: pb.WorkerStatus) -> Row:
    return {
        "worker": worker.id,
        "address": str(Address(worker.host, worker.port)),
        "state": state_of(worker),
        "labels": list(worker.labels),
        "release": state.release,
        "free_bytes": worker.free_bytes,
        "memory_used": state.memory_used,
        "memory_budget": state.memory_budget,
        "streams_waiting": state.waiting_streams,
        "credit_stalls": state.credit_stalls,
        "credit_stall_seconds": round(state.credit_stall_seconds, 3),
        "pushes": state.open_pushes,
        "pulls": state.open_pulls,
        "bytes_pushed": state.bytes_pushed,
        "bytes_pulled": state.bytes_pulled,
        "disks": [
            {"path": disk.path, "size": disk.size, "used": disk.used, "free": disk.free, "out": disk.out}
            for disk in state.disks
        ],
    }


def _skew_row(skew: Skew) -> Row:
    """How the sizes are spread, those of the largest partitions, and for a drawing some of all, the largest first."""
    order = np.argsort(-skew.sizes, kind="stable")
    falling = skew.sizes[order]
    drawn = np.linspace(0, max(0, len(falling) - 1), min(DRAWN, len(falling))).astype(int)
    return {
        "partitions": skew.partitions,
        "committed": skew.committed,
        "outputs": skew.outputs,
        "bytes": int(falling.sum()),
        **{name: int(np.percentile(falling, part)) if len(falling) else 0 for name, part in QUANTILES.items()},
        "largest": [{"partition": int(at), "bytes": int(skew.sizes[at])} for at in order[:LARGEST]],
        "sizes": [int(falling[at]) for at in drawn],
    }


def _of_row(column: str, absent: str | int) -> Callable[[Row], Any]:
    return lambda row: row.get(column, absent)


# The columns by which the lists may be sorted. A list may be long: it is sorted before rows are made, and those of one
# page are.
WORKER_ORDERS: dict[str, Callable[[Row], Any]] = {
    name: _of_row(name, "" if name in ("worker", "state") else 0)
    for name in ("worker", "state", "free_bytes", "memory_used", "streams_waiting", "credit_stalls")
}
APP_ORDERS: dict[str, Callable[[pb.AppStatus], Any]] = {
    "bytes": lambda app: app.bytes,
    "app": lambda app: app.app,
    "name": lambda app: app.name,
    "user": lambda app: app.driver.user,
    "host": lambda app: app.driver.host,
    "began": lambda app: app.driver.began,
    "shuffles": lambda app: app.shuffles,
    "heartbeat_seconds": lambda app: app.idle_seconds,
}
SHUFFLE_ORDERS: dict[str, Callable[[pb.ShuffleStatus], Any]] = {
    "bytes": lambda shuffle: shuffle.totals.bytes,
    "app": lambda shuffle: shuffle.shuffle.app,
    "shuffle": lambda shuffle: shuffle.shuffle.shuffle,
    "partitions": lambda shuffle: shuffle.partitions,
    "maps": lambda shuffle: shuffle.maps,
    "committed": lambda shuffle: shuffle.committed,
    "degraded": lambda shuffle: shuffle.degraded,
}


def _page(
    found: Iterable[T],
    query: Mapping[str, str],
    orders: Mapping[str, Callable[[T], Any]],
    row: Callable[[T], Row],
    usual: str,
) -> Row:
    """A page of what was found; `sort` (otherwise `usual`) names a column, after a minus the largest come first."""
    sort = query.get("sort", usual)
    order = orders.get(sort.removeprefix("-"))
    if order is None:
        raise InvalidArgument(f"sort={sort} is no column", remedy=f"use one of: {', '.join(orders)}")
    first, limit = _number(query, "first", 0, 2**31), _number(query, "limit", ROWS, MOST_ROWS)
    ordered = sorted(found, key=order, reverse=sort.startswith("-"))
    return {"total": len(ordered), "first": first, "rows": [row(each) for each in ordered[first : first + limit]]}


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise InvalidArgument(f"{name}={text} is out of range", remedy=f"use a whole number from 0 to {most}")
    return int(text)


def _error(status: HTTPStatus, error: ShuffleError) -> Response:
    return json_response(status, {"error": error.message, "remedy": error.remedy})
