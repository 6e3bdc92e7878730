"""One schema per shuffle: the one that its driver declared, or that of the first batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shuffle_api.errors import InvalidArgument
from shuffle_api.values import DeclaredShuffleSpec, ShuffleSpec


def declared_schema(spec: ShuffleSpec) -> Any:
    """The schema that the driver declared (`ShuffleHandle.with_schema`); None if it declared none."""
    return pa.ipc.read_schema(pa.py_buffer(spec.schema)) if isinstance(spec, DeclaredShuffleSpec) else None


def check_same_schema(first: Any, later: Any, spec: ShuffleSpec) -> None:
    """:raises InvalidArgument: the schemas differ (metadata aside); the message says in what."""
    if first.equals(later):
        return
    had, has = (_fields(schema) for schema in (first, later))
    gone, new = ([name for name in one if name not in other] for one, other in ((had, has), (has, had)))
    what = "the same columns in another order"
    if gone or new:
        what = f"gone: {', '.join(gone) or 'nothing'}; new: {', '.join(new) or 'nothing'}"
    if isinstance(spec, DeclaredShuffleSpec):
        raise InvalidArgument(
            f"a batch has not the schema that the shuffle's driver declared ({what})",
            remedy="cast it to that, or declare another one (ShuffleHandle.with_schema)",
            shuffle=spec.id,
        )
    raise InvalidArgument(
        f"the schema changes from one batch to the next ({what})",
        remedy="cast all batches of a shuffle to one schema",
        shuffle=spec.id,
    )


def _fields(schema: Any) -> list[str]:
    return [f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema]
