"""Write the tables and queries of TPC-DS: ``python tpcds_generate.py DIRECTORY SCALE``.

Runs with a DuckDB and its extension ``tpcds`` of the same version on ``PYTHONPATH``: see `bench.tpcds`.
"""

import sys
from pathlib import Path

import duckdb


def main(directory: Path, scale: float) -> None:
    """``<directory>/<table>.parquet`` for the 24 tables, ``<directory>/<number>.sql`` for the 99 queries."""
    import duckdb_extension_tpcds  # type: ignore[import-not-found]

    [extension] = Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"CALL dsdgen(sf = {scale})")
        for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            connection.execute(f"COPY {table} TO '{directory / table}.parquet' (FORMAT parquet)")
        for number, text in connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
            (directory / f"{number}.sql").write_text(text.strip().rstrip(";"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
