"""The cases of `bench.spark_suite`, and their input."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import spark_jobs as job
from bench import tpch
from bench.harness import program
from bench.harness.files import once

GROUPS = ("tpch", "tiny", "partitions", "incompressible")
NO_COMPRESSION = {"spark.shuffle.compress": "false"}


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the report. Both functions are called in a driver with ``arguments``.

    ``check`` returns rows that both sides must agree on, ``timed`` what its work took. ``sort_conf`` are settings that
    only sort shuffle gets.
    """

    name: str
    group: str
    check: Callable[..., list[tuple[Any, ...]]]
    timed: Callable[..., job.Run]
    arguments: dict[str, Any]
    sort_conf: dict[str, str] = field(default_factory=dict)

    @property
    def heavy(self) -> bool:
        """Whether what a run left behind is removed before the next: else the disk fills, and removal is timed."""
        return self.timed is job.repartition

    def cold(self) -> list[Case]:
        """What a new driver does of it. The first tiny job is the first shuffle of its application."""
        if self.timed is not job.timed_tiny:
            return [self]
        more = self.arguments["shuffles"] - 1
        return [
            replace(self, name="first shuffle", arguments={"shuffles": 1}),
            replace(self, name=f"{more} more tiny", arguments={"shuffles": more}),
        ]


def prepare(directory: Path, options: argparse.Namespace) -> list[Case]:
    """The cases of the groups ``options.only``; their input is written below ``directory`` if it is not there yet."""
    cases: list[Case] = []
    if "tpch" in options.only:
        tables = once(directory / f"tpch-{options.scale:g}", lambda part: tpch.generate(part, options.scale))
        texts, where = tpch.queries(), {"directory": str(tables), "tables": tpch.TABLES}
        for n in program.numbers(options.queries):
            cases.append(Case(f"q{n}", "tpch", job.check_sql, job.timed_sql, where | {"sql": texts[n]}))
    if "tiny" in options.only:
        cases.append(Case(f"{options.tiny} tiny", "tiny", job.check_tiny, job.timed_tiny, {"shuffles": options.tiny}))
    if "partitions" in options.only:
        rows = prepare_rows(directory, options.rows)
        cases += [_repartition(f"into {n}", "partitions", rows, n) for n in program.numbers(options.many)]
    if "incompressible" in options.only:
        count = max(1, options.rows // 10)
        noise = once(directory / f"random-{count}", lambda part: job.write_random(part, count))
        cases.append(_repartition("random bytes", "incompressible", noise, 64, NO_COMPRESSION))
    return cases


def prepare_rows(directory: Path, rows: int) -> Path:
    """So many rows, written if they are not there."""
    return once(directory / f"spark_shuffle-{rows}", lambda part: job.write_input(part, rows))


def _repartition(name: str, group: str, rows: Path, partitions: int, sort_conf: dict[str, str] | None = None) -> Case:
    arguments = {"directory": str(rows), "partitions": partitions}
    return Case(name, group, job.checksum, job.repartition, arguments, sort_conf or {})
