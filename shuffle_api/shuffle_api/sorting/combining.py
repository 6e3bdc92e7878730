"""One row per key: what a combiner makes of sorted batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shuffle_api.columnar.arrays import taken
from shuffle_api.columnar.order import Order
from shuffle_api.errors import InvalidArgument

FUNCTIONS = ("sum", "product", "min", "max", "any", "all", "first", "last")
"""What a column may be combined by: functions that may be applied again to their own results."""


@dataclass(frozen=True, slots=True, init=False)
class Combiner:
    """Combines rows with equal keys, column by column: `Combiner(sold="sum", price="max")`.

    The keys are the columns of the order, compared by their stored values: 0.0 and -0.0 stay two rows.

    :raises InvalidArgument: no columns, or a function that is not among FUNCTIONS.
    """

    columns: Mapping[str, str]

    def __init__(self, **columns: str) -> None:
        for name, function in columns.items():
            if function not in FUNCTIONS:
                raise InvalidArgument(
                    f"column {name!r} combined by {function!r}", remedy=f"use one of: {', '.join(FUNCTIONS)}"
                )
        object.__setattr__(self, "columns", columns)

    def check(self, schema: Any, order: Order) -> None:
        """:raises InvalidArgument: a column has neither a key nor a function, or the function changes its type."""
        names = {*order.columns, *self.columns}
        if set(schema.names) != names or len(schema.names) != len(names) or set(order.columns) & set(self.columns):
            raise InvalidArgument(
                f"columns {', '.join(schema.names)}; keys {', '.join(order.columns)}; "
                f"combined {', '.join(self.columns)}",
                remedy="every column is either a key of the order or has a function, not both",
            )
        try:
            after = self._grouped(schema.empty_table(), order)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
            raise InvalidArgument(f"these columns cannot be combined: {error}", remedy="cast them first") from None
        for field, column in zip(schema, after, strict=True):
            if field.type != column.type:
                raise InvalidArgument(
                    f"the {self.columns[field.name]} of column {field.name!r} is of type {column.type}, the column of "
                    f"type {field.type}",
                    remedy=f"cast the column to {column.type} first",
                )

    def combine(self, batch: Any, order: Order) -> Any:
        """A sorted batch with one row per key, in the same order and with the same schema."""
        if batch.num_rows < 2:
            return batch
        columns = self._grouped(pa.Table.from_batches([batch]), order)
        combined = pa.RecordBatch.from_arrays([column.combine_chunks() for column in columns], schema=batch.schema)
        return taken(combined, order.sorted_rows(order.keys_of(combined)))  # groups come in no order one may rely on

    def _grouped(self, table: Any, order: Order) -> list[Any]:
        """The columns, one row per key."""
        # Columns go by their numbers: names of results cannot meet names of columns then.
        numbers = {name: str(number) for number, name in enumerate(table.schema.names)}
        functions = [(numbers[name], function) for name, function in self.columns.items()]
        # One thread: what `first` and `last` are then follows the order of the rows.
        groups = table.rename_columns(list(numbers.values())).group_by(
            [numbers[name] for name in order.columns], use_threads=False
        )
        result = groups.aggregate(functions)
        return [
            result.column(f"{number}_{self.columns[name]}" if name in self.columns else number)
            for name, number in numbers.items()
        ]


def last_group(batch: Any, order: Order) -> int:
    """Where the rows with the key of the last row begin in a sorted batch: more of that key may still come."""
    keys = order.keys_of(batch)
    last = keys.slice(keys.num_rows - 1)
    # Sorted together with its last row put first, the rows that equal it come after that one.
    rows = order.sorted_rows(pa.concat_batches([last, keys]))
    return int(np.flatnonzero(rows == 0)[0])
