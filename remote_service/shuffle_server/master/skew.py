"""The sizes of a shuffle's partitions, over all workers: to see at a glance whether one of them is much too large."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.state import Registry
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.master import Master
from shuffle_server.observe.figures import Skew, asking
from shuffle_server.store.partition_sizes import PartitionSizes

MOST_OUTPUTS = 1000  # map outputs that are asked about for one answer; a shuffle with more is sampled
MOST_PARTITIONS = 1_000_000  # of a shuffle that is answered for: eight bytes each, from every worker
WORKERS_AT_ONCE = 8
WORKER_SECONDS = 3.0
ALL_SECONDS = 10.0  # after which no further worker is asked
FRESH_SECONDS = 5.0
KEPT = 8  # shuffles whose last answer is kept


class Skews:
    """Answers for one shuffle after the other: however many ask, the workers are asked once in FRESH_SECONDS."""

    def __init__(self, master: Master, cluster: Cluster) -> None:
        self._master, self._cluster = master, cluster
        self._lock = threading.Lock()
        self._kept: OrderedDict[ShuffleId, tuple[float, Skew]] = OrderedDict()

    def of(self, app: str, number: int) -> Skew:
        """Of the shuffle with this number. Raises UnknownShuffle, AppExpired, DeadlineExceeded."""
        with asking(self._master) as registry:
            spec = registry.spec(ShuffleId(app, number))
            summary = registry.summary(spec.id)
            outputs = _sample(registry, spec)
        with self._lock:
            until, skew = self._kept.get(spec.id, (0.0, None))
            if skew is None or until < time.monotonic():
                skew = self._ask(spec, outputs, 0 if summary is None else summary.committed)
                self._kept[spec.id] = time.monotonic() + FRESH_SECONDS, skew
                self._kept.move_to_end(spec.id)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            return skew

    def _ask(self, spec: ShuffleSpec, outputs: Sequence[MapOutput], committed: int) -> Skew:
        if spec.partitions > MOST_PARTITIONS:
            return Skew(committed, 0, spec.partitions, np.zeros(0, np.int64))
        at: defaultdict[str, list[MapAttempt]] = defaultdict(list)
        for each in outputs:
            at[each.worker].append(each.output)
        sizes, found, until = np.zeros(spec.partitions, np.int64), 0, time.monotonic() + ALL_SECONDS

        def ask(worker: str) -> PartitionSizes | None:
            if time.monotonic() > until:
                return None
            return self._cluster.partition_sizes(worker, spec.id, at[worker], spec.partitions, WORKER_SECONDS)

        with ThreadPoolExecutor(WORKERS_AT_ONCE, "skew") as pool:
            for part in filter(None, pool.map(ask, at)):
                sizes += part.bytes
                found += part.outputs
        return Skew(committed, found, spec.partitions, sizes)


def _sample(registry: Registry, spec: ShuffleSpec) -> list[MapOutput]:
    """The committed ones of at most MOST_OUTPUTS maps, evenly spread: the registry is locked meanwhile."""
    if spec.maps <= MOST_OUTPUTS:
        return registry.located(spec.id)[0]
    maps = range(0, spec.maps, -(-spec.maps // MOST_OUTPUTS))
    return [output for each in maps for output in registry.located(spec.id, each, each + 1)[0]]
