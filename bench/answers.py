"""TPC-H and TPC-DS through Flight Shuffle, with DuckDB's answers as the measure: ``python -m bench.answers``.

The queries run in Spark with adaptive execution and without broadcast joins, so that every join is a shuffle. The exit
status is 1 if an answer differs, or the server has a file of a shuffle left, or open, when the driver has ended.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import spark_jobs, tpcds, tpch
from bench.harness import compare, program
from bench.harness.cluster import wait_until
from bench.harness.files import files_below, once, opened_by
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, JobFailed, SparkDriver
from shuffle_plugins.spark import spark_conf
from shuffle_transport.progress import say

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

    def chosen(self, numbers: str | None) -> Sequence[int]:
        """Its queries with numbers such as ``1-5,9``; None: all."""
        return program.numbers(numbers) if numbers else self.queries


def _generate_tpch(directory: Path, scale: float) -> Path:
    return once(directory, lambda part: tpch.generate(part, scale))


SUITES = {
    "tpch": Suite(range(1, 23), lambda _: tpch.TABLES, _generate_tpch, lambda _, number: tpch.queries()[number]),
    "tpcds": Suite(tpcds.QUERIES, tpcds.tables, tpcds.generate, tpcds.query, tpcds.NULL_ORDER, tpcds.DIALECT),
}


def add_suite(parser: argparse.ArgumentParser) -> None:
    """The options that `prepared` and `Suite.chosen` read, beside ``--scale``."""
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--queries", help="such as 1-5,9 (default: all)")
    parser.add_argument("--input", metavar="DIR", help="where the tables are kept (default: build/bench)")


def prepared(given: argparse.Namespace) -> tuple[Suite, Path]:
    """The suite that was asked for, and its tables, which are made if they are not there."""
    suite = SUITES[given.suite]
    directory = Path(given.input or ROOT / "build" / "bench") / f"{given.suite}-{given.scale:g}"
    suite.generate(directory, given.scale)
    return suite, directory


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
        rows = driver.call(spark_jobs.query, timeout=TIMEOUT_S, sql=sql.replace('"', "`"))  # names, as Spark quotes
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
            driver.call(spark_jobs.load, directory=str(directory), tables=list(suite.tables(directory)))
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
    parser = program.parser("answers", __doc__)
    add_suite(parser)
    program.add_options(parser, scale=(0.01, "1 is about 1 GB of text"), partitions=(4, "reduce partitions"))
    program.add_pairs(parser, "--option", "NAME=VALUE", "spark.shuffle.flight.NAME")
    options = parser.parse_args(arguments)
    flight = program.pairs(options.option)
    suite, directory = prepared(options)
    queries = suite.chosen(options.queries)
    with tempfile.TemporaryDirectory(prefix=f"{options.suite}-", dir=options.scratch) as scratch:
        answers, left = run(suite, directory, queries, options.partitions, Path(scratch), flight)
    differ = [found.query for found in answers if found.difference is not None]
    report = {"suite": options.suite, "scale": options.scale, "options": flight, "differ": differ, "files_left": left}
    program.publish(report | {"answers": [asdict(a) for a in answers]}, options.json)
    return int(bool(differ or left))


if __name__ == "__main__":
    program.run(main)
