"""`flight-shuffle status`: what a server holds, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from google.protobuf.json_format import MessageToDict

from shuffle_server import __version__
from shuffle_server.credentials import add_credentials, credentials_of
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb


def add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser("status", help="show a server's applications, shuffles and workers")
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="the server's control address")
    parser.add_argument("--app", default="", help="only this application")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="wait so long for the answer (default: 10)"
    )
    add_credentials(parser)
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    client = ControlClient(
        parsed.server,
        client=f"flight-shuffle-cli/{__version__}",
        timeout=parsed.timeout,
        credentials=credentials_of(parsed, parsed.app),
    )
    try:
        client.hello()
        reply: pb.StatusReply = client.call("Status", pb.StatusRequest(app=parsed.app))
    finally:
        client.close()
    if parsed.json:
        text = json.dumps(
            MessageToDict(reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True), indent=2
        )
    else:
        text = render(reply)
    sys.stdout.write(text + "\n")
    return 0


def render(reply: pb.StatusReply) -> str:
    """The status as tables."""
    traffic = f"{_size(reply.bytes_pushed)} in, {_size(reply.bytes_pulled)} out"
    head = f"{reply.server}, epoch {reply.epoch}, up {reply.uptime_seconds:.0f} s, {traffic}"
    workers = _table(
        ("WORKER", "ADDRESS", "FREE"), [(w.id, f"{w.host}:{w.port}", _size(w.free_bytes)) for w in reply.workers]
    )
    apps = _table(
        ("APPLICATION", "NAME", "IDLE S", "SHUFFLES", "BYTES"),
        [(a.app, a.name, f"{a.idle_seconds:.0f}", a.shuffles, _size(a.bytes)) for a in reply.apps],
    )
    shuffles = _table(
        ("SHUFFLE", "PARTITIONS", "MAPS", "COMMITTED", "RECORDS", "BYTES"),
        [
            (
                f"{s.shuffle.app}/{s.shuffle.shuffle}",
                s.partitions,
                s.maps,
                s.committed,
                s.totals.records,
                _size(s.totals.bytes),
            )
            for s in reply.shuffles
        ],
    )
    return "\n\n".join([head, workers, apps, shuffles])


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    cells = [head, *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines if rows else [*lines, "(none)"])


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
