"""`flight-shuffle scrub`: have all that is committed read, and learn what the disks have changed."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shuffle_api.address import Address
from shuffle_api.ids import name_of
from shuffle_api.tables import counted, size_shown
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_server.cli.status import whole_status
from shuffle_transport.command_line import (
    Command,
    Size,
    credential_options,
    server_of,
    server_option,
    timeout_option,
)
from shuffle_transport.progress import Progress
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

CONTROL_SECONDS = 30.0


@click.command(cls=Command, short_help="read all committed data and give up what does not match its checksum")
@server_option(also_alone=True)
@click.option("--app", default="", metavar="APP", help="only this application, a name or a run")
@click.option(
    "--rate",
    type=Size(),
    default="256m",
    metavar="SIZE",
    help="read so much per second at each worker, 0: no limit",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON, no progress")
@timeout_option(86400.0, "for each worker")
@credential_options()
@click.pass_context
def scrub(context: click.Context, /, app: str, rate: int, as_json: bool, timeout: float, **_: str) -> int:
    """Read all committed data. Outputs that do not match their checksums are reported and given up as lost, so that
    their maps run again before a reader meets them. Exit status 1 when something was found.
    """
    credentials = credentials_of(context, name_of(app) if app else "")
    with Progress("scrub", hidden=as_json) as progress:
        with control_client(server_of(context), credentials, timeout=min(timeout, CONTROL_SECONDS)) as control:
            workers = list(control.hello().workers)
            total = _held(control, app) if progress.is_shown or app else 0
        scrubbing = _Scrubbing(pb.ScrubRequest(app=app, rate=rate), timeout, credentials, as_json, progress, total)
        reports = [scrubbing.at(worker) for worker in workers]
    found = sum(len(report["findings"]) for report in reports)
    if as_json:
        click.echo(json.dumps({"workers": reports, "found": found}, indent=2))
    return 1 if found else 0


def _held(control: ControlClient, app: str) -> int:
    """About how many bytes there are to read. Raises UnknownApp."""
    reply = whole_status(control, app)
    return sum(each.totals.bytes * max(1, each.replicas) for each in reply.shuffles)


@dataclass
class _Scrubbing:
    """Of one worker after the other. `done`: bytes that those before have read, of about `total`."""

    request: pb.ScrubRequest
    timeout: float
    credentials: Credentials
    as_json: bool
    progress: Progress
    total: int
    done: int = 0

    def at(self, worker: pb.Worker) -> dict[str, Any]:
        """The report of a worker."""
        from shuffle_transport.flight_client import FlightClient

        report: dict[str, Any] = {"worker": worker.id, "outputs": 0, "blocks": 0, "bytes": 0, "findings": []}
        address = str(Address(worker.host, worker.port))
        with closing(FlightClient(address, timeout=self.timeout, credentials=self.credentials)) as client:
            for reached in client.scrub(self.request):
                report |= {"outputs": reached.outputs, "blocks": reached.blocks, "bytes": reached.bytes}
                findings = [_finding(finding) for finding in reached.findings]
                report["findings"] += findings
                self._show(worker.id, reached, findings)
        self.done += report["bytes"]
        return report

    def _show(self, worker: str, reached: pb.ScrubProgress, findings: list[dict[str, Any]]) -> None:
        if self.as_json:
            return
        for found in findings:
            place = f"{found['app']}/{found['shuffle']} map {found['map']} attempt {found['attempt']}"
            Progress.above(f"{worker}: lost {place}: {found['reason']}")
        text = (
            f"{counted(reached.outputs, 'map output')}, {counted(reached.blocks, 'block')}, {size_shown(reached.bytes)}"
        )
        if reached.done:
            Progress.above(f"{worker}: done: {text}")
        self.progress.at(self.done + reached.bytes, self.total, f"{worker}: {text}")


def _finding(finding: pb.ScrubFinding) -> dict[str, Any]:
    return {
        "app": finding.shuffle.app,
        "shuffle": finding.shuffle.shuffle,
        "map": finding.output.map,
        "attempt": finding.output.attempt,
        "reason": finding.reason,
    }
