"""Pandas frames as Arrow batches of one schema, and back with the dtypes of dask's meta.

Columns, and levels of the index, go by their place: names in pandas are anything, and may be there twice. What Arrow
has no type for goes as pickled values: objects, complex numbers, and categories, of which there are few.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from shuffle_api.errors import InvalidArgument

_OF_NUMPY = "biufmM"  # kinds of numpy's types that Arrow has too


class FrameCodec:
    """Frames like `meta`, a frame without rows.

    :param index: whether the index travels; else the rows have a new one.
    :ivar schema: of the batches.
    :raises InvalidArgument: `meta` is no DataFrame.
    """

    def __init__(self, meta: Any, *, index: bool) -> None:
        if not isinstance(meta, pd.DataFrame):
            raise InvalidArgument(f"a {type(meta).__name__} cannot be shuffled", remedy="make a DataFrame of it")
        self._meta, self._index = meta, index
        self._dtypes = [series.dtype for series in self._series(meta)]
        columns = [_encoded(series, dtype) for series, dtype in zip(self._series(meta), self._dtypes, strict=True)]
        self.schema = pa.schema([pa.field(str(place), column.type) for place, column in enumerate(columns)])

    def encode(self, frame: Any) -> Any:
        """A RecordBatch of `schema` with the rows of a frame.

        :raises InvalidArgument: the frame has other columns than meta, or one that does not fit the dtype that meta has
            for it.
        """
        if list(frame.columns) != list(self._meta.columns):
            raise InvalidArgument(
                f"a partition has the columns {list(frame.columns)}, dask's meta has {list(self._meta.columns)}",
                remedy="correct the meta of the dask DataFrame",
            )
        columns = []
        for place, (series, dtype) in enumerate(zip(self._series(frame), self._dtypes, strict=True)):
            try:
                columns.append(_encoded(series, dtype))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise InvalidArgument(
                    f"column {self._name(place)!r} is not of dtype {dtype}, which dask's meta has for it: {error}",
                    remedy="correct the meta of the dask DataFrame, or cast the column with astype",
                ) from error
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.nulls(len(frame), pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def decode(self, table: Any) -> Any:
        """The frame of a table of `schema`."""
        columns = [_decoded(table.column(place), dtype) for place, dtype in enumerate(self._dtypes)]
        width = self._meta.shape[1]
        rows = pd.RangeIndex(table.num_rows)
        if not self._index:
            index: Any = rows
        elif isinstance(self._meta.index, pd.MultiIndex):
            index = pd.MultiIndex.from_arrays(columns[width:], names=self._meta.index.names)
        else:
            index = pd.Index(columns[width], dtype=self._dtypes[width], name=self._meta.index.name)
        frame = pd.DataFrame({place: pd.Series(columns[place], index=rows) for place in range(width)}, index=rows)
        frame.columns, frame.index = self._meta.columns, index
        return frame

    def _series(self, frame: Any) -> list[Any]:
        """The columns, then the levels of the index."""
        columns = [frame.iloc[:, place] for place in range(self._meta.shape[1])]
        if not self._index:
            return columns
        return columns + [
            frame.index.get_level_values(level).to_series(index=range(len(frame)))
            for level in range(self._meta.index.nlevels)
        ]

    def _name(self, place: int) -> object:
        width = self._meta.shape[1]
        return self._meta.columns[place] if place < width else self._meta.index.names[place - width] or "index"


def _encoded(series: Any, dtype: Any) -> Any:
    """A column as an Arrow array, whose type depends on `dtype` alone."""
    if isinstance(dtype, pd.CategoricalDtype):
        values = series.array if isinstance(series.dtype, pd.CategoricalDtype) else pd.Categorical(series, dtype=dtype)
        codes = np.asarray(values.codes, np.int32)
        numbers = pa.array(codes, mask=codes < 0)
        return pa.DictionaryArray.from_arrays(numbers, _pickled(values.categories), ordered=bool(dtype.ordered))
    if isinstance(dtype, np.dtype) and dtype.kind in "iu" and series.hasnans:
        return pa.array(series.to_numpy(), pa.from_numpy_dtype(dtype), from_pandas=True)  # as a join leaves numbers
    if series.dtype != dtype:
        series = series.astype(dtype)
    if isinstance(dtype, np.dtype):
        return pa.array(series.to_numpy(), from_pandas=False) if dtype.kind in _OF_NUMPY else _pickled(series)
    if not hasattr(dtype, "__from_arrow__"):
        return _pickled(series)
    array = pa.array(series)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _pickled(values: Any) -> Any:
    return pa.array([pickle.dumps(value, protocol=5) for value in values], pa.large_binary())


def _decoded(column: Any, dtype: Any) -> Any:
    """The values of a column as something of that dtype."""
    if isinstance(dtype, pd.CategoricalDtype):
        return _categorical(column, dtype)
    if isinstance(dtype, np.dtype):
        if dtype.kind in "iu" and column.null_count:
            return column.to_numpy()  # of floats, with NaN
        if dtype.kind in _OF_NUMPY:
            return column.to_numpy().astype(dtype, copy=False)
        values = np.empty(len(column), object)
        values[:] = [pickle.loads(value) for value in column.to_pylist()]
        return values if dtype.hasobject else values.astype(dtype)
    if not hasattr(dtype, "__from_arrow__"):
        return pd.array([pickle.loads(value) for value in column.to_pylist()], dtype=dtype)
    return dtype.__from_arrow__(column)


def _categorical(column: Any, dtype: Any) -> Any:
    """Categories that meta has; those that dask does not know are the ones that occur, in the order they come."""
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), [b""])
    found = [pickle.loads(value) for value in whole.dictionary.to_pylist()]
    codes = np.asarray(whole.indices.fill_null(-1).to_numpy(), np.int64)
    if _unknown(dtype):
        return pd.Categorical.from_codes(codes, categories=found, ordered=bool(dtype.ordered))
    places = np.append(dtype.categories.get_indexer(pd.Index(found, dtype=dtype.categories.dtype)), -1)
    return pd.Categorical.from_codes(places[codes], dtype=dtype)


def _unknown(dtype: Any) -> bool:
    """Dask's mark for categories that only the partitions know."""
    from dask.dataframe.utils import UNKNOWN_CATEGORIES

    return UNKNOWN_CATEGORIES in dtype.categories
