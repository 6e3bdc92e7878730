"""`flight-shuffle status`: what a server holds and does, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from shuffle_api.address import Address
from shuffle_api.errors import InvalidArgument
from shuffle_server import __version__
from shuffle_server.credentials import add_credentials, credentials_of
from shuffle_transport.proto import flight_shuffle_pb2 as pb

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

PAGE = 5000  # runs and shuffles that are asked for at a time


def add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser("status", help="show a server's workers, memory, disks, applications and shuffles")
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", help="the server's control address")
    parser.add_argument("--server", metavar="HOST:PORT", help="the same, as an option")
    parser.add_argument("--app", default="", help="only this application")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="wait so long for the answer (default: 10)"
    )
    add_credentials(parser)
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    from shuffle_transport.control_client import ControlClient

    client = ControlClient(
        _address(parsed.address, parsed.server),
        client=f"flight-shuffle-cli/{__version__}",
        timeout=parsed.timeout,
        credentials=credentials_of(parsed, parsed.app),
    )
    try:
        client.hello()
        reply = whole_status(client, parsed.app)
    finally:
        client.close()
    text = json.dumps(plain(reply), indent=2) if parsed.json else render(reply)
    sys.stdout.write(text + "\n")
    return 0


def whole_status(client: ControlClient, app: str) -> pb.StatusReply:
    """All pages of a status as one reply."""
    reply: pb.StatusReply = client.call("Status", pb.StatusRequest(app=app))
    first = reply.next
    while first:
        page: pb.StatusReply = client.call("Status", pb.StatusRequest(app=app, first=first, limit=PAGE))
        reply.apps.extend(page.apps)
        reply.shuffles.extend(page.shuffles)
        first = page.next
    reply.next = 0
    return reply


def _address(*given: str | None) -> str:
    addresses = [address for address in given if address]
    if len(addresses) != 1:
        raise InvalidArgument(
            "two addresses are given" if addresses else "the server's address is missing",
            remedy="flight-shuffle status HOST:PORT, the address after `control=` in the server's ready line",
        )
    return addresses[0]


def plain(message: Message) -> dict[str, Any]:
    """A message without maps and bytes as JSON values, every field of it.

    Numbers are numbers: protobuf's own JSON makes texts of those of 64 bits.
    """
    return {
        field.name: [_value(each) for each in getattr(message, field.name)]
        if field.is_repeated
        else _value(getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
    }


def _value(value: Any) -> Any:
    return plain(value) if isinstance(value, Message) else value


def render(reply: pb.StatusReply) -> str:
    """The status as tables."""
    traffic = f"{_size(reply.bytes_pushed)} in, {_size(reply.bytes_pulled)} out"
    head = f"{reply.server}, epoch {reply.epoch}, up {reply.uptime_seconds:.0f} s, {traffic}"
    return "\n\n".join([head, _workers(reply), _disks(reply), _apps(reply), _shuffles(reply)])


def _workers(reply: pb.StatusReply) -> str:
    """One line per worker; those that told nothing of themselves have dashes."""
    states = {state.worker: state for state in reply.states}
    rows = []
    for worker in reply.workers:
        state = states.get(worker.id)
        told: tuple[Any, ...] = ("-",) * 6
        if state is not None:
            told = (
                f"{_size(state.memory_used)} of {_size(state.memory_budget)}",
                state.waiting_streams,
                state.open_pushes,
                state.open_pulls,
                f"{state.staged_outputs} ({_size(state.staged_bytes)})",
                _size(state.spare_bytes),
            )
        address, kind = str(Address(worker.host, worker.port)), "draining" if worker.draining else "in use"
        rows.append((worker.id, address, kind, _size(worker.free_bytes), *told))
    return _table(
        ("WORKER", "ADDRESS", "STATE", "FREE", "MEMORY IN USE", "WAITING", "PUSHES", "PULLS", "BEING WRITTEN", "SPARE"),
        rows,
    )


def _disks(reply: pb.StatusReply) -> str:
    return _table(
        ("WORKER", "DIRECTORY", "SIZE", "USED", "FREE", "STATE"),
        [
            (state.worker, disk.path, _size(disk.size), _size(disk.used), _size(disk.free), disk.out or "in use")
            for state in reply.states
            for disk in state.disks
        ],
    )


def _apps(reply: pb.StatusReply) -> str:
    return _table(
        ("APPLICATION", "NAME", "IDLE S", "SHUFFLES", "BYTES"),
        [(a.app, a.name, f"{a.idle_seconds:.0f}", a.shuffles, _size(a.bytes)) for a in reply.apps],
    )


def _shuffles(reply: pb.StatusReply) -> str:
    return _table(
        ("SHUFFLE", "PARTITIONS", "MAPS", "COMMITTED", "RECORDS", "BYTES", "REPLICAS", "DEGRADED"),
        [
            (
                f"{s.shuffle.app}/{s.shuffle.shuffle}",
                s.partitions,
                s.maps,
                s.committed,
                s.totals.records,
                _size(s.totals.bytes),
                s.replicas,
                s.degraded,
            )
            for s in reply.shuffles
        ],
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    cells = [head, *(tuple(_printable(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines if rows else [*lines, "(none)"])


def _printable(text: str) -> str:
    """An application chooses its name; it must not play with the terminal of who looks at it."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
