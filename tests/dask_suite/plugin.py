"""For pytest: dask's tests of its shuffle, with the shuffle of `flight_shuffle.dask` in its place.

`df.shuffle(...)` goes through a Flight Shuffle server, whatever `shuffle_method` says. It keeps the index, which dask's
p2p does even if it is to be ignored. What the tests ask of the state of dask's own shuffle, its plugins of scheduler
and workers, has no counterpart: such helpers find nothing wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import distributed.shuffle
import pytest
from distributed.utils_test import *  # noqa: F403 - fixtures

from bench.harness.server import ServerProcess
from flight_shuffle.dask import DaskShuffles
from tests.dask_suite.reasons import NOT_APPLICABLE

HELPERS = ("assert_worker_cleanup", "assert_scheduler_cleanup")


def pytest_configure(config: Any) -> None:
    source = Path(config.getoption("--dask-source")) / "distributed" / "shuffle"
    distributed.shuffle.__path__.append(str(source))  # where the tests are, which are not installed


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--dask-source", required=True)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if reason := NOT_APPLICABLE.get(item.originalname):
            item.add_marker(pytest.mark.skip(reason=reason))
        for helper in HELPERS:
            setattr(item.module, helper, _nothing)


async def _nothing(*given: Any, **named: Any) -> None:
    pass


@pytest.fixture(scope="session")
def flight_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dask-suite-") as scratch:
        with ServerProcess(Path(scratch) / "data", Path(scratch) / "log") as process:
            yield process.control


@pytest.fixture(autouse=True)
def flight_shuffle(flight_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with DaskShuffles(flight_server) as shuffles:

        def shuffle(
            df: Any, on: Any = None, ignore_index: bool = False, npartitions: int | None = None, **other: Any
        ) -> Any:
            return shuffles.shuffle(df, on, npartitions)

        monkeypatch.setattr(dd.DataFrame, "shuffle", shuffle)
        yield
