"""TPC-DS: data and the 99 query texts, from DuckDB's extension ``tpcds``.

PyPI has it for one version of DuckDB only: that one goes into a directory of its own below ``build``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.harness.files import once
from tools import other_packages

DUCKDB = "1.5.5"  # the newest that the extension is there for
GENERATOR = Path(__file__).with_name("tpcds_generate.py")
GENERATE_TIMEOUT_S = 600.0
QUERIES = tuple(range(1, 100))
# As Spark orders nulls; it decides which rows a LIMIT takes.
NULL_ORDER = "nulls_first_on_asc_last_on_desc"
DIALECT = {"spark.sql.ansi.enabled": "false"}
# Spark rounds quotients of decimals to six digits before it sums them, DuckDB divides as floats: then so does Spark.
REWRITTEN = {66: ("/w_warehouse_sq_ft", "/cast(w_warehouse_sq_ft as double)")}


def generate(directory: Path, scale: float) -> None:
    """Tables and texts (`tpcds_generate`), if they are not there yet. Raises subprocess.CalledProcessError."""
    once(directory, lambda part: _write(part, scale))


def _write(directory: Path, scale: float) -> None:
    directory.mkdir(parents=True)
    packages = (f"duckdb=={DUCKDB}", f"duckdb-extension-tpcds=={DUCKDB}")
    environment = os.environ | {"PYTHONPATH": str(other_packages.installed(f"tpcds-{DUCKDB}", *packages))}
    command = [sys.executable, str(GENERATOR), str(directory), str(scale)]
    subprocess.run(command, env=environment, check=True, timeout=GENERATE_TIMEOUT_S)


def tables(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.parquet"))


def query(directory: Path, number: int) -> str:
    """The text of one query, as DuckDB quotes names."""
    return (directory / f"{number}.sql").read_text().replace(*REWRITTEN.get(number, ("", "")))
