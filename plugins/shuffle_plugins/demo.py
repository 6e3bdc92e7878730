"""``flight-shuffle demo``: starts a server, counts words through it, and says where to go on."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from shuffle_api.interfaces import OptionValue
from shuffle_transport.command_line import (
    Command,
    client_options,
    credential_options,
    keyring_of,
    server_of,
    server_option,
    timeout_option,
)
from shuffle_transport.progress import Progress

WORDS = ("flight", "shuffle", "arrow", "spark", "partition", "map", "reduce", "credit", "worker", "master")
MAPS, PARTITIONS, RECORDS = 4, 8, 25_000
STOP_SECONDS = 60.0
_NEXT_JOB = "flight-shuffle spark-conf --server {}"
_NEXT_SERVER = f"flight-shuffle server DIR, then {_NEXT_JOB.format('HOST:PORT')}"


def register(program: click.Group) -> None:
    """Add the subcommand."""
    program.add_command(demo)


@click.command(cls=Command, short_help="start a server, shuffle through it, and show what was done")
@server_option()
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@timeout_option(30.0, "wait so long for each answer of the server")
@credential_options()
@click.pass_context
def demo(context: click.Context, /, server: str | None, as_json: bool, timeout: float, **_: str) -> int:
    """Count words through a shuffle of four map tasks and eight partitions: through a server that is started for it,
    or through the one of --server.
    """
    options: dict[str, OptionValue] = {"timeout": timeout, "retry": 0.0}
    if server:
        keyring_of(context)  # refuses files that are wrong or missing
        given = {name: value for name, value in asdict(client_options(context)).items() if value}
        return _run(options | given | {"server": server_of(context)}, as_json, _NEXT_JOB.format(server))
    with tempfile.TemporaryDirectory(prefix="flight-shuffle-demo-") as directory, _started(directory) as address:
        return _run(options | {"server": address}, as_json, _NEXT_SERVER)


def _run(options: dict[str, OptionValue], as_json: bool, advice: str) -> int:
    began, server = time.monotonic(), options["server"]
    with Progress("demo", hidden=as_json) as progress:
        counts, moved = count_words(options, progress)
    seconds = time.monotonic() - began
    right = counts == Counter({word: MAPS * RECORDS // len(WORDS) for word in WORDS})
    if as_json:
        report = {"server": server, "records": moved, "seconds": round(seconds, 3), "right": right}
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(f"{moved} records of {MAPS} map tasks went through {server} in {seconds:.2f} s:")
        for word, count in sorted(counts.items()):
            click.echo(f"  {word:<10} {count}")
        click.echo("All counts are right." if right else "The counts are WRONG.")
        click.echo(f"next: {advice}")
    return 0 if right else 1


def count_words(options: dict[str, OptionValue], progress: Progress) -> tuple[Counter[str], int]:
    """The words by a shuffle with these options, and how many records went through it."""
    from shuffle_api import MapAttempt, open_plugin

    counts: Counter[str] = Counter()
    with open_plugin("remote", options) as plugin, plugin.master("demo") as master:
        handle = master.register_shuffle(PARTITIONS, MAPS)
        for number in range(MAPS):
            progress.at(number, MAPS + PARTITIONS, f"map task {number} writes {RECORDS} records")
            with plugin.writer(handle, MapAttempt(number, 0)) as writer:
                for record in range(RECORDS):
                    word = WORDS[record % len(WORDS)]
                    writer.write(WORDS.index(word) % PARTITIONS, word.encode())
                writer.commit()
        for partition in range(PARTITIONS):
            progress.at(MAPS + partition, MAPS + PARTITIONS, f"partition {partition} is read")
            with plugin.reader(handle, partitions=range(partition, partition + 1)) as reader:
                counts.update(record.decode() for _, record in reader)
    return counts, counts.total()


@contextmanager
def _started(directory: str) -> Iterator[str]:
    """The control address of a server of its own, on free ports."""
    log = Path(directory, "server.log")
    command = [sys.executable, "-m", "shuffle_server", "server", str(Path(directory, "data"))]
    command += ["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--log-file", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            ready = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            if "control" not in ready:
                said = log.read_text(errors="replace") if log.exists() else ""
                raise click.ClickException(f"the server did not start: {said[-500:]}")
            yield ready["control"]
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
