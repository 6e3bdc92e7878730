"""Shuffle dask DataFrames through a Flight Shuffle server: needs the extra `dask`.

    from flight_shuffle import dask as flight
    shuffled = flight.shuffle(frame, on="country", npartitions=64, server="host:port")

Rows go where dask's own shuffle sends them. The tasks are ordinary ones: a task per input partition writes a map
output, a task per output partition reads. Data lies at the server: when a worker dies, only its own tasks run again.
Input partitions must be the same each time they are computed. Objects and complex numbers are pickled. A column that
meta has as integers may have missing numbers in a partition, as a join leaves them; other differences from meta are
refused (`InvalidArgument`). dask has no place for further names of `shuffle_method`, so `merge` and `groupby` use this
shuffle only if the program calls it before.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.dataframe.shuffle import partitioning_index
from dask.delayed import delayed

from flight_shuffle._frames import FrameCodec
from flight_shuffle._tasks import Options, ShuffleSession, new_attempt, opened
from shuffle_api import ShuffleHandle
from shuffle_api.columnar import SupportsReadBatches, SupportsWriteBatch, read_table
from shuffle_api.errors import InvalidArgument
from shuffle_api.interfaces import OptionValue


class DaskShuffles(ShuffleSession):
    """The driver's side: shuffles whose data is at the server until this is closed. A context manager.

    :param server: `HOST:PORT` of the control endpoint; None: as the environment says (docs/options.md).
    :param plugin: the plugin's name: `remote`, or one whose data stays to be read again.
    :param options: further options of the plugin, at the driver and at the workers. They travel in dask's graph: give
        credentials by the environment of driver and workers.
    """

    def __init__(self, server: str | None = None, *, plugin: str = "remote", **options: OptionValue) -> None:
        super().__init__(server, plugin, options, "dask", "dask")

    def shuffle(self, df: Any, on: Any = None, npartitions: int | None = None, *, ignore_index: bool = False) -> Any:
        """See `flight_shuffle.dask.shuffle`."""
        keys = _Keys.of(df, on)
        partitions = npartitions or df.npartitions
        parts = df.to_delayed()
        handle = self.master.register_shuffle(partitions, len(parts))
        job = _Job(handle, self._name, self._options, df._meta, keys, ignore_index)
        written = delayed(_all_written, pure=False)(
            [delayed(_write, pure=False)(part, number, job) for number, part in enumerate(parts)]
        )
        read = delayed(_read, pure=False)
        return dd.from_delayed(
            [read(written, partition, job) for partition in range(partitions)],
            meta=job.codec.decode(job.codec.schema.empty_table()),
            verify_meta=False,
        )


def shuffle(
    df: Any,
    on: Any = None,
    npartitions: int | None = None,
    *,
    ignore_index: bool = False,
    server: str | None = None,
    plugin: str = "remote",
    **options: OptionValue,
) -> Any:
    """The rows of a dask DataFrame in `npartitions` partitions, rows with equal keys in one: as `df.shuffle(on, ...)`.

    Data stays at the server until `close()` or the end of this process; `DaskShuffles` frees it earlier.

    :param on: a column, or several; None: the index.
    :param npartitions: None: as many as `df` has.
    :param ignore_index: rows get a new index, from 0 on in each partition.
    :param server, plugin, options: as those of `DaskShuffles`.
    :raises InvalidArgument: `df` is no DataFrame of pandas, or has no such column.
    :raises ShuffleError: the server cannot be reached, or refuses the shuffle.
    """
    key = (server, plugin, tuple(sorted(options.items())))
    with _lock:
        if key not in _sessions:
            _sessions[key] = DaskShuffles(server, plugin=plugin, **options)
        session = _sessions[key]
    return session.shuffle(df, on, npartitions, ignore_index=ignore_index)


def close() -> None:
    """Drop the data of all that `shuffle` has shuffled in this process."""
    with _lock:
        sessions = list(_sessions.values())
        _sessions.clear()
    for session in sessions:
        session.close()


_lock = threading.Lock()
_sessions: dict[tuple[str | None, str, Options], DaskShuffles] = {}
atexit.register(close)


@dataclass(frozen=True)
class _Keys:
    """What rows are partitioned by, computed as dask does: equal keys meet whatever dtype a partition has for them.

    :param columns: None: the index.
    :param numbers: the columns that dask compares as float64.
    """

    columns: tuple[Hashable, ...] | None
    numbers: tuple[Hashable, ...]

    @classmethod
    def of(cls, df: Any, on: Any) -> _Keys:
        """:raises InvalidArgument: no DataFrame, or no such column."""
        if not isinstance(df, dd.DataFrame) or not isinstance(df._meta, pd.DataFrame):
            raise InvalidArgument(f"{type(df).__name__} is no dask DataFrame of pandas", remedy="make one of it")
        columns = None if on is None else tuple(on) if isinstance(on, Sequence) and not isinstance(on, str) else (on,)
        if columns is not None and (missing := [name for name in columns if name not in df._meta.columns]):
            raise InvalidArgument(
                f"the DataFrame has no column {missing[0]!r}", remedy=f"its columns are {list(df._meta.columns)}"
            )
        chosen = cls(columns, ())._chosen(df._meta)
        return cls(columns, tuple(name for name, dtype in chosen.dtypes.items() if _is_number(dtype)))

    def partitions_of(self, frame: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        """The partition of each row."""
        keys = self._chosen(frame)
        if self.numbers:
            keys = keys.astype(dict.fromkeys(self.numbers, np.float64), errors="ignore")
        found: npt.NDArray[np.integer[Any]] = np.asarray(partitioning_index(keys, partitions)).astype(np.int32)  # type: ignore[no-untyped-call]
        return found

    def _chosen(self, frame: Any) -> Any:
        return frame.index.to_frame(name="_index") if self.columns is None else frame[list(self.columns)]


def _is_number(dtype: Any) -> bool:
    kind = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    return bool(pd.api.types.is_numeric_dtype(kind))


@dataclass(frozen=True)
class _Job:
    """A shuffle, as its tasks have it."""

    registered: ShuffleHandle
    plugin: str
    options: Options
    meta: Any
    keys: _Keys
    ignore_index: bool

    @cached_property
    def codec(self) -> FrameCodec:
        return FrameCodec(self.meta, index=not self.ignore_index)

    @cached_property
    def handle(self) -> ShuffleHandle:
        return self.registered.with_schema(self.codec.schema)


@dataclass(frozen=True)
class _Given:
    """A partitioner for rows whose partitions are known."""

    numbers: npt.NDArray[np.integer[Any]]

    def partitions_of(self, batch: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        return self.numbers


def _write(frame: Any, number: int, job: _Job) -> int:
    """Write an input partition as a map output, as an attempt of its own: dask runs a task again as it likes."""
    with opened(job.plugin, job.options).writer(job.handle, new_attempt(number)) as writer:
        assert isinstance(writer, SupportsWriteBatch)
        if len(frame):
            partitions = job.keys.partitions_of(frame, job.handle.spec.partitions)
            writer.write_batch(job.codec.encode(frame), _Given(partitions))
        writer.commit()
    return number


def _all_written(numbers: list[int]) -> int:
    return len(numbers)


def _read(written: int, partition: int, job: _Job) -> Any:
    """Read an output partition."""
    with opened(job.plugin, job.options).reader(job.handle, range(partition, partition + 1)) as reader:
        assert isinstance(reader, SupportsReadBatches)
        return job.codec.decode(read_table(reader, job.handle))
