"""The dask side of `bench.python_shuffle`: p2p shuffle of a dask DataFrame on worker processes that live on."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask.delayed import delayed
from dask.distributed import Client, LocalCluster

from bench.python_shuffle.tasks import Digest, digest, files_of, table_of


class DaskSide:
    """A dask cluster of `workers` processes with a thread each; a context manager.

    Its scheduler runs in this process. No limit of memory is set, so that nothing is spilled for want of it; p2p
    shuffle writes what it shuffles to `scratch` by itself.
    """

    def __init__(self, scratch: Path, *, workers: int) -> None:
        with ExitStack() as stack:
            stack.enter_context(dask.config.set({"dataframe.shuffle.method": "p2p"}))
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
            stack.enter_context(cluster)
            self._client = stack.enter_context(Client(cluster))  # type: ignore[no-untyped-call]
            self.pids: list[int] = sorted(self._client.run(os.getpid).values())
            self._stack = stack.pop_all()

    def count(self, directory: Path, partitions: int) -> int:
        """Read, shuffle by `k`, count the rows of every partition."""
        counts = _shuffled(directory, partitions).map_partitions(len, meta=("rows", "int64"))
        return int(counts.compute().sum())

    def check(self, directory: Path, partitions: int) -> Digest:
        """The digest of all rows, partition by partition."""
        parts = _shuffled(directory, partitions).to_delayed()
        digests = self._client.gather(self._client.compute([delayed(_digest)(part) for part in parts]))
        return sum(digests, Digest())

    def __enter__(self) -> DaskSide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _shuffled(directory: Path, partitions: int) -> Any:
    files = files_of(directory)
    frame = dd.from_map(_read, files, meta=_read(files[0]).head(0))  # type: ignore[no-untyped-call]
    return frame.shuffle(on="k", npartitions=partitions)


def _read(file: Path) -> Any:
    """A file as a DataFrame whose columns are Arrow's, so that neither reading nor p2p converts them."""
    return table_of(file).to_pandas(types_mapper=pd.ArrowDtype)


def _digest(frame: Any) -> Digest:
    return digest(pa.Table.from_pandas(frame, preserve_index=False))
