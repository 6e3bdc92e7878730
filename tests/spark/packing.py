"""Processor time of packing the rows of real queries: ``python -m tests.spark.packing tpch --scale 1``

The queries run through a server, and their map outputs are kept. Then one Java thread makes the blocks of these rows
again, with Spark's codec alone and packed by column, and reads both, in turn (`StoredRowTimes`). The table has what a
row takes. The plugin's test classes must be there: ``scripts/jvm -q test-compile``.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyspark

from bench import spark_jobs
from bench.answers import Suite, add_suite, prepared
from bench.harness import program
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf

TIMEOUT_S = 900.0
TARGET = ROOT / "plugins" / "spark" / "target"
PROGRAM = "org.apache.spark.shuffle.flight.rows.StoredRowTimes"


def keep_outputs(suite: Suite, directory: Path, given: argparse.Namespace, scratch: Path, kept: Path) -> None:
    """Run the queries; their map outputs are in folders of `kept`, by query and shuffle."""
    numbers = suite.chosen(given.queries)
    with ExitStack() as running:
        data = scratch / "data"
        server = running.enter_context(ServerProcess(data, scratch / "server.log", ["--merge-below", "0"]))
        conf = local_conf(scratch, memory=given.memory, partitions=given.partitions) | dict(suite.dialect)
        conf |= {"spark.jars": str(find_jar()), "spark.cleaner.referenceTracking": "false"}
        conf |= spark_conf(server.control, fallback="never")
        driver = running.enter_context(SparkDriver(conf, scratch / "spark.log"))
        driver.call(spark_jobs.load, directory=str(directory), tables=list(suite.tables(directory)))
        for number in numbers:
            sql = suite.query(directory, number).replace('"', "`")
            driver.call(spark_jobs.query, timeout=TIMEOUT_S, sql=sql)
            found = [path for path in data.rglob("*.out") if path.stat().st_nlink == 1]
            for path in found:
                place = kept / f"q{number:02}" / path.parent.name / path.name
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, place)
            print(f"query {number}: {len(found)} map outputs", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.packing", description=(__doc__ or "").split("\n")[0])
    add_suite(parser)
    program.add_options(
        parser,
        scale=(1.0, "of the tables"),
        partitions=(32, "shuffle partitions"),
        memory=("2g", "heap of the driver"),
        rounds=(5, "of which the table has the medians"),
        most=(64, "MiB of stored map outputs of a shuffle"),
    )
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where data is stored")
    given = parser.parse_args(arguments)
    suite, directory = prepared(given)
    with tempfile.TemporaryDirectory(prefix="packing-", dir=given.scratch) as scratch:
        kept = Path(scratch) / "kept"
        keep_outputs(suite, directory, given, Path(scratch), kept)
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        classes = f"{TARGET / 'test-classes'}:{TARGET / 'classes'}:{jars}"
        command = ["java", "-Xmx4g", "-cp", classes, PROGRAM, str(kept), str(given.rounds), str(given.most)]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    program.run(main)
