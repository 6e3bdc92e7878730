"""TPC-H and TPC-DS through Flight Shuffle, with DuckDB's answers as the measure: ``python -m bench.answers``.

The queries run in Spark with adaptive execution and without broadcast joins, so that every join is a shuffle. The exit
status is 1 if an answer differs, or the server has a file of a shuffle left, or open, when the driver has ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import spark_queries, tpcds, tpch
from bench.harness import compare
from bench.harness.cluster import wait_until
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.files import files_below, once, opened_by
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, JobFailed, SparkDriver
from bench.spark_shuffle import say
from bench.spark_suite import numbers
from shuffle_plugins.spark import spark_conf

TIMEOUT_S = 600.0
GONE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Suite:
    """Tables and queries. ``generate`` gets a directory that may hold them already, and the scale; ``query`` gives the
    text of a number; ``null_order`` is DuckDB's, ``dialect`` Spark's settings."""

    queries: Sequence[int]
    tables: Callable[[Path], Sequence[str]]
    generate: Callable[[Path, float], object]
    query: Callable[[Path, int], str]
    null_order: str = "nulls_last"
    dialect: Mapping[str, str] = field(default_factory=dict)


def _generate_tpch(directory: Path, scale: float) -> Path:
    return once(directory, lambda part: tpch.generate(part, scale))


SUITES = {
    "tpch": Suite(range(1, 23), lambda _: tpch.TABLES, _generate_tpch, lambda _, number: tpch.queries()[number]),
    "tpcds": Suite(tpcds.QUERIES, tpcds.tables, tpcds.generate, tpcds.query, tpcds.NULL_ORDER, tpcds.DIALECT),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """``difference`` is None if Spark's rows are DuckDB's."""

    query: int
    seconds: float
    rows: int
    difference: str | None


def answer(driver: SparkDriver, suite: Suite, directory: Path, number: int) -> Answer:
    """Run one query in Spark and in DuckDB."""
    sql = suite.query(directory, number)
    expected = tpch.answer(directory, sql, suite.tables(directory), null_order=suite.null_order)
    started = time.monotonic()
    try:
        rows = driver.call(spark_queries.query, timeout=TIMEOUT_S, sql=sql.replace('"', "`"))  # names, as Spark quotes
        difference = compare.rows_equal(rows, expected, ordered=False)
    except JobFailed as error:
        difference = str(error)[-2000:]
    return Answer(number, round(time.monotonic() - started, 2), len(expected), difference)


def run(
    suite: Suite, directory: Path, queries: Sequence[int], partitions: int, scratch: Path, options: Mapping[str, str]
) -> tuple[list[Answer], list[str]]:
    """Start a server and a driver, and ask them these queries.

    :param options: ``spark.shuffle.flight.`` names and values.
    :return: the answers, and the files that are left or open when the driver has ended.
    """
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        conf = local_conf(scratch, partitions=partitions) | dict(suite.dialect)
        conf |= spark_conf(server.control, fallback="never")
        conf |= {f"spark.shuffle.flight.{name}": value for name, value in options.items()}
        with SparkDriver(conf, scratch / "spark.log") as driver:
            driver.call(spark_queries.load, directory=str(directory), tables=list(suite.tables(directory)))
            answers = []
            for number in queries:
                answers.append(answer(driver, suite, directory, number))
                say(f"query {number}: {answers[-1].difference or 'equal'}")
        return answers, _left(server)


def _left(server: ServerProcess) -> list[str]:
    """Files of shuffles, once the server has had time to delete those of an application that has ended."""
    apps = server.data_dir / "worker" / "apps"

    def files() -> list[str]:
        opened = [path for path in opened_by(server.pid) if path.startswith(f"{apps}/")]
        return [str(path) for path in files_below(apps)] + opened

    with suppress(TimeoutError):  # the report names them
        wait_until(lambda: not files(), "the files of its shuffles are deleted", GONE_WITHIN_S)
    return files()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--scale", type=float, default=0.01, help="1 is about 1 GB of text (default: 0.01)")
    parser.add_argument("--queries", help="such as 1-5,9 (default: all)")
    parser.add_argument("--partitions", type=int, default=4, help="reduce partitions (default: 4)")
    parser.add_argument("--input", metavar="DIR", help="where the tables are kept (default: build/bench)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="spark.shuffle.flight.NAME")
    options = parser.parse_args(arguments)
    flight = dict(pair.split("=", 1) for pair in options.option)
    suite = SUITES[options.suite]
    directory = Path(options.input or ROOT / "build" / "bench") / f"{options.suite}-{options.scale:g}"
    suite.generate(directory, options.scale)
    queries = numbers(options.queries) if options.queries else suite.queries
    with tempfile.TemporaryDirectory(prefix=f"{options.suite}-") as scratch:
        answers, left = run(suite, directory, queries, options.partitions, Path(scratch), flight)
    differ = [found.query for found in answers if found.difference is not None]
    report = {"suite": options.suite, "scale": options.scale, "options": flight, "differ": differ, "files_left": left}
    print(json.dumps(report | {"answers": [asdict(a) for a in answers]}, indent=2))
    return int(bool(differ or left))


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
