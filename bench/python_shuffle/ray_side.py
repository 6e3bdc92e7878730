"""The Ray Data side of `bench.python_shuffle`: its own hash shuffle of a dataset.

Ray is not among the packages of the tests: `scripts/ray-tests` installs it below build/ray, for PYTHONPATH.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from ray.data.context import DataContext, ShuffleStrategy

from bench.python_shuffle.tasks import FrameSide, files_of, table_of

STORE_BYTES = 4 << 30  # holds the shuffle


class RaySide(FrameSide):
    """A Ray of this machine with `workers` processors. It starts and ends processes as it likes."""

    def __init__(self, *, workers: int) -> None:
        super().__init__()
        ray.init(num_cpus=workers, include_dashboard=False, object_store_memory=STORE_BYTES, logging_level="ERROR")
        self.callback(ray.shutdown)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = DataContext.get_current()
        context.shuffle_strategy = ShuffleStrategy.HASH_SHUFFLE
        context.enable_progress_bars = False

    def each(self, directory: Path, partitions: int, function: Callable[[Any], Any]) -> list[Any]:
        files = [{"file": str(file)} for file in files_of(directory)]
        read = ray.data.from_items(files, override_num_blocks=len(files)).map_batches(_read, batch_size=None)
        shuffled = read.repartition(partitions, keys=["k"])
        found = shuffled.map_batches(partial(_apply, function), batch_size=None, batch_format="pyarrow")
        return [pickle.loads(row["result"]) for row in found.take_all()]


def _read(rows: Any) -> Iterator[Any]:
    for name in rows["file"]:
        yield table_of(Path(name))


def _apply(function: Callable[[Any], Any], table: Any) -> Any:
    return pa.table({"result": [pickle.dumps(function(table))]})
