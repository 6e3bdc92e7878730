"""A group-by, a join, a sort and a repartition of any table, chosen from its columns by their types."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tools.demo.folder import Table
from tools.demo.query import Query

SECTION = "input"
INTEGRAL = (ByteType, ShortType, IntegerType, LongType)
NUMBERS = (*INTEGRAL, FloatType, DoubleType, DecimalType)
KEYS = (*INTEGRAL, StringType, DateType, BooleanType)
SORTABLE = (*NUMBERS, *KEYS, TimestampType, TimestampNTZType)

SAMPLE_ROWS = 100_000
WANTED_GROUPS = 200
PARTITIONS = 64


def read(spark: SparkSession, table: Table) -> DataFrame:
    """The table as Spark sees it; the types of CSV columns are inferred."""
    paths = [str(path) for path in table.paths]
    reader = spark.read.option("basePath", str(table.root))
    if table.format == "csv":
        return reader.csv(paths, header=True, inferSchema=True)
    return reader.parquet(*paths)


def queries(spark: SparkSession, tables: Sequence[Table]) -> list[Query]:
    """Four queries for each table."""
    frames = {table.name: read(spark, table) for table in tables}
    made = []
    for name, frame in frames.items():
        key = group_column(frame)
        others = {other: right for other, right in frames.items() if other != name}
        made += _queries_of(name, frame, key, others)
    return made


def _queries_of(name: str, frame: DataFrame, key: str, others: dict[str, DataFrame]) -> list[Query]:
    partner, on = join_partner(frame, key, others)
    right = others.get(partner, frame)
    order = sort_columns(frame, key)
    label = name if partner not in others else f"{name} with {partner}"
    return [
        Query(SECTION, f"{name}: grouped by {key}", lambda _: grouped(frame, key)),
        Query(SECTION, f"{label}: joined on {on}", lambda _: joined(frame, right, on)),
        Query(
            SECTION, f"{name}: sorted by {', '.join(order)}", lambda _: frame.sort(*map(column, order)), tuple(order)
        ),
        Query(SECTION, f"{name}: repartitioned by {key}", lambda _: frame.repartition(PARTITIONS, column(key))),
    ]


def grouped(frame: DataFrame, key: str) -> DataFrame:
    """Rows, and of each number its sum, least and greatest; sums are exact, whatever the order of the additions."""
    measures = [n for n in names(frame, NUMBERS) if n != key]
    aggregates = [F.count("*").alias("number of rows")]
    for name in measures:
        value = column(name)
        exact = F.expr(f"try_cast({quoted(name)} as decimal(28, 6))")
        aggregates += [F.try_sum(exact).alias(f"sum {name}"), F.min(value).alias(f"min {name}")]
        aggregates += [F.max(value).alias(f"max {name}")]
    return frame.groupBy(column(key).alias(key)).agg(*aggregates)


def joined(left: DataFrame, right: DataFrame, on: str) -> DataFrame:
    """Every row of ``left`` with the number of rows of ``right`` that have its key: a join that multiplies no rows."""
    counted = right.groupBy(column(on).alias("joined key")).agg(F.count("*").alias("joined rows"))
    matches = column(on) == F.col("`joined key`")
    return left.join(counted, matches, "left").drop("joined key")


def group_column(frame: DataFrame) -> str:
    """The column to group by: of a sample's counts of distinct values the one nearest to 200, but more than one.

    Raises ValueError if no column has a type that can be grouped by.
    """
    candidates = names(frame, KEYS) or names(frame, SORTABLE)
    if not candidates:
        raise ValueError(f"no column to group by: {frame.schema.simpleString()}")
    sample = frame.limit(SAMPLE_ROWS)
    counts = sample.agg(*[F.approx_count_distinct(column(n)).alias(str(i)) for i, n in enumerate(candidates)]).first()
    assert counts is not None  # an aggregate without groups has one row

    def distance(i: int) -> float:
        distinct = counts[i]
        return float("inf") if distinct < 2 else max(distinct, WANTED_GROUPS) / min(distinct, WANTED_GROUPS)

    return candidates[min(range(len(candidates)), key=distance)]


def join_partner(frame: DataFrame, key: str, others: dict[str, DataFrame]) -> tuple[str, str]:
    """Another table that shares a column of the same type, and that column; else no name, and the table's own key."""
    types = dict(frame.dtypes)
    for other, right in others.items():
        for name in names(right, KEYS):
            if types.get(name) == dict(right.dtypes)[name]:
                return other, name
    return "", key


def sort_columns(frame: DataFrame, key: str) -> list[str]:
    """Up to three columns: a number first if there is one, then the key and other sortable columns."""
    numbers = [n for n in names(frame, NUMBERS) if n != key]
    return list(dict.fromkeys([*numbers[-1:], key, *names(frame, SORTABLE)]))[:3]


def names(frame: DataFrame, types: tuple[type[DataType], ...]) -> list[str]:
    """The frame's columns of these types."""
    return [field.name for field in frame.schema if isinstance(field.dataType, types)]


def quoted(name: str) -> str:
    """A column name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    return F.col(quoted(name))
