"""`flight-shuffle top`: a live view of the workers and the largest applications."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from shuffle_api.errors import ShuffleError
from shuffle_api.tables import counted, size_shown, table, time_shown
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_server.cli.output import plain
from shuffle_server.cli.status import APP_ORDERS, DRIVER_COLUMNS, driver_cells, whole_status
from shuffle_server.status_pages import state_of
from shuffle_transport.command_line import (
    Command,
    Duration,
    credential_options,
    server_of,
    server_option,
    timeout_option,
)
from shuffle_transport.proto import flight_shuffle_pb2 as pb

CLEAR = "\x1b[H\x1b[2J"
LEAST_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second: `of`, in and out of the cluster (key empty) and of each worker; `relayed`, by channels through
    each worker."""

    of: Mapping[str, tuple[float, float]]
    relayed: Mapping[str, float] = field(default_factory=dict)


@click.command(cls=Command, short_help="watch a server: rates, workers, the largest applications")
@server_option()
@click.option("--interval", type=Duration(LEAST_SECONDS), default="2s", metavar="TIME", help="between two looks")
@click.option("--count", type=click.IntRange(0), default=0, metavar="COUNT", help="stop after so many looks; 0: never")
@click.option("--json", "as_json", is_flag=True, help="print JSON: one object per look and line")
@timeout_option(10.0, "wait so long for an answer")
@credential_options()
@click.pass_context
def top(
    context: click.Context,
    /,
    interval: float,
    count: int,
    as_json: bool,
    timeout: float,
    **_: str,
) -> None:
    """Watch a server: what goes in and out, the workers and the largest applications. Ctrl-C ends it."""
    before: tuple[float, pb.StatusReply] | None = None
    looks = 0
    try:
        with control_client(server_of(context), credentials_of(context), timeout=timeout, retry=timeout) as client:
            client.hello()
            while True:
                looks += 1
                now = (time.monotonic(), whole_status(client, ""))
                _show(now[1], rates_between(before, now), as_json)
                before = now
                if looks == count:
                    return
                time.sleep(interval)
    except KeyboardInterrupt:
        return
    except ShuffleError:
        if looks:
            click.echo("", err=True)
        raise


def rates_between(before: tuple[float, pb.StatusReply] | None, now: tuple[float, pb.StatusReply]) -> Rates:
    """How much went in and out between two looks; nothing at the first one, or where a counter began anew."""
    if before is None:
        return Rates({})
    seconds, old, new = max(0.001, now[0] - before[0]), _counters(before[1]), _counters(now[1])
    return Rates(
        {
            key: (max(0, new[key][0] - old[key][0]) / seconds, max(0, new[key][1] - old[key][1]) / seconds)
            for key in new.keys() & old.keys()
        },
        {
            worker: max(0, count - passed[worker]) / seconds
            for passed in [_relayed(before[1])]
            for worker, count in _relayed(now[1]).items()
            if worker in passed
        },
    )


def _relayed(reply: pb.StatusReply) -> dict[str, int]:
    return {state.worker: state.relay.bytes for state in reply.states}


def _counters(reply: pb.StatusReply) -> dict[str, tuple[int, int]]:
    workers = {state.worker: (state.bytes_pushed, state.bytes_pulled) for state in reply.states}
    return workers | {"": (reply.bytes_pushed, reply.bytes_pulled)}


def _show(reply: pb.StatusReply, rates: Rates, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_document(reply, rates)))
    else:
        lines = shutil.get_terminal_size().lines
        text = view(reply, rates, max(5, lines - len(reply.workers) - 8))
        click.echo((CLEAR if sys.stdout.isatty() else "") + text)
    sys.stdout.flush()


