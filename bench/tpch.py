"""TPC-H: the data through ``tpchgen-cli``, the 22 query texts, and DuckDB's answers to them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

QUERY_FILE = Path(__file__).with_name("tpch_queries.sql")
GENERATE_TIMEOUT_S = 1800


def table_path(directory: Path, table: str) -> Path:
    """Where `generate` puts a table."""
    return directory / f"{table}.parquet"


def generate(directory: Path, scale: float) -> None:
    """Write the eight tables as ``<directory>/<table>.parquet``; scale 1 is about 1 GB of text, 300 MB of parquet.

    The same scale always gives the same bytes. Raises FileNotFoundError if ``tpchgen-cli`` is not installed,
    subprocess.CalledProcessError (with its output) if it fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = [_generator(), "parquet", f"--scale-factor={scale}", f"--output-dir={directory}"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=GENERATE_TIMEOUT_S)


def queries() -> dict[int, str]:
    """Query number -> SQL text without the closing semicolon."""
    parts = re.split(r"^-- query (\d+)$", QUERY_FILE.read_text(), flags=re.MULTILINE)[1:]
    return {int(number): text.strip().rstrip(";") for number, text in zip(parts[::2], parts[1::2], strict=True)}


def answer(
    directory: Path, sql: str, tables: Sequence[str] = TABLES, *, null_order: str = "nulls_last"
) -> list[tuple[object, ...]]:
    """What DuckDB, an independent engine, answers over the ``tables`` in ``directory``.

    ``null_order`` is its setting ``default_null_order``.
    """
    import duckdb  # only the checks need it

    with duckdb.connect(config={"default_null_order": null_order}) as connection:
        for table in tables:
            connection.read_parquet(str(table_path(directory, table))).create_view(table)
        return connection.execute(sql).fetchall()


def _generator() -> str:
    # Beside the interpreter first: a virtual environment need not be activated.
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise FileNotFoundError("tpchgen-cli is not installed; run scripts/setup, or: pip install tpchgen-cli")
    return found
