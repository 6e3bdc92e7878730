"""`flight-shuffle status` and `shuffles`: the state of a server, as tables or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shuffle_api.address import Address
from shuffle_api.errors import UnknownApp, UnknownShuffle
from shuffle_api.ids import name_of
from shuffle_api.tables import counted, size_shown, table, time_shown
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_server.cli.output import plain
from shuffle_server.compaction_shown import CompactionShown
from shuffle_server.registry_names import shown
from shuffle_server.status_pages import all_pages, state_of
from shuffle_transport.command_line import (
    Command,
    credential_options,
    server_of,
    server_option,
    timeout_option,
)
from shuffle_transport.proto import flight_shuffle_pb2 as pb

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

WIDEST = 40  # characters of an owner, and of a host
SHOWN = 20  # applications, and shuffles, that tables show unless --limit says otherwise
APP_ORDERS: dict[str, Callable[[pb.AppStatus], Any]] = {
    "bytes": lambda app: (-app.bytes, app.app),
    "shuffles": lambda app: (-app.shuffles, app.app),
    "silent": lambda app: (-app.idle_seconds, app.app),
    "name": lambda app: app.app,
}
SHUFFLE_ORDERS: dict[str, Callable[[pb.ShuffleStatus], Any]] = {
    "bytes": lambda each: (-each.totals.bytes, each.shuffle.app, each.shuffle.shuffle),
    "degraded": lambda each: (-each.degraded, each.shuffle.app, each.shuffle.shuffle),
    "name": lambda each: (each.shuffle.app, each.shuffle.shuffle),
}
DRIVER_COLUMNS = ("OWNER", "HOST", "BEGAN")
ORDERS = tuple(dict.fromkeys((*APP_ORDERS, *SHUFFLE_ORDERS)))


@click.command(cls=Command, short_help="show a server's workers, memory, disks, applications and shuffles")
@server_option(also_alone=True)
@click.option("--app", default="", metavar="APP", help="only this application, a name or a run")
@click.option("--sort", type=click.Choice(ORDERS), default="bytes", help="order of applications and shuffles")
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    help=f"most applications, and shuffles, shown; 0: all (default: {SHOWN}; all with --json)",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@timeout_option(10.0, "wait so long for the answer")
@credential_options()
@click.pass_context
def status(
    context: click.Context, /, app: str, sort: str, limit: int | None, as_json: bool, timeout: float, **_: str
) -> None:
    """Show a server's workers, memory, disks, applications and shuffles."""
    reply = _ask(context, app, timeout)
    most = (0 if as_json else SHOWN) if limit is None else limit
    arranged = arrange(reply, sort, most)
    click.echo(json.dumps(plain(arranged), indent=2) if as_json else render(arranged, len(reply.apps), reply.shuffles))


@click.command(cls=Command, short_help="show the shuffles of a server, of an application, or one of them")
@click.argument("which", required=False, metavar="[APP[/N]]")
@server_option()
@click.option("--sort", type=click.Choice(list(SHUFFLE_ORDERS)), default="bytes", help="their order")
@click.option("--limit", type=click.IntRange(0), default=0, metavar="COUNT", help="most shuffles shown; 0: all")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@timeout_option(10.0, "wait so long for the answer")
@credential_options()
@click.pass_context
def shuffles(
    context: click.Context,
    /,
    which: str | None,
    sort: str,
    limit: int,
    as_json: bool,
    timeout: float,
    **_: str,
) -> None:
    """Show the shuffles of a server.

    APP is a name or a run of an application; APP/N is the shuffle N of it.
    """
    app, slash, number = (which or "").rpartition("/")
    if not (slash and number.isdecimal()):
        app, number = which or "", ""
    reply = _ask(context, app, timeout)
    found = list(reply.shuffles)
    if number:
        found = [each for each in found if each.shuffle.shuffle == int(number)]
        if not found:
            raise UnknownShuffle(f"no shuffle {which} is registered", remedy="flight-shuffle shuffles lists them")
    found.sort(key=SHUFFLE_ORDERS[sort])
    shown = found[:limit] if limit else found
    decided = CompactionShown(reply)
    if as_json:
        click.echo(json.dumps([plain(each) | {"compaction": decided.of(each)} for each in shown], indent=2))
    else:
        click.echo(_shuffles(shown, decided) + _left_out(len(shown), len(found), "shuffles"))


def _ask(context: click.Context, /, app: str, timeout: float) -> pb.StatusReply:
    credentials = credentials_of(context, name_of(app) if app else "")
    with control_client(server_of(context), credentials, timeout=timeout) as client:
        client.hello()
        return whole_status(client, app)


def whole_status(client: ControlClient, app: str) -> pb.StatusReply:
    """All pages of a status as one reply; `app`: of this application, a run or a name. Raises UnknownApp."""
    reply = all_pages(partial(client.call, "Status"), app)
    if app and not reply.apps:
        raise UnknownApp(f"no application {app!r} is registered", remedy="flight-shuffle status lists those that are")
    return reply


def arrange(reply: pb.StatusReply, sort: str, limit: int) -> pb.StatusReply:
    """A copy with the applications and the shuffles in order, the first `limit` of each (0: all)."""
    arranged = pb.StatusReply()
    arranged.CopyFrom(reply)
    del arranged.apps[:], arranged.shuffles[:]
    apps = sorted(reply.apps, key=APP_ORDERS.get(sort, APP_ORDERS["name"]))
    shuffles = sorted(reply.shuffles, key=SHUFFLE_ORDERS.get(sort, SHUFFLE_ORDERS["name"]))
    arranged.apps.extend(apps[: limit or None])
    arranged.shuffles.extend(shuffles[: limit or None])
    return arranged


