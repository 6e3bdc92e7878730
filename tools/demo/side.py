"""One side of the comparison: a process with a Spark session that runs the requested queries, one at a time.

Line by line as JSON: first the specification comes in and the list of queries goes out, then for every ``{"run": n}``
comes a ``{"seconds": ...}`` or an ``{"error": ...}``; the result is in ``<results>/<n>`` as parquet. The end of the
input ends the session.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bench.harness.spark import end_jvm, session
from tools.demo import benchmark, flights, own
from tools.demo.folder import find_tables
from tools.demo.query import Query

ERROR_LINES, ERROR_CHARACTERS = 5, 1000
FAILURES = (PySparkException, Py4JError, OSError, ValueError)


def main() -> int:
    with protocol() as replies:
        spec = json.loads(sys.stdin.readline())
        try:
            spark = session(spec["app"], spec["conf"])
            try:
                serve(spark, spec, replies)
            finally:
                spark.stop()
        finally:
            end_jvm()
    return 0


def serve(spark: SparkSession, spec: dict[str, Any], replies: IO[str]) -> None:
    try:
        queries = plan(spark, spec["sections"])
        warm_up(spark)
    except FAILURES as error:
        reply(replies, error=short(error))
        return
    reply(replies, queries=[{"section": q.section, "name": q.name, "ordered_by": q.ordered_by} for q in queries])
    for line in sys.stdin:
        number = json.loads(line)["run"]
        try:
            started = time.perf_counter()
            queries[number].build(spark).write.parquet(f"{spec['results']}/{number}")
            reply(replies, seconds=time.perf_counter() - started)
        except FAILURES as error:
            reply(replies, error=short(error))


def plan(spark: SparkSession, sections: list[dict[str, str]]) -> list[Query]:
    """The queries of all sections, in order; both sides arrive at the same list."""
    made: list[Query] = []
    for section in sections:
        directory = Path(section["directory"])
        if section["kind"] == own.SECTION:
            made += own.queries(spark, find_tables(directory))
        elif section["kind"] == flights.SECTION:
            made += flights.queries(spark, directory)
        else:
            made += benchmark.queries(spark, directory)
    return made


def warm_up(spark: SparkSession) -> None:
    """A small shuffle, so that the first query does not pay for loading classes."""
    spark.range(100_000).selectExpr("id % 1000 k", "id v").groupBy("k").sum("v").orderBy("k").collect()


@contextmanager
def protocol() -> Iterator[IO[str]]:
    """The process's standard output, kept for replies alone: whatever else prints goes to standard error."""
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        yield replies


def reply(replies: IO[str], **message: object) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def short(error: BaseException) -> str:
    """The error without its Java stack, which is in the log."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    return f"{type(error).__name__}: {' '.join(lines[:ERROR_LINES])}"[:ERROR_CHARACTERS]


if __name__ == "__main__":
    sys.exit(main())