def _document(reply: pb.StatusReply, rates: Rates) -> dict[str, Any]:
    into, out = rates.of.get("", (0.0, 0.0))
    return {
        "epoch": reply.epoch,
        "in_bytes_per_second": round(into),
        "out_bytes_per_second": round(out),
        "workers": [
            {
                "worker": worker.id,
                "state": state_of(worker),
                "in_bytes_per_second": round(rates.of.get(worker.id, (0.0, 0.0))[0]),
                "out_bytes_per_second": round(rates.of.get(worker.id, (0.0, 0.0))[1]),
            }
            for worker in reply.workers
        ],
        "apps": len(reply.apps),
        "shuffles": len(reply.shuffles),
        "workers_lost": reply.workers_lost,
        "relays": [
            {
                **{name: value for name, value in plain(state.relay).items() if name != "streams"},
                "worker": state.worker,
                "bytes_per_second": round(rates.relayed.get(state.worker, 0.0)),
                "streams": [plain(each) for each in state.relay.streams],
            }
            for state in reply.states
            if state.HasField("relay")
        ],
    }


def view(reply: pb.StatusReply, rates: Rates, apps: int) -> str:
    """One look as text; `apps`: most applications in it."""
    into, out = rates.of.get("", (0.0, 0.0))
    states = {state.worker: state for state in reply.states}
    workers = [
        (
            worker.id,
            state_of(worker),
            *(f"{size_shown(rate)}/s" for rate in rates.of.get(worker.id, (0.0, 0.0))),
            f"{size_shown(state.memory_used)} of {size_shown(state.memory_budget)}",
            state.waiting_streams,
            state.open_pushes,
            state.open_pulls,
            size_shown(worker.free_bytes),
        )
        for worker in reply.workers
        for state in [states.get(worker.id, pb.WorkerStatus())]
    ]
    lost = [(each.worker, "lost", "-", "-", "-", "-", "-", "-", "-") for each in reply.lost]
    largest = sorted(reply.apps, key=APP_ORDERS["bytes"])[:apps]
    head = (
        f"{reply.server}, epoch {reply.epoch}: {size_shown(into)}/s in, {size_shown(out)}/s out,"
        f" {counted(len(reply.apps), 'application')}, {counted(len(reply.shuffles), 'shuffle')}"
    )
    columns = ("WORKER", "STATE", "IN", "OUT", "MEMORY IN USE", "WAITING", "PUSHES", "PULLS", "FREE")
    rows = [(app.app, app.name, *driver_cells(app), app.shuffles, size_shown(app.bytes)) for app in largest]
    app_columns = ("APPLICATION", "NAME", *DRIVER_COLUMNS, "SHUFFLES", "BYTES")
    tables = [table(columns, [*workers, *lost]), table(app_columns, rows)]
    return "\n\n".join([head, *tables, *_relays(reply, rates)])


def _relays(reply: pb.StatusReply, rates: Rates) -> list[str]:
    """What passes through workers' memory between running tasks; nothing where none of them does that."""
    states = [state for state in reply.states if state.HasField("relay")]
    if not states:
        return []
    channels = [
        (
            state.worker,
            state.relay.tasks,
            state.relay.channels,
            f"{size_shown(rates.relayed.get(state.worker, 0.0))}/s",
            size_shown(state.relay.held_bytes),
        )
        for state in states
    ]
    streams = [
        (
            f"{each.shuffle.app}/{each.shuffle.shuffle}",
            state.worker,
            each.writers,
            each.readers,
            f"{each.totals.records:,}",
            size_shown(each.totals.bytes),
            f"{each.queued_records:,}",
            size_shown(each.queued_bytes),
            time_shown(each.lag_seconds),
        )
        for state in states
        for each in state.relay.streams
    ]
    streams.sort(key=lambda row: str(row[0]))
    head = (
        *("STREAMING SHUFFLE", "WORKER", "WRITERS", "READERS", "RECORDS IN", "BYTES IN"),
        *("LAG", "LAG BYTES", "LAG TIME"),
    )
    relayed = table(("WORKER", "RELAYED TASKS", "CHANNELS", "RATE", "IN HAND"), channels)
    return [relayed, table(head, streams)] if streams else [relayed]