def render(reply: pb.StatusReply, apps: int | None = None, all_shuffles: Any = None) -> str:
    """The status as tables.

    :param apps: how many applications there are in all, where `reply` has the first ones only; and `all_shuffles`.
    """
    everything = reply.shuffles if all_shuffles is None else all_shuffles
    shown_apps = _apps(reply) + _left_out(len(reply.apps), len(reply.apps) if apps is None else apps, "applications")
    shuffles = _shuffles(reply.shuffles, CompactionShown(reply))
    shown = shuffles + _left_out(len(reply.shuffles), len(everything), "shuffles")
    lost = [_lost(reply)] if reply.lost else []
    return "\n\n".join(
        [_head(reply), _workers(reply), *lost, _disks(reply), shown_apps, shown, _sums(reply, everything)]
    )


def _head(reply: pb.StatusReply) -> str:
    traffic = f"{size_shown(reply.bytes_pushed)} in, {size_shown(reply.bytes_pulled)} out"
    head = f"{reply.server}, epoch {reply.epoch}, up {reply.uptime_seconds:.0f} s, {traffic}"
    return "\n".join([head, *_registries(reply)])


def _registries(reply: pb.StatusReply) -> Iterator[str]:
    """Whose applications are shown, and where the others' are."""
    if reply.registry or reply.registries:
        yield f"the applications of {shown(reply.registry)}"
    for each in reply.registries:
        if each.name != reply.registry:
            yield f"those of {shown(each.name)}: --server {each.masters}"


def _sums(reply: pb.StatusReply, shuffles: Any) -> str:
    silent = sum(worker.silent for worker in reply.workers)
    held = size_shown(sum(each.totals.bytes for each in shuffles))
    degraded = sum(each.degraded for each in shuffles)
    return (
        f"{counted(len(reply.workers), 'worker')} ({silent} silent), {counted(len(shuffles), 'shuffle')} with {held},"
        f" {counted(degraded, 'map output')} degraded; since the master's start"
        f" {counted(reply.workers_lost, 'worker')} and {counted(reply.outputs_lost, 'map output')} lost"
    )


def _left_out(shown: int, there: int, what: str) -> str:
    return f"\n({shown} of {there} {what}; --limit 0 shows all)" if shown < there else ""


def _workers(reply: pb.StatusReply) -> str:
    """One line per worker; those that told nothing of themselves have dashes."""
    states = {state.worker: state for state in reply.states}
    rows = []
    for worker in reply.workers:
        state = states.get(worker.id)
        told: tuple[Any, ...] = ("-",) * 7
        if state is not None:
            told = (
                f"{size_shown(state.memory_used)} of {size_shown(state.memory_budget)}",
                state.waiting_streams,
                state.open_pushes,
                state.open_pulls,
                f"{state.staged_outputs} ({size_shown(state.staged_bytes)})",
                size_shown(state.spare_bytes),
                state.release or "-",
            )
        address = str(Address(worker.host, worker.port))
        labels = ",".join(worker.labels) or "-"
        rows.append((worker.id, address, state_of(worker), labels, size_shown(worker.free_bytes), *told))
    return table(
        (
            *("WORKER", "ADDRESS", "STATE", "LABELS", "FREE", "MEMORY IN USE", "WAITING", "PUSHES", "PULLS"),
            *("BEING WRITTEN", "SPARE", "RELEASE"),
        ),
        rows,
    )


def _lost(reply: pb.StatusReply) -> str:
    rows = [(each.worker, each.address, f"{time_shown(each.seconds)} ago", each.reason) for each in reply.lost]
    return table(("LOST WORKER", "ADDRESS", "LOST", "REASON"), rows)


def _disks(reply: pb.StatusReply) -> str:
    return table(
        ("WORKER", "DIRECTORY", "SIZE", "USED", "FREE", "STATE"),
        [
            (
                state.worker,
                disk.path,
                size_shown(disk.size),
                size_shown(disk.used),
                size_shown(disk.free),
                disk.out or "in use",
            )
            for state in reply.states
            for disk in state.disks
        ],
    )


def _apps(reply: pb.StatusReply) -> str:
    return table(
        ("APPLICATION", "NAME", *DRIVER_COLUMNS, "HEARTBEAT", "SHUFFLES", "BYTES"),
        [
            (a.app, a.name, *driver_cells(a), f"{a.idle_seconds:.0f} s ago", a.shuffles, size_shown(a.bytes))
            for a in reply.apps
        ],
    )


def driver_cells(app: pb.AppStatus) -> tuple[str, str, str]:
    """Below DRIVER_COLUMNS; dashes for what the client does not say."""
    driver = app.driver
    names = (driver.user, driver.host)
    user, host = (text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…" for text in names)
    began = f"{time_shown(max(0.0, time.time() - driver.began))} ago" if driver.began else "-"
    return user or "-", host or "-", began


def _shuffles(found: Any, decided: CompactionShown) -> str:
    return table(
        ("SHUFFLE", "PARTITIONS", "MAPS", "COMMITTED", "RECORDS", "BYTES", "REPLICAS", "DEGRADED", "COMPACTION"),
        [
            (
                f"{s.shuffle.app}/{s.shuffle.shuffle}",
                s.partitions,
                s.maps,
                s.committed,
                s.totals.records if s.totals.records or not s.totals.bytes else "-",  # blocks need not say it
                size_shown(s.totals.bytes),
                s.replicas,
                s.degraded,
                decided.of(s),
            )
            for s in found
        ],
    )
