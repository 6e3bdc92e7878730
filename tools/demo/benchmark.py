"""The 22 queries of TPC-H."""

import re
from pathlib import Path

from pyspark.sql import SparkSession

from bench import tpch
from tools.demo.query import Query, sql

SECTION = "tpch"


def queries(spark: SparkSession, directory: Path) -> list[Query]:
    """Makes the tables known to the session and tells what to ask."""
    for table in tpch.TABLES:
        spark.read.parquet(str(tpch.table_path(directory, table))).createOrReplaceTempView(table)
    return [sql(SECTION, f"Q{number}", text, ordered_by(text)) for number, text in tpch.queries().items()]


def ordered_by(text: str) -> tuple[str, ...]:
    """The columns of the outermost ORDER BY, which in these texts is the last one and unindented."""
    clause = re.search(r"^ *ORDER BY\s+([^()]*?)\s*(?:LIMIT \d+)?\s*\Z", text, flags=re.MULTILINE)
    return tuple(column.split()[0] for column in clause[1].split(",")) if clause else ()
