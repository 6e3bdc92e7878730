"""`flight-shuffle doctor`: checks of a machine and of a server; each that fails says how to mend it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

import click

from shuffle_api.tables import printable
from shuffle_server.cli.machine import check_descriptors, check_directory, check_ports, check_versions
from shuffle_server.cli.reachability import check_server
from shuffle_transport.command_line import (
    Command,
    Finding,
    Program,
    credential_options,
    keyring_of,
    server_option,
    timeout_option,
    with_spellings,
)
from shuffle_transport.option_sources import option_names
from shuffle_transport.progress import Progress

MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED ", "skipped": "skipped"}


@click.command(cls=Command, short_help="check this machine, and a server as it is seen from here")
@server_option()
@click.option(
    "--data-dir",
    metavar="DIR",
    help="check a server's data directories too, several separated by commas, and its ports",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@timeout_option(10.0, "wait so long for each answer")
@credential_options()
@click.pass_context
def doctor(
    context: click.Context, /, server: str | None, data_dir: str | None, as_json: bool, timeout: float, **_: str
) -> int:
    """Check what Flight Shuffle needs: Java, PySpark and the jar, open files; with --data-dir disks and ports; with
    --server whether the server, and each worker at the address that it announces, is reached from this machine, and
    its certificates, clock and version. Exit status 1 when a check fails.
    """
    findings: list[Finding] = []
    with Progress("doctor", hidden=as_json) as progress:
        options = option_names(context.command)
        for found in _findings(context, server, data_dir, timeout, progress):
            finding = replace(found, seen=with_spellings(found.seen, options), fix=with_spellings(found.fix, options))
            findings.append(finding)
            if not as_json:
                _print(finding)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in findings], indent=2))
    return int(any(each.state == "failed" for each in findings))


def _findings(
    context: click.Context, /, server: str | None, data_dir: str | None, timeout: float, progress: Progress
) -> Iterator[Finding]:
    keys = keyring_of(context)  # refuses files that are wrong or missing
    progress.at(0, 1, "this machine")
    yield check_versions()
    yield check_descriptors()
    program = context.find_root().command
    checks: Iterable[Iterable[Finding]] = (check() for check in program.checks) if isinstance(program, Program) else ()
    for found in checks:
        yield from found
    for directory in (data_dir or "").split(","):
        if directory:
            yield from check_directory(directory)
    if data_dir:
        yield from check_ports()
    if server is None:
        yield Finding("server", "skipped", "no --server is given")
    else:
        yield from check_server(server, keys, timeout, progress)


def _print(finding: Finding) -> None:
    Progress.above(f"{MARKS[finding.state]} {finding.check}: {printable(finding.seen)}")
    if finding.fix:
        Progress.above(f"        fix: {printable(finding.fix)}")
