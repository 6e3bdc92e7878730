"""Uploads to an object store in the memory that Arrow has for what it expands."""

from __future__ import annotations

from pathlib import Path

from shuffle_server.expansion import POOL, PREFIX, TIER_BOUND
from tests.processes import run_apart
from tests.shuffle_server.test_object_store import s3

__all__ = ["s3"]  # a fixture

UPLOAD = """
from pathlib import Path
from shuffle_server import expansion
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.object_store import ObjectStore
expansion.keep_apart()
assert expansion.is_bounded()
tier, file, output = ObjectStore({uri!r}, "w-1"), Path({file!r}), (ShuffleId("app", 3, 1), MapAttempt(0, 0))
with file.open("wb") as written:
    written.truncate({size})
tier.put(*output, file)
assert tier.get(*output, file.with_suffix(".back"))
assert file.with_suffix(".back").stat().st_size == {size}
"""


def test_an_output_larger_than_the_largest_object_moves_and_comes_back(s3: str, tmp_path: Path) -> None:
    program = UPLOAD.format(uri=s3, file=str(tmp_path / "file"), size=64 << 20)
    run_apart(program, POOL, PREFIX, **TIER_BOUND)
