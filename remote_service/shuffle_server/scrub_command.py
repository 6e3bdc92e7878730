"""`flight-shuffle scrub`: have all that is committed read, and learn what the disks have changed."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from shuffle_api.address import Address
from shuffle_api.options import parse_size
from shuffle_server import __version__
from shuffle_server.credentials import add_credentials, credentials_of
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials

CONTROL_SECONDS = 30.0


def add_scrub(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "scrub",
        help="read all committed data and give up what does not match its checksum",
        description="Read all committed data. What does not match its checksum is reported and given up as lost, so"
        " that its map runs again before a reader meets it. Exit status 1 when something was found.",
    )
    parser.add_argument("address", metavar="HOST:PORT", help="the server's control address")
    parser.add_argument("--app", default="", help="only this application")
    parser.add_argument(
        "--rate",
        type=parse_size,
        default=256 << 20,
        metavar="BYTES",
        help="read so much per second at each worker, 0: no limit (default: 256m)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, no progress")
    parser.add_argument(
        "--timeout", type=float, default=86400.0, metavar="SECONDS", help="for each worker (default: a day)"
    )
    add_credentials(parser)
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    from shuffle_transport.control_client import ControlClient

    credentials = credentials_of(parsed, parsed.app)
    control = ControlClient(
        parsed.address,
        client=f"flight-shuffle-cli/{__version__}",
        timeout=min(parsed.timeout, CONTROL_SECONDS),
        credentials=credentials,
    )
    try:
        workers = list(control.hello().workers)
    finally:
        control.close()
    reports = [_scrub(worker, parsed, credentials) for worker in workers]
    found = sum(len(report["findings"]) for report in reports)
    if parsed.json:
        sys.stdout.write(json.dumps({"workers": reports, "found": found}, indent=2) + "\n")
    return 1 if found else 0


def _scrub(worker: pb.Worker, parsed: argparse.Namespace, credentials: Credentials) -> dict[str, Any]:
    from shuffle_transport.flight_client import FlightClient

    report: dict[str, Any] = {"worker": worker.id, "outputs": 0, "blocks": 0, "bytes": 0, "findings": []}
    client = FlightClient(str(Address(worker.host, worker.port)), timeout=parsed.timeout, credentials=credentials)
    try:
        for progress in client.scrub(pb.ScrubRequest(app=parsed.app, rate=parsed.rate)):
            report |= {"outputs": progress.outputs, "blocks": progress.blocks, "bytes": progress.bytes}
            findings = [_finding(finding) for finding in progress.findings]
            report["findings"] += findings
            if not parsed.json:
                _say(worker.id, progress, findings)
    finally:
        client.close()
    return report


def _finding(finding: pb.ScrubFinding) -> dict[str, Any]:
    return {
        "app": finding.shuffle.app,
        "shuffle": finding.shuffle.shuffle,
        "map": finding.output.map,
        "attempt": finding.output.attempt,
        "reason": finding.reason,
    }


def _say(worker: str, progress: pb.ScrubProgress, findings: list[dict[str, Any]]) -> None:
    for found in findings:
        place = f"{found['app']}/{found['shuffle']} map {found['map']} attempt {found['attempt']}"
        sys.stdout.write(f"{worker}: lost {place}: {found['reason']}\n")
    state = "done" if progress.done else "so far"
    sys.stdout.write(
        f"{worker}: {state}: {progress.outputs} map outputs, {progress.blocks} blocks, {progress.bytes} bytes\n"
    )
    sys.stdout.flush()
