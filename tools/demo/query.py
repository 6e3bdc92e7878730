"""One step of the pipeline, and the sections that steps come from."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Query:
    """A result to compute. ``ordered_by`` names the result's columns whose order is part of the answer."""

    section: str
    name: str
    build: Callable[[SparkSession], DataFrame]
    ordered_by: tuple[str, ...] = ()


def sql(section: str, name: str, text: str, ordered_by: tuple[str, ...] = ()) -> Query:
    """A query in SQL over the section's views."""
    return Query(section, name, lambda spark: spark.sql(text), ordered_by)
