"""bench.tpch: the data is complete and the texts run."""

from pathlib import Path

import pytest

from bench import tpch


def test_queries_are_the_22_in_order_without_semicolons() -> None:
    texts = tpch.queries()
    assert list(texts) == list(range(1, 23))
    assert not any(";" in text for text in texts.values())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    tpch.generate(directory, 0.001)
    return directory


def test_generate_writes_every_table(tables: Path) -> None:
    assert {path.name for path in tables.iterdir()} == {f"{table}.parquet" for table in tpch.TABLES}
    assert tpch.answer(tables, "select count(*) from orders") == [(1500,)]


@pytest.mark.parametrize("number", range(1, 23))
def test_each_query_runs_on_duckdb(tables: Path, number: int) -> None:
    assert isinstance(tpch.answer(tables, tpch.queries()[number]), list)
