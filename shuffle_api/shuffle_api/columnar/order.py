"""An order of rows: by which columns, up or down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shuffle_api.columnar.arrays import decoded, fixed_width, with_columns
from shuffle_api.columnar.hashing import key_column
from shuffle_api.errors import InvalidArgument

Direction: TypeAlias = Literal["ascending", "descending"]


@dataclass(frozen=True, slots=True)
class Order:
    """Rows by `keys`, the first one first: (column, direction). In either direction NaN and then null come last.

    `Order.by("country", ("population", "descending"))` reads better.

    :raises InvalidArgument: no keys, a key twice, or no such direction.
    """

    keys: tuple[tuple[str, Direction], ...]

    @classmethod
    def by(cls, *keys: str | tuple[str, Direction]) -> Order:
        """An order of columns, which are ascending unless told otherwise."""
        return cls(tuple((key, "ascending") if isinstance(key, str) else key for key in keys))

    def __post_init__(self) -> None:
        names = self.columns
        if not names or len(set(names)) != len(names):
            raise InvalidArgument(f"an order by {names!r}", remedy="name one column or more, each once")
        for name, direction in self.keys:
            if direction not in ("ascending", "descending"):
                raise InvalidArgument(
                    f"column {name!r} in direction {direction!r}", remedy="write 'ascending' or 'descending'"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, the first one first."""
        return tuple(name for name, _ in self.keys)

    def keys_of(self, batch: Any) -> Any:
        """The key columns of a batch, as a batch.

        :raises InvalidArgument: one is missing, there more than once, or of a type without an order.
        """
        plain = [_plain(key_column(batch, name), name) for name in self.columns]
        fields = [pa.field(name, column.type) for name, column in zip(self.columns, plain, strict=True)]
        return with_columns(plain, pa.schema(fields), batch.num_rows)

    def sorted_rows(self, keys: Any) -> npt.NDArray[np.int64]:
        """The numbers of the rows of `keys` (see `keys_of`) in this order; rows with equal keys keep theirs.

        :raises InvalidArgument: Arrow cannot sort a column's type.
        """
        try:
            order = pc.sort_indices(keys, sort_keys=list(self.keys))  # nulls last is the default
        except pa.ArrowNotImplementedError as error:
            types = ", ".join(f"{field.name}: {field.type}" for field in keys.schema)
            raise InvalidArgument(f"no order by ({types}): {error}", remedy="order by other columns") from None
        return fixed_width(order, "<i8")


def _plain(column: Any, name: str) -> Any:
    """The values of a key column, of a type that Arrow sorts if it can be sorted at all."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _plain(column.storage, name)
    if pa.types.is_dictionary(column.type):
        return _plain(decoded(column), name)
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if pa.types.is_nested(column.type):
        raise InvalidArgument(
            f"column {name!r} of type {column.type} has no order", remedy="order by its fields, as columns"
        )
    return column
