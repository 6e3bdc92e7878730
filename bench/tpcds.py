"""TPC-DS through Flight Shuffle, with DuckDB's answers as the measure: ``python -m bench.tpcds``.

The 99 queries run in Spark with adaptive execution and without broadcast joins, so that every join is a shuffle. Data
and texts come from DuckDB's extension ``tpcds``, which PyPI has for one version of DuckDB only: that one goes into a
directory of its own below ``build``. The exit status is 1 if an answer differs, or
a file of a shuffle is left when the driver has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import compare, other_packages, spark_queries, tpch
from bench.cluster import wait_until
from bench.server import ServerProcess
from bench.spark import local_conf
from bench.spark_driver import ROOT, JobFailed, SparkDriver
from bench.spark_shuffle import say
from bench.spark_suite import numbers
from shuffle_plugins.spark import spark_conf

DUCKDB = "1.5.5"  # the newest that the extension is there for
GENERATOR = Path(__file__).with_name("tpcds_generate.py")
QUERIES = tuple(range(1, 100))
TIMEOUT_S = 600.0
GONE_WITHIN_S = 30.0
# As Spark orders nulls; it decides which rows a LIMIT takes.
NULL_ORDER = "nulls_first_on_asc_last_on_desc"
DIALECT = {"spark.sql.ansi.enabled": "false"}
# Spark rounds quotients of decimals to six digits before it sums them, DuckDB divides as floats: then so does Spark.
REWRITTEN = {66: ("/w_warehouse_sq_ft", "/cast(w_warehouse_sq_ft as double)")}


@dataclass(frozen=True, slots=True)
class Answer:
    """``difference`` is None if Spark's rows are DuckDB's."""

    query: int
    seconds: float
    rows: int
    difference: str | None


def generate(directory: Path, scale: float) -> None:
    """Tables and texts (`tpcds_generate`), if they are not there yet. Raises subprocess.CalledProcessError."""
    if directory.is_dir():
        return
    part = directory.with_name(directory.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    packages = (f"duckdb=={DUCKDB}", f"duckdb-extension-tpcds=={DUCKDB}")
    environment = os.environ | {"PYTHONPATH": str(other_packages.installed(f"tpcds-{DUCKDB}", *packages))}
    command = [sys.executable, str(GENERATOR), str(part), str(scale)]
    subprocess.run(command, env=environment, check=True, timeout=TIMEOUT_S)
    part.rename(directory)


def tables(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.parquet"))


def answer(driver: SparkDriver, directory: Path, number: int) -> Answer:
    """Run one query in Spark and in DuckDB."""
    sql = (directory / f"{number}.sql").read_text().replace(*REWRITTEN.get(number, ("", "")))
    expected = tpch.answer(directory, sql, tables(directory), null_order=NULL_ORDER)
    started = time.monotonic()
    try:
        rows = driver.call(spark_queries.query, timeout=TIMEOUT_S, sql=sql.replace('"', "`"))  # names, as Spark quotes
        difference = compare.rows_equal(rows, expected, ordered=False)
    except JobFailed as error:
        difference = str(error)[-2000:]
    return Answer(number, round(time.monotonic() - started, 2), len(expected), difference)


def run(
    directory: Path, queries: list[int], partitions: int, scratch: Path, options: dict[str, str]
) -> tuple[list[Answer], list[str]]:
    """Start a server and a driver, and ask them these queries.

    :param options: ``spark.shuffle.flight.`` names and values.
    :return: the answers, and the files that are left when the driver has ended.
    """
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        conf = local_conf(scratch, partitions=partitions) | DIALECT | spark_conf(server.control, fallback="never")
        conf |= {f"spark.shuffle.flight.{name}": value for name, value in options.items()}
        with SparkDriver(conf, scratch / "spark.log") as driver:
            driver.call(spark_queries.load, directory=str(directory), tables=tables(directory))
            answers = []
            for number in queries:
                answers.append(answer(driver, directory, number))
                say(f"query {number}: {answers[-1].difference or 'equal'}")
        return answers, _left(server.data_dir)


def _left(data_dir: Path) -> list[str]:
    """Files of shuffles, once the server has had time to delete those of an application that has ended."""

    def files() -> list[str]:
        return [str(path) for path in (data_dir / "worker" / "apps").rglob("*") if path.is_file()]

    try:
        wait_until(lambda: not files(), "the files of its shuffles are deleted", GONE_WITHIN_S)
    except TimeoutError:
        pass  # the report names them
    return files()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tpcds", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.01, help="1 is about 1 GB of text (default: 0.01)")
    parser.add_argument("--queries", default="1-99", help="such as 1-5,9 (default: 1-99)")
    parser.add_argument("--partitions", type=int, default=4, help="reduce partitions (default: 4)")
    parser.add_argument("--input", metavar="DIR", help="where the tables are kept (default: build/bench)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="spark.shuffle.flight.NAME")
    options = parser.parse_args(arguments)
    flight = dict(pair.split("=", 1) for pair in options.option)
    directory = Path(options.input or ROOT / "build" / "bench") / f"tpcds-{options.scale:g}"
    generate(directory, options.scale)
    with tempfile.TemporaryDirectory(prefix="tpcds-") as scratch:
        answers, left = run(directory, numbers(options.queries), options.partitions, Path(scratch), flight)
    differ = [found.query for found in answers if found.difference is not None]
    report = {"scale": options.scale, "options": flight, "differ": differ, "files_left": left}
    print(json.dumps(report | {"answers": [asdict(a) for a in answers]}, indent=2))
    return int(bool(differ or left))


if __name__ == "__main__":
    sys.exit(main())
