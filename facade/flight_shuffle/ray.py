"""Shuffle datasets of Ray Data through a Flight Shuffle server: needs the extra `ray`.

    from flight_shuffle.ray import RayShuffles
    with RayShuffles("host:port") as shuffles:
        sums = shuffles.aggregate(dataset, "country", [("sold", "sum")])

Each block of a dataset is written as a map output by a Ray task, and freed; datasets that come back read a partition at
a time. So what is shuffled lies at the server and not in the object store, which may be smaller. Rows of a partition
that is aggregated, grouped or shuffled at random must fit in a task's memory; sorting merges sorted runs and spills.
Ray repeats the tasks of a worker that dies; the first commit of a map counts. Keys are hashed as `HashPartitioner`
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.data import Dataset, Datasource, ReadTask
from ray.data.block import BlockAccessor, BlockMetadata

from flight_shuffle._tables import Aggregated, Grouped, Hashed, Shuffled, Sorted, TableShuffle, Way
from flight_shuffle._tasks import ShuffleSession
from shuffle_api.columnar import Order, sample_bounds
from shuffle_api.columnar.partitioners import SAMPLE_PER_PARTITION
from shuffle_api.errors import InvalidArgument
from shuffle_api.interfaces import OptionValue

MOST_MAPS = 1 << 20
"""Blocks of a dataset: how many there are is known when all have been written."""
UNDER_WAY = 2
"""Map tasks for each processor: of which one runs while the arguments of the other are fetched."""


class RayShuffles(ShuffleSession):
    """The driver's side: shuffles whose data is at the server until this is closed. A context manager.

    The datasets that its methods return are read when they are used, as often as they are used, until then. A method
    returns when the rows of its dataset have been written.

    :param server: `HOST:PORT` of the control endpoint; None: as the environment says (docs/options.md).
    :param plugin: the plugin's name: `remote`, or one whose data stays to be read again.
    :param options: further options of the plugin, at the driver and in tasks. They travel to tasks: give credentials by
        the environment of driver and workers.
    """

    def __init__(self, server: str | None = None, *, plugin: str = "remote", **options: OptionValue) -> None:
        super().__init__(server, plugin, options, "ray", "Ray Data")

    def shuffle(self, dataset: Dataset, on: str | Sequence[str], num_partitions: int | None = None) -> Dataset:
        """The rows of a dataset in partitions, rows with equal keys in one.

        :raises ShuffleError: as all methods: the server cannot be reached or refuses; rows cannot be shuffled.
        """
        return self._shuffled(dataset, Hashed(_names(on)), num_partitions)

    def aggregate(
        self, dataset: Dataset, on: str | Sequence[str], aggregations: Sequence[Any], num_partitions: int | None = None
    ) -> Dataset:
        """One row for each key. `aggregations` and the names of columns are those of `pyarrow.TableGroupBy`."""
        columns = _names(on)
        return self._shuffled(dataset, Hashed(columns, Aggregated(columns, tuple(aggregations))), num_partitions)

    def map_groups(
        self,
        dataset: Dataset,
        on: str | Sequence[str],
        function: Callable[[pa.Table], pa.Table],
        num_partitions: int | None = None,
    ) -> Dataset:
        """What `function` makes of the rows of each key, a table; it must be one that Ray can send to a task."""
        columns = _names(on)
        return self._shuffled(dataset, Hashed(columns, Grouped(columns, function)), num_partitions)

    def sort(
        self, dataset: Dataset, key: str | Sequence[str], descending: bool = False, num_partitions: int | None = None
    ) -> Dataset:
        """The rows in the order of `key`; NaN and then null come last.

        The dataset is materialized first, as its rows are needed twice: to see how keys are distributed.
        """
        order = Order(tuple((name, "descending" if descending else "ascending") for name in _names(key)))
        dataset = dataset.materialize()
        count = num_partitions or _partitions(dataset)
        per_block = -(-SAMPLE_PER_PARTITION * count // max(1, dataset.num_blocks()))
        samples = ray.get([_sample.remote(block, order, per_block) for block in _blocks(dataset)])
        bounds = sample_bounds((batch for table in samples for batch in table.to_batches()), order, count)
        ordered = self._shuffled(dataset, Sorted(order, bounds), count)
        ordered.context.execution_options.preserve_order = True
        return ordered

    def random_shuffle(self, dataset: Dataset, seed: int, num_partitions: int | None = None) -> Dataset:
        """The rows in any order, the same for the same blocks and `seed`."""
        shuffled = self._shuffled(dataset, Shuffled(seed), num_partitions)
        shuffled.context.execution_options.preserve_order = True
        return shuffled

    def _shuffled(self, dataset: Dataset, way: Way, num_partitions: int | None) -> Dataset:
        partitions = num_partitions or _partitions(dataset)
        handle = self.master.register_shuffle(partitions, MOST_MAPS)
        shuffle = TableShuffle(handle, self._name, self._options, way)
        maps = _written(dataset, shuffle)
        size = sum(output.totals.raw_bytes for output in self.master.map_outputs(handle))
        source = _Partitions(shuffle, maps, size)
        return ray.data.read_datasource(source, override_num_blocks=partitions)


def _written(dataset: Dataset, shuffle: TableShuffle) -> int:
    """Write each block as it comes; how many there were."""
    most = max(1, int(ray.cluster_resources().get("CPU", 1))) * UNDER_WAY
    running: list[Any] = []
    number = 0
    for block in _blocks(dataset):
        if len(running) >= most:
            done, running = ray.wait(running, num_returns=1, fetch_local=False)
            ray.get(done)
        running.append(_write.remote(block, number, shuffle))
        del block  # it is freed when its task has run
        number += 1
    ray.get(running)
    return number


def _blocks(dataset: Dataset) -> Iterator[Any]:
    for bundle in dataset.iter_internal_ref_bundles():
        yield from bundle.block_refs


@ray.remote
def _write(block: Any, number: int, shuffle: TableShuffle) -> int:
    return shuffle.write(BlockAccessor.for_block(block).to_arrow(), number)


@ray.remote
def _sample(block: Any, order: Order, rows: int) -> Any:
    table = BlockAccessor.for_block(block).to_arrow().select(list(order.columns))
    step = max(1, -(-table.num_rows // rows))
    return table.take(list(range(0, table.num_rows, step)))


class _Partitions(Datasource):
    """Reads a task for each partition."""

    def __init__(self, shuffle: TableShuffle, maps: int, size: int) -> None:
        super().__init__()
        self._shuffle, self._maps, self._size = shuffle, maps, size

    def get_name(self) -> str:
        return "FlightShuffle"

    def estimate_inmemory_data_size(self) -> int:
        return self._size

    def get_read_tasks(self, parallelism: int, *given: Any, **named: Any) -> list[ReadTask]:
        partitions = self._shuffle.handle.spec.partitions
        known = BlockMetadata(num_rows=None, size_bytes=self._size // partitions, input_files=None, exec_stats=None)
        return [ReadTask(partial(self._shuffle.read, partition, self._maps), known) for partition in range(partitions)]


def _partitions(dataset: Dataset) -> int:
    """As many as the dataset has blocks; for one of which that is not known, as Ray's own shuffles."""
    try:
        return max(1, int(dataset.num_blocks()))
    except NotImplementedError:
        return int(ray.data.DataContext.get_current().default_hash_shuffle_parallelism)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names:
        raise InvalidArgument("a shuffle by no column", remedy="name one column or more")
    return names
