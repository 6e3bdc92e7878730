"""`flight-shuffle scrub`: have all that is committed read, and learn what the disks have changed."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from shuffle_api.address import Address
from shuffle_api.tables import size_shown
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_transport.command_line import (
    Addresses,
    Command,
    Size,
    credential_options,
    server_of,
    server_option,
    timeout_option,
)
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials

CONTROL_SECONDS = 30.0


@click.command(cls=Command, short_help="read all committed data and give up what does not match its checksum")
@click.argument("address", required=False, type=Addresses(), metavar="[HOST:PORT]")
@server_option()
@click.option("--app", default="", help="only this application")
@click.option(
    "--rate",
    type=Size(),
    default="256m",
    metavar="SIZE",
    help="read so much per second at each worker, 0: no limit (default: 256m)",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON, no progress")
@timeout_option(86400.0, "for each worker")
@credential_options()
@click.pass_context
def scrub(
    context: click.Context,
    /,
    address: str | None,
    server: str | None,
    app: str,
    rate: int,
    as_json: bool,
    timeout: float,
    **_: str,
) -> int:
    """Read all committed data. Outputs that do not match their checksums are reported and given up as lost, so that
    their maps run again before a reader meets them. Exit status 1 when something was found.
    """
    master, credentials = server_of(address, server), credentials_of(context, app)
    with control_client(master, credentials, timeout=min(timeout, CONTROL_SECONDS)) as control:
        workers = list(control.hello().workers)
    request = pb.ScrubRequest(app=app, rate=rate)
    reports = [_scrub(worker, request, timeout, as_json, credentials) for worker in workers]
    found = sum(len(report["findings"]) for report in reports)
    if as_json:
        click.echo(json.dumps({"workers": reports, "found": found}, indent=2))
    return 1 if found else 0


def _scrub(
    worker: pb.Worker, request: pb.ScrubRequest, timeout: float, as_json: bool, credentials: Credentials
) -> dict[str, Any]:
    from shuffle_transport.flight_client import FlightClient

    report: dict[str, Any] = {"worker": worker.id, "outputs": 0, "blocks": 0, "bytes": 0, "findings": []}
    client = FlightClient(str(Address(worker.host, worker.port)), timeout=timeout, credentials=credentials)
    try:
        for progress in client.scrub(request):
            report |= {"outputs": progress.outputs, "blocks": progress.blocks, "bytes": progress.bytes}
            findings = [_finding(finding) for finding in progress.findings]
            report["findings"] += findings
            if not as_json:
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
        click.echo(f"{worker}: lost {place}: {found['reason']}")
    state = "done" if progress.done else "so far"
    size = size_shown(progress.bytes)
    click.echo(f"{worker}: {state}: {progress.outputs} map outputs, {progress.blocks} blocks, {size}")
    sys.stdout.flush()
