"""Jobs that both shuffles must answer alike. They run in a driver process; each returns a plain value.

What a shuffle leaves open (the order of records that come from several maps) is sorted away, nothing else.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

GIANT = 64 << 20


def _pairs(spark: SparkSession, records: int = 20_000, keys: int = 97, maps: int = 4) -> "RDD[tuple[int, int]]":
    return spark.sparkContext.parallelize(range(records), maps).map(lambda i: (i % keys, i))


def _partitions(rdd: "RDD[Any]") -> list[list[Any]]:
    return [sorted(part) for part in rdd.glom().collect()]


def reduce_by_key(spark: SparkSession) -> Any:
    return _partitions(_pairs(spark).reduceByKey(lambda a, b: a + b, 8))


def group_by_key(spark: SparkSession) -> Any:
    return _partitions(_pairs(spark).groupByKey(8).mapValues(sorted))


def sort_by_key(spark: SparkSession) -> Any:
    shuffled = _pairs(spark).map(lambda pair: (pair[1] * 7919 % 50_021, pair[0]))
    return shuffled.sortByKey(numPartitions=5).glom().collect()  # the order is the result


def cogroup(spark: SparkSession) -> Any:
    other = spark.sparkContext.parallelize([(k % 120, str(k)) for k in range(500)], 3)
    grouped = _pairs(spark, 2_000).cogroup(other, 6)
    return _partitions(grouped.mapValues(lambda sides: [sorted(side) for side in sides]))


def repartition(spark: SparkSession) -> Any:
    return sorted(_pairs(spark).repartition(7).collect())


def nulls(spark: SparkSession) -> Any:
    """None as key, as value, and as the whole record."""
    given = [(None, 1), ("a", None), (None, None), ("a", 2), (None, 3)] * 50
    grouped = spark.sparkContext.parallelize(given, 3).groupByKey(4).mapValues(_counted).collect()
    whole = spark.sparkContext.parallelize([None, "x", None], 2).repartition(3).collect()
    return sorted(grouped, key=repr), sorted(whole, key=repr)


def empty(spark: SparkSession) -> Any:
    """No record in any map, and no map at all."""
    no_records = spark.sparkContext.parallelize(range(10), 4).filter(lambda i: i < 0).map(lambda i: (i, i))
    no_maps = spark.sparkContext.emptyRDD().map(lambda i: (i, i))
    return no_records.groupByKey(3).collect(), no_maps.groupByKey(3).collect()


def one_record(spark: SparkSession) -> Any:
    return _partitions(spark.sparkContext.parallelize([("k", "v")], 4).partitionBy(16))


def giant_record(spark: SparkSession) -> Any:
    """64 MiB that do not compress, in one record."""
    giants = spark.sparkContext.parallelize([1, 2], 2).map(lambda seed: (seed, random.Random(seed).randbytes(GIANT)))
    return _partitions(giants.partitionBy(2).map(lambda pair: (pair[0], len(pair[1]), digest([pair[1]]))))


def many_partitions(spark: SparkSession) -> Any:
    """2,000 reduce partitions, nearly all of them empty in each map output; eight tasks read 250 each."""
    return _partitions(_pairs(spark, records=6_000, keys=6_000).partitionBy(2_000).coalesce(8))


def failing_attempts(spark: SparkSession) -> Any:
    """The first attempt of every map fails after it has written: readers must not see its records."""
    flaky = _pairs(spark, 4_000).mapPartitions(_fail_first_attempt)
    return _partitions(flaky.groupByKey(5).mapValues(sorted))


def sql_group_by(spark: SparkSession) -> Any:
    return _rows(_table(spark).groupBy("k").agg(fn.count("*"), fn.sum("x"), fn.count("x")), "k")


def sql_sort_merge_join(spark: SparkSession) -> Any:
    names = spark.range(0, 3_000).selectExpr("id % 1100 as k", "concat('n', id) as n")
    joined = _table(spark).join(names.hint("merge"), "k")
    return _rows(joined.groupBy("k").agg(fn.count("*"), fn.sum(fn.length("n"))), "k")


def sql_skewed_join(spark: SparkSession) -> Any:
    """Three quarters of the rows have one key; adaptive execution splits its partition by maps."""
    spark.conf.set("spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes", "32k")
    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "32k")
    try:
        skewed = _table(spark).selectExpr("if(id < 37500, 0, id) as k", "id")
        return (
            skewed.join(_table(spark).select("k").distinct().hint("merge"), "k")
            .selectExpr("count(*)", "sum(id)")
            .collect()
        )
    finally:
        spark.conf.unset("spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes")
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")


def sql_order_by(spark: SparkSession) -> Any:
    return _table(spark).orderBy(fn.col("x").desc_nulls_last(), "id").collect()[::100]


def sql_window(spark: SparkSession) -> Any:
    _table(spark).createOrReplaceTempView("t")
    ranked = spark.sql("select k, id, row_number() over (partition by k order by id desc) r from t")
    return _rows(ranked.where("r < 3"), "k", "r")


def sql_distinct(spark: SparkSession) -> Any:
    return _rows(_table(spark).select("k").distinct(), "k")


def sql_wide_strings(spark: SparkSession) -> Any:
    """Rows of 0 to 200 KiB."""
    wide = spark.range(0, 200, 1, 4).selectExpr(
        "id", "repeat(sha2(cast(id as string), 256), cast(id as int) * 16) as s"
    )
    return _rows(wide.repartition(5, "id").selectExpr("id", "length(s)", "md5(s)"), "id")


def sql_many_partitions(spark: SparkSession) -> Any:
    spread = _table(spark).repartition(2_000, "id").coalesce(8)
    return spread.selectExpr("count(*)", "sum(id)", "sum(x)").collect()


def in_order_of_maps(spark: SparkSession) -> Any:
    """What depends on the order in which a task gets its records: in local mode that of the maps."""
    # Rows that do not shrink, so that a reader needs several requests of a small ``maxSizeInFlight``.
    wide = spark.range(0, 24_000, 1, 6).selectExpr("id", "id % 50 as k", "sha2(cast(id as string), 512) as s")
    spread = wide.repartition(2, "k")
    gathered = spread.groupBy("k").agg(fn.collect_list("id"), fn.first("s"), fn.last("id")).collect()
    return (
        [tuple(row) for row in gathered],
        [row.id for row in spread.limit(2_000).collect()],
        [row.id for row in spread.sort(fn.rand(7)).collect()],
        [row.id for row in spread.dropDuplicates(["k"]).collect()],
        _pairs(spark).groupByKey(3).mapValues(list).collect(),
        _pairs(spark).repartition(5).collect(),
    )


RDD_JOBS: tuple[Callable[[SparkSession], Any], ...] = (
    reduce_by_key,
    group_by_key,
    sort_by_key,
    cogroup,
    repartition,
    nulls,
    empty,
    one_record,
    giant_record,
    many_partitions,
    failing_attempts,
)
SQL_JOBS: tuple[Callable[[SparkSession], Any], ...] = (
    sql_group_by,
    sql_sort_merge_join,
    sql_skewed_join,
    sql_order_by,
    sql_window,
    sql_distinct,
    sql_wide_strings,
    sql_many_partitions,
)


def _table(spark: SparkSession) -> DataFrame:
    return spark.range(0, 50_000, 1, 4).selectExpr("id", "id % 1000 as k", "if(id % 7 = 0, null, id * 1.5D) as x")


def _rows(frame: DataFrame, *order: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy(*order).collect()]


def _fail_first_attempt(records: Iterable[Any]) -> Iterator[Any]:
    yield from records
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails on purpose")


def _counted(values: Iterable[Any]) -> list[tuple[str, int]]:
    texts = [repr(value) for value in values]
    return sorted((text, texts.count(text)) for text in set(texts))


def digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
