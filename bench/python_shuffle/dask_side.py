"""The dask side of `bench.python_shuffle`: p2p shuffle of a dask DataFrame on worker processes that live on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
from dask.delayed import delayed
from dask.distributed import Client, LocalCluster

from bench.python_shuffle.tasks import FrameSide, files_of, table_of


class DaskSide(FrameSide):
    """A dask cluster of `workers` processes with a thread each.

    Its scheduler runs in this process. No limit of memory is set, so that nothing is spilled for want of it; p2p
    shuffle writes what it shuffles to `scratch` by itself.
    """

    def __init__(self, scratch: Path, *, workers: int) -> None:
        super().__init__()
        self.enter_context(dask.config.set({"dataframe.shuffle.method": "p2p"}))
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
            host="127.0.0.1",
            local_directory=str(scratch),
        )
        self._client = self.enter_context(Client(self.enter_context(cluster)))  # type: ignore[no-untyped-call]
        self.processes = {"workers": sorted(self._client.run(os.getpid).values()), "scheduler": [os.getpid()]}

    def each(self, directory: Path, partitions: int, function: Callable[[Any], Any]) -> list[Any]:
        files = files_of(directory)
        frame = dd.from_map(_read, files, meta=_read(files[0]).head(0))  # type: ignore[no-untyped-call]
        parts = frame.shuffle(on="k", npartitions=partitions).to_delayed()
        found: list[Any] = self._client.gather(self._client.compute([delayed(function)(part) for part in parts]))
        return found


def _read(file: Path) -> Any:
    """A file as a DataFrame whose columns are Arrow's, so that neither reading nor p2p converts them."""
    return table_of(file).to_pandas(types_mapper=pd.ArrowDtype)
