"""Does adaptive execution plan as with sort shuffle? ``python -m tests.spark.plans tpch --scale 1``

The queries run through sort shuffle, through sort shuffle again, and through Flight Shuffle, one side after the other
in one JVM. A plan adapts to the sizes of shuffles, so the sides can differ: sort shuffle with itself too, where a size
lies near a limit. Compared are the joins, the splits for skew, and how many partitions each shuffle is read in.

Static broadcasts are off, so that sizes at run time decide about joins; limits are small, so that there is something to
decide. The exit status is 1 if answers differ, or Flight Shuffle's plans differ in more queries than ``--most`` beyond
those in which sort shuffle's differ.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import spark_jobs
from bench.answers import Suite, add_suite, prepared
from bench.harness import compare, program
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import JobFailed, SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from tests.spark.conftest import SORT_SHUFFLE
from tests.spark.decisions import Decided, decided

SORT, AGAIN, FLIGHT = "sort", "sort again", "flight"
TIMEOUT_S = 900.0
LISTENER_BUG = 'the return value of "org.apache.spark.sql.execution.SparkPlan.session()" is null'


@dataclass(frozen=True, slots=True)
class Query:
    """One query on all sides. ``differs``: the sides whose decisions are not those of the first run of sort shuffle."""

    name: str
    sides: dict[str, Decided]

    @property
    def differs(self) -> list[str]:
        return [side for side, each in self.sides.items() if each.decisions != self.sides[SORT].decisions]

    def wrong(self) -> str | None:
        """In what the answers differ, if they do."""
        return compare.rows_equal(self.sides[SORT].rows, self.sides[FLIGHT].rows, ordered=False)


def adaptive_conf(advisory: str, broadcast: str) -> dict[str, str]:
    """Adaptive execution whose decisions are about sizes."""
    adaptive = "spark.sql.adaptive."
    return {
        f"{adaptive}enabled": "true",
        f"{adaptive}autoBroadcastJoinThreshold": broadcast,
        f"{adaptive}advisoryPartitionSizeInBytes": advisory,
        f"{adaptive}coalescePartitions.parallelismFirst": "false",
        f"{adaptive}skewJoin.skewedPartitionThresholdInBytes": advisory,
        f"{adaptive}skewJoin.skewedPartitionFactor": "1.5",
        "spark.ui.retainedStages": "100000",  # whose bytes are asked for when a query has ended
    }


def run_side(
    driver: SparkDriver, conf: Mapping[str, str], side: str, suite: Suite, directory: Path, numbers: Sequence[int]
) -> list[Decided]:
    """The queries, in a new session with that side's settings."""
    driver.renew(conf)
    driver.call(spark_jobs.load, directory=str(directory), tables=list(suite.tables(directory)))
    found = []
    for number in numbers:
        sql = suite.query(directory, number).replace('"', "`")
        found.append(run_query(driver, sql, f"{side}-{number}"))
        print(f"{side}, query {number}: {found[-1].partitions} partitions, {found[-1].bytes} bytes", file=sys.stderr)
    return found


def run_query(driver: SparkDriver, sql: str, group: str) -> Decided:
    """What is decided about one. Spark's listener of plans fails in one of some hundred: that query runs again."""
    try:
        found: Decided = driver.call(decided, timeout=TIMEOUT_S, sql=sql, group=group)
    except JobFailed as failed:
        if LISTENER_BUG not in str(failed):
            raise
        found = driver.call(decided, timeout=TIMEOUT_S, sql=sql, group=f"{group}-again")
    return found


def run(suite: Suite, directory: Path, given: argparse.Namespace, scratch: Path) -> list[Query]:
    """All sides. A driver and a server are started and ended."""
    numbers = suite.chosen(given.queries)
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        conf = local_conf(scratch, memory=given.memory, partitions=given.partitions) | dict(suite.dialect)
        conf |= adaptive_conf(given.advisory, given.broadcast) | {"spark.io.compression.codec": given.codec}
        driver = running.enter_context(SparkDriver(conf | {"spark.jars": str(find_jar())}, scratch / "spark.log"))
        sides = {SORT: SORT_SHUFFLE, AGAIN: SORT_SHUFFLE, FLIGHT: spark_conf(server.control, fallback="never")}
        asked = {side: sides[side] for side in sides if side != AGAIN or not given.once}
        found = {side: run_side(driver, own, side, suite, directory, numbers) for side, own in asked.items()}
    return [Query(f"q{n}", {side: found[side][at] for side in found}) for at, n in enumerate(numbers)]


def report(queries: Sequence[Query]) -> dict[str, Any]:
    """Counts of queries whose plans differ, sums of partitions and bytes; and of each query that differs, its plans."""
    sides = list(queries[0].sides)
    total = {side: sum(query.sides[side].bytes for query in queries) for side in sides}
    ratios = {query.name: query.sides[FLIGHT].bytes / max(1, query.sides[SORT].bytes) for query in queries}
    worst = max(ratios, key=lambda name: ratios[name])
    return {
        "queries": len(queries),
        "decisions": sum(len(query.sides[SORT].decisions) for query in queries),
        "differ": {side: [query.name for query in queries if side in query.differs] for side in sides[1:]},
        "partitions": {side: sum(query.sides[side].partitions for query in queries) for side in sides},
        "bytes": total,
        "bytes_ratio": round(total[FLIGHT] / max(1, total[SORT]), 3),
        "worst_bytes_ratio": {worst: round(ratios[worst], 3)},
        "wrong": {query.name: what for query in queries if (what := query.wrong()) is not None},
        "plans": {
            query.name: {side: query.sides[side].decisions for side in sides} for query in queries if query.differs
        },
        "bytes_by_query": {query.name: {side: query.sides[side].bytes for side in sides} for query in queries},
    }


def verdict(found: Mapping[str, Any], most: int) -> int:
    """The exit status."""
    beyond = len(found["differ"][FLIGHT]) - len(found["differ"].get(AGAIN, ()))
    return int(bool(found["wrong"]) or beyond > most)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.plans", description=(__doc__ or "").split("\n")[0])
    add_suite(parser)
    program.add_options(
        parser,
        scale=(0.1, "of the tables"),
        partitions=(32, "shuffle partitions before adaptive execution coalesces them"),
        advisory=("256k", "advisory size of a partition, and the least one that is split for skew"),
        broadcast=("1m", "the largest side of a join that adaptive execution broadcasts"),
        codec=("lz4", "spark.io.compression.codec of all sides"),
        memory=("2g", "heap of the driver"),
        most=(0, "queries that may differ beyond those in which sort shuffle differs from itself"),
    )
    parser.add_argument("--once", action="store_true", help="sort shuffle runs once: for bytes")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where data is stored")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    given = parser.parse_args(arguments)
    suite, directory = prepared(given)
    with tempfile.TemporaryDirectory(prefix="plans-", dir=given.scratch) as scratch:
        found = report(run(suite, directory, given, Path(scratch)))
    program.publish(found, given.json)
    return verdict(found, given.most)


if __name__ == "__main__":
    program.run(main)
