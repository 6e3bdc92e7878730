"""dask DataFrames through a server: the rows of each partition are those of dask's own shuffle."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.distributed import Client, LocalCluster

from bench.harness.server import ServerProcess
from flight_shuffle import dask as flight
from flight_shuffle._frames import FrameCodec
from shuffle_api.errors import InvalidArgument
from tests.documents import block

ROWS, PARTITIONS = 60, 4
NUMBERS = np.arange(ROWS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process.control


@pytest.fixture(scope="module")
def shuffles(server: str) -> Iterator[flight.DaskShuffles]:
    with flight.DaskShuffles(server) as session:
        yield session


def arrow(kind: Any, values: list[Any]) -> Any:
    return pd.Series(pd.array(values, dtype=pd.ArrowDtype(kind)))


COLUMNS: dict[str, Any] = {
    **{f"{kind}": NUMBERS.astype(kind) for kind in ("int8", "uint16", "int32", "uint32", "int64", "uint64")},
    "float16": NUMBERS.astype("float16") / 2,
    "float64": np.where(NUMBERS % 7 == 0, np.nan, NUMBERS / 3),
    "complex128": NUMBERS + 1j,
    "bool": NUMBERS % 2 == 0,
    "datetime64[ns]": pd.Series(pd.date_range("2020", periods=ROWS)).where(NUMBERS % 5 > 0),
    "datetime64[s]": pd.date_range("2020", periods=ROWS).as_unit("s"),
    "datetime tz": pd.date_range("2020", periods=ROWS, tz="Europe/Rome"),
    "timedelta": pd.to_timedelta(NUMBERS, unit="s"),
    "period": pd.period_range("2020", periods=ROWS, freq="D"),
    "Int64": pd.array([None if n % 4 == 0 else n for n in range(ROWS)], dtype="Int64"),
    "Float32": pd.array([None if n % 4 == 0 else n / 2 for n in range(ROWS)], dtype="Float32"),
    "boolean": pd.array([None if n % 4 == 0 else n % 3 == 0 for n in range(ROWS)], dtype="boolean"),
    "string": pd.array([None if n % 4 == 0 else f"s{n}" for n in range(ROWS)], dtype="string[pyarrow]"),
    "string[python]": pd.array([None if n % 4 == 0 else f"s{n}" for n in range(ROWS)], dtype="string[python]"),
    "object": [[1] * (n % 3) if n % 2 else {"n": n} for n in range(ROWS)],
    "mixed": [None if n % 3 == 0 else n if n % 2 else f"o{n}" for n in range(ROWS)],
    "category": pd.Categorical([None if n % 5 == 0 else f"c{n % 7}" for n in range(ROWS)]),
    "ordered": pd.Categorical(NUMBERS % 3, categories=[2, 0, 1], ordered=True),
    "many categories": pd.Categorical([f"c{n}" for n in range(ROWS)], categories=[f"c{n}" for n in range(300)]),
    "arrow decimal": arrow(pa.decimal128(7, 3), [Decimal(n).scaleb(-3) for n in range(ROWS)]),
    "arrow list": arrow(pa.list_(pa.int32()), [None if n % 4 == 0 else [n] * (n % 3) for n in range(ROWS)]),
    "arrow struct": arrow(pa.struct([("a", pa.int64())]), [{"a": n} if n % 2 else None for n in range(ROWS)]),
    "arrow date": arrow(pa.date32(), [None] * ROWS),
}


def frame(**columns: Any) -> Any:
    return pd.DataFrame({"key": NUMBERS % 13, "n": NUMBERS, **columns})


def split(pandas: Any, npartitions: int) -> Any:
    return dd.from_pandas(pandas, npartitions=npartitions)  # type: ignore[no-untyped-call]


def computed(*delayed: Any, scheduler: str) -> Any:
    return dask.compute(*delayed, scheduler=scheduler)  # type: ignore[attr-defined, no-untyped-call]


def parts(collection: Any) -> list[Any]:
    found: tuple[Any, ...] = computed(*collection.to_delayed(), scheduler="threads")
    return [part.sort_values("n") if "n" in part.columns else part for part in found]


def check_same(shuffles: flight.DaskShuffles, df: Any, on: Any, npartitions: int | None = None) -> list[Any]:
    got = parts(shuffles.shuffle(df, on, npartitions))
    where = {} if on is not None else {"on_index": True}
    own = df.shuffle(**({"on": on} if on is not None else where), npartitions=npartitions, shuffle_method="tasks")
    expected = parts(own)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        pd.testing.assert_frame_equal(mine, theirs)
    return got


@pytest.mark.parametrize("name", COLUMNS)
def test_every_dtype_comes_back_as_it_was(shuffles: flight.DaskShuffles, name: str) -> None:
    with dask.config.set({"dataframe.convert-string": False}):
        check_same(shuffles, split(frame(column=COLUMNS[name]), 3), "key", PARTITIONS)


HASHED = [name for name in COLUMNS if name not in {"complex128", "object", "mixed", "arrow list", "arrow struct"}]


@pytest.mark.parametrize("name", HASHED)
def test_every_key_goes_where_dask_sends_it(shuffles: flight.DaskShuffles, name: str) -> None:
    with dask.config.set({"dataframe.convert-string": False}):
        check_same(shuffles, split(frame(column=COLUMNS[name]), 3), ["column", "key"], PARTITIONS)


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(ROWS),
        pd.Index(NUMBERS // 2, name="named"),
        pd.Index([f"i{n:02}" for n in range(ROWS)], name="texts"),
        pd.date_range("2020", periods=ROWS, tz="UTC", name="times"),
    ],
    ids=lambda index: str(index.name),
)
def test_an_index_travels_and_may_be_the_key(shuffles: flight.DaskShuffles, index: Any) -> None:
    df = split(frame().set_index(index), 3)
    check_same(shuffles, df, "key", PARTITIONS)
    check_same(shuffles, df, None, PARTITIONS)


def test_partitions_without_rows(shuffles: flight.DaskShuffles) -> None:
    df = split(frame(column=COLUMNS["category"]), 3)
    got = check_same(shuffles, df[df.key == 4], "key", 5)
    assert sorted(map(len, got))[-2] == 0
    assert all(map(len, check_same(shuffles, df, "key", None)))
    check_same(shuffles, df[df.n < 0], "key", 2)


def test_categories_that_only_the_partitions_know(shuffles: flight.DaskShuffles) -> None:
    df = split(frame(text=[f"t{n % 9}" for n in range(ROWS)]), 3)
    df = df.assign(text=df.text.astype("category"))
    [*got] = parts(shuffles.shuffle(df, "text", PARTITIONS))
    own = parts(df.shuffle("text", npartitions=PARTITIONS, shuffle_method="tasks"))
    for mine, theirs in zip(got, own, strict=True):
        assert isinstance(mine.text.dtype, pd.CategoricalDtype)
        assert mine.text.astype(object).tolist() == theirs.text.astype(object).tolist()


def test_names_that_are_no_texts_or_there_twice(shuffles: flight.DaskShuffles) -> None:
    columns = ["key", 7, ("a", 1), ("a", 1)]
    df = split(pd.DataFrame(np.arange(40).reshape(10, 4), columns=pd.Index(columns, tupleize_cols=False)), 2)
    got = pd.concat(parts(shuffles.shuffle(df, "key", 3)))
    assert list(got.columns) == columns
    assert sorted(got[7]) == list(range(1, 40, 4))


def test_ignore_index_numbers_the_rows_of_each_partition(shuffles: flight.DaskShuffles) -> None:
    df = split(frame(), 2)
    for part in computed(*shuffles.shuffle(df, "key", 3, ignore_index=True).to_delayed(), scheduler="threads"):
        assert part.index.tolist() == list(range(len(part)))


def test_the_collection_goes_on_as_any_other_and_is_computed_again(shuffles: flight.DaskShuffles) -> None:
    df = split(frame(), 3)
    shuffled = shuffles.shuffle(df, "key", PARTITIONS)
    sums = shuffled.map_partitions(lambda part: part.groupby("key").n.sum())
    expected = frame().groupby("key").n.sum()
    for _ in range(2):
        pd.testing.assert_series_equal(sums.compute(scheduler="threads").sort_index(), expected)


def test_the_session_of_the_process_is_opened_once_and_closed(server: str) -> None:
    df = split(frame(), 2)
    one, two = (flight.shuffle(df, "key", server=server) for _ in range(2))
    assert len(one.compute(scheduler="threads")) == len(two.compute(scheduler="threads")) == ROWS
    flight.close()
    flight.close()


@pytest.mark.parametrize(
    ("df", "on", "says"),
    [
        (frame(), "key", "is no dask DataFrame"),
        (split(frame(), 1).n, "key", "is no dask DataFrame"),
        (split(frame(), 1), ["key", "other"], "no column 'other'"),
    ],
)
def test_what_cannot_be_shuffled_is_refused(shuffles: flight.DaskShuffles, df: Any, on: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        shuffles.shuffle(df, on)


def test_a_plugin_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="keeps no data to be read again"):
        flight.DaskShuffles(plugin="pipelined")


def test_a_partition_that_is_not_as_meta_says_is_refused_by_column() -> None:
    codec = FrameCodec(frame().head(0), index=True)
    with pytest.raises(InvalidArgument, match="column 'n' is not of dtype int64"):
        codec.encode(frame().assign(n="text"))


def test_numbers_that_a_join_has_left_missing_stay_missing() -> None:
    codec = FrameCodec(frame().head(0), index=True)
    joined = frame().assign(n=np.where(NUMBERS % 3 == 0, np.nan, NUMBERS))
    pd.testing.assert_frame_equal(codec.decode(pa.Table.from_batches([codec.encode(joined)])), joined)
    with pytest.raises(InvalidArgument, match="column 'n' is not of dtype int64"):
        codec.encode(joined.assign(n=joined.n + 0.5))


def test_a_partition_with_other_columns_than_meta_is_refused() -> None:
    codec = FrameCodec(frame(m=0).head(0), index=True)
    with pytest.raises(InvalidArgument, match="a partition has the columns"):
        codec.encode(frame())


def _slow(part: Any, folder: str) -> Any:
    """A partition that takes its time; what runs leaves a trace."""
    (Path(folder) / f"{part.n.iloc[0]}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.2)
    return part


def test_a_worker_that_dies_while_partitions_are_written_costs_its_own_tasks(server: str, tmp_path: Path) -> None:
    rows, maps = 4000, 40
    pandas = pd.DataFrame({"key": np.arange(rows) % 97, "n": np.arange(rows)})
    with (
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
            host="127.0.0.1",
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,  # type: ignore[no-untyped-call]
        flight.DaskShuffles(server) as session,
    ):
        trace = tmp_path / "trace"
        trace.mkdir()
        df = split(pandas, maps).map_partitions(_slow, str(trace), meta=pandas.head(0))
        future = client.compute(session.shuffle(df, "key", 8))
        while len(list(trace.iterdir())) < maps // 3:
            time.sleep(0.02)
        os.kill(int(next(iter(trace.iterdir())).name.split("-")[1]), signal.SIGKILL)
        got = future.result(timeout=240)
        ran = len(list(trace.iterdir()))
    pd.testing.assert_frame_equal(got.sort_values("n"), pandas)
    assert maps < ran < 2 * maps


def test_the_program_of_the_document_runs(server: str) -> None:
    program = block("docs/api.md", "DaskShuffles").text.replace("HOST:PORT", server)
    rows = pd.DataFrame({"country": ["it", "no", "it", "fr"], "sold": [1, 2, 3, 4]})

    def total(part: pd.DataFrame) -> pd.DataFrame:
        return part.groupby("country", as_index=False)[["sold"]].sum()

    names: dict[str, Any] = {"frame": split(rows, 2), "total": total}
    exec(compile(program, "docs/api.md", "exec"), names)
    assert dict(names["totals"].to_numpy().tolist()) == {"it": 4, "no": 2, "fr": 4}
