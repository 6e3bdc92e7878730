"""`flight_shuffle.ray` on a Ray of this machine: run by scripts/ray-tests, not by pytest on its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

from bench.harness.server import ServerProcess
from flight_shuffle.ray import RayShuffles

MIB = 1 << 20
ROWS, BLOCKS = 1200, 6
TABLE = pa.table({"k": [f"k{n % 7}" for n in range(ROWS)], "n": range(ROWS)})
STORE_BYTES = 80 * MIB
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def shuffles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayShuffles]:
    root: Path = tmp_path_factory.mktemp("server")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=STORE_BYTES)
    try:
        with ServerProcess(root / "data", root / "log") as process, RayShuffles(process.control) as found:
            yield found
    finally:
        ray.shutdown()


@pytest.fixture(scope="module")
def dataset(shuffles: RayShuffles) -> Any:
    size = ROWS // BLOCKS
    return ray.data.from_arrow([TABLE.slice(first, size) for first in range(0, ROWS, size)])


def numbers(found: Any) -> list[int]:
    return [row["n"] for row in found.take_all()]


def test_rows_with_equal_keys_meet(shuffles: RayShuffles, dataset: Any) -> None:
    found = shuffles.shuffle(dataset, "k", 3)
    assert sorted(numbers(found)) == list(range(ROWS))
    parts = [set(batch["k"]) for batch in found.iter_batches(batch_size=None)]
    assert set().union(*parts) == {f"k{n}" for n in range(7)}
    assert sorted(numbers(found)) == list(range(ROWS))  # it can be read again


def test_one_row_for_each_key(shuffles: RayShuffles, dataset: Any) -> None:
    found = shuffles.aggregate(dataset, "k", [("n", "sum")], 3).take_all()
    assert {row["k"]: row["n_sum"] for row in found} == {f"k{r}": sum(range(r, ROWS, 7)) for r in range(7)}


def test_groups(shuffles: RayShuffles, dataset: Any) -> None:
    found = shuffles.map_groups(dataset, "k", lambda table: table.slice(0, 1), 3).take_all()
    assert sorted(row["k"] for row in found) == [f"k{n}" for n in range(7)]


@pytest.mark.parametrize("descending", [False, True])
def test_sorted(shuffles: RayShuffles, dataset: Any, descending: bool) -> None:
    shuffled = shuffles.random_shuffle(dataset, 1)
    assert numbers(shuffles.sort(shuffled, "n", descending, 4)) == sorted(range(ROWS), reverse=descending)


def test_random(shuffles: RayShuffles, dataset: Any) -> None:
    first, again = (numbers(shuffles.random_shuffle(dataset, 7)) for _ in range(2))
    assert first == again != list(range(ROWS))
    assert sorted(first) == list(range(ROWS))


def grown(batch: Any) -> Any:
    n = np.arange(int(batch["id"][0]) * 1000, (int(batch["id"][0]) + 1) * 1000)
    return pa.table({"n": n, "text": pa.array([f"{i:08d}" * 1024 for i in n])})  # 8 MiB


def test_a_dataset_larger_than_the_object_store(shuffles: RayShuffles) -> None:
    blocks = 2 * STORE_BYTES // (8 * MIB)
    large = ray.data.range(blocks, override_num_blocks=blocks).map_batches(grown, batch_size=1)
    found = shuffles.shuffle(large, "n", 16)
    rows = sum(len(batch["n"]) for batch in found.iter_batches(batch_size=None))
    assert rows == blocks * 1000


def dies_once(batch: Any, marker: str) -> Any:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    return batch


def test_a_worker_that_dies_costs_its_task_alone(shuffles: RayShuffles, dataset: Any, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")
    found = shuffles.map_groups(dataset, "k", lambda table: dies_once(table, marker), 3)
    assert sorted(numbers(found)) == list(range(ROWS))
