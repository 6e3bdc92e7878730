"""Two hosts and a slow link between them: ``python -m tests.spark.link --mbit 1000``

Each host has an executor of Spark and a worker of Flight Shuffle. The other host is a network namespace that sees a
data directory of its own, so what it does not hold itself comes over the link, through a token bucket. The same jobs
run with sort shuffle and with Flight Shuffle in turn, in two applications that differ in nothing else. Needs root.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import program
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, SparkDriver
from bench.spark_suite.cases import Case, prepare
from shuffle_plugins.spark import find_jar, spark_conf
from tests.network_namespace import Namespace, namespace
from tests.spark.conftest import SORT_SHUFFLE
from tests.spark.standalone import Standalone

SORT, FLIGHT = "sort", "flight"
TIMEOUT_S = 900.0
READY = "ready"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the runs of a case by side, and MiB that went over the link in the last one."""

    case: Case
    seconds: dict[str, list[float]] = field(default_factory=lambda: {SORT: [], FLIGHT: []})
    link_mib: dict[str, float] = field(default_factory=dict)

    def median(self, side: str) -> float:
        return statistics.median(self.seconds[side])


@contextmanager
def other_host(link: Namespace, here: Path, there: Path) -> Iterator[list[str]]:
    """What goes before a command so that it runs on the other host, where the path `here` has what `there` holds."""
    script = f"mount --make-rprivate / && mount --bind {there} {here} && echo {READY} && exec sleep infinity"
    command = ["ip", "netns", "exec", link.name, "unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            if holder.stdout.readline().strip() != READY:
                raise OSError(f"no namespace of mounts with {there} at {here}")
            yield ["nsenter", f"--target={holder.pid}", "--net", "--mount"]
        finally:
            holder.kill()


@contextmanager
def sides(link: Namespace, scratch: Path, given: argparse.Namespace) -> Iterator[dict[str, SparkDriver]]:
    """A driver for each side, over executors on both hosts."""
    data, far_data = scratch / "data", scratch / "far"
    data.mkdir()
    far_data.mkdir()
    with ExitStack() as running:
        prefix = running.enter_context(other_host(link, data, far_data))
        hosts: dict[str, Sequence[str]] = {link.here: (), link.there: prefix}
        listen = f"{link.here}:0"
        master = running.enter_context(
            ServerProcess(scratch / "master", scratch / "master.log", role="master", listen=listen)
        )
        for host, before in hosts.items():
            arguments = ("--master", master.control, "--data-listen", f"{host}:0")
            log = scratch / f"worker-{host}.log"
            running.enter_context(ServerProcess(data, log, arguments, role="worker", prefix=before))
        spark = running.enter_context(Standalone(scratch, cores=2, memory="8g", hosts=hosts))
        conf = local_conf(scratch, partitions=given.partitions) | {
            "spark.master": spark.url,
            "spark.driver.host": link.here,
            "spark.driver.bindAddress": link.here,
            "spark.executor.memory": "2g",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.locality.wait": "0s",
            "spark.jars": str(find_jar()),
        }
        each = {SORT: SORT_SHUFFLE, FLIGHT: spark_conf(master.control, fallback="never")}
        yield {
            side: running.enter_context(SparkDriver(conf | own, scratch / f"spark-{side}.log"))
            for side, own in each.items()
        }


def measure(link: Namespace, drivers: dict[str, SparkDriver], cases: Sequence[Case], rounds: int) -> list[Times]:
    """Each case on both sides in turn, after a round whose times do not count and whose answers must agree."""
    found = []
    for case in cases:
        times = Times(case)
        answers = [driver.call(case.check, timeout=TIMEOUT_S, **case.arguments) for driver in drivers.values()]
        if sorted(map(repr, answers[0])) != sorted(map(repr, answers[1])):
            raise AssertionError(f"{case.name}: other rows than with sort shuffle")
        for turn in range(rounds):
            for side in (SORT, FLIGHT) if turn % 2 else (FLIGHT, SORT):
                before = link.carried()
                run = drivers[side].call(case.timed, timeout=TIMEOUT_S, **case.arguments)
                times.seconds[side].append(round(run.seconds, 3))
                times.link_mib[side] = round((link.carried() - before) / 2**20, 1)
        print(f"{case.name}: {times.seconds}", file=sys.stderr)
        found.append(times)
    return found


def report(found: Sequence[Times], mbit: int) -> dict[str, Any]:
    """Of each group the medians and what went over the link; seconds of each case."""
    groups: dict[str, list[Times]] = {}
    for times in found:
        groups.setdefault(times.case.group, []).append(times)
    return {
        "mbit": mbit,
        "groups": {group: summary(each) for group, each in groups.items()},
        "seconds": {times.case.name: times.seconds for times in found},
    }


def summary(found: Sequence[Times]) -> dict[str, Any]:
    """Sums over these cases, and the ratios to sort shuffle."""
    seconds = {side: sum(times.median(side) for times in found) for side in (SORT, FLIGHT)}
    carried = {side: sum(times.link_mib[side] for times in found) for side in (SORT, FLIGHT)}
    return {
        "seconds": {side: round(value, 2) for side, value in seconds.items()},
        "ratio": round(seconds[FLIGHT] / seconds[SORT], 2),
        "link_mib": {side: round(value, 1) for side, value in carried.items()},
        "link_ratio": round(carried[FLIGHT] / carried[SORT], 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.link", description=(__doc__ or "").split("\n")[0])
    program.add_options(
        parser,
        mbit=(1000, "of the link, in each direction"),
        partitions=(16, "shuffle partitions of the queries"),
        rounds=(3, "of which the medians count"),
        scale=(1.0, "of the tables of TPC-H"),
        rows=(10_000_000, "that are repartitioned"),
        many=("64", "partitions that they go into"),
        queries=("1-22", "of TPC-H"),
    )
    parser.add_argument("--only", nargs="+", default=["partitions", "tpch"], choices=["partitions", "tpch"])
    parser.add_argument("--input", metavar="DIR", help="where the tables are kept (default: build/bench)")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where data is stored")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    given = parser.parse_args(arguments)
    directory = Path(given.input or ROOT / "build" / "bench")
    directory.mkdir(parents=True, exist_ok=True)
    cases = prepare(directory, given)
    with namespace() as link, tempfile.TemporaryDirectory(prefix="link-", dir=given.scratch) as scratch:
        link.limit(given.mbit)
        with sides(link, Path(scratch), given) as drivers:
            found = measure(link, drivers, cases, given.rounds)
    program.publish(report(found, given.mbit), given.json)
    return 0


if __name__ == "__main__":
    program.run(main)
