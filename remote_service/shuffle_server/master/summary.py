"""Runs, shuffles, outputs and partition sizes in numbers or in pages, gathered a few at a time: nobody waits for it.

What changes between two looks shows in the later ones only, so a page may lack what moved to an earlier one, or repeat
what moved to a later one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId, name_of
from shuffle_api.registry.apps import AppRecord
from shuffle_api.registry.state import Registry, ShuffleSummary
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.master import Master
from shuffle_server.observe.figures import Skew, asking
from shuffle_server.store.partition_sizes import PartitionSizes
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PAGE = 1000  # runs and shuffles in a reply of Status, where the request does not say
MAX_PAGE = 10_000
AT_ONCE = 100  # runs or shuffles that are looked at while nobody else may
MOST_OUTPUTS = 1000  # map outputs that are asked about for one answer; a shuffle with more is sampled
MOST_PARTITIONS = 1_000_000  # of a shuffle that is answered for: eight bytes each, from every worker
WORKERS_AT_ONCE = 8
WORKER_SECONDS = 3.0
ALL_SECONDS = 10.0  # after which no further worker is asked
FRESH_SECONDS = 5.0
KEPT = 8  # shuffles whose last answer is kept


def summary(master: Master, request: pb.StatusRequest) -> tuple[list[pb.AppStatus], list[pb.ShuffleStatus], int]:
    """A page of the runs and their shuffles, of all or of those of one application or one run (`request.app`), and the
    number that the next page begins with, 0 after the last. Each run is followed by its shuffles; all are counted.
    """
    limit = min(request.limit or PAGE, MAX_PAGE)
    if limit < 0 or request.first < 0:
        raise InvalidArgument("a page of Status with a size or number below 0", remedy="ask for numbers from 0 on")
    apps: list[pb.AppStatus] = []
    ids: list[ShuffleId] = []
    begin, end = request.first, request.first + limit
    at = 0  # number of the next run
    for record, shuffles, size in _runs(master, request.app):
        if at >= end:
            break
        if at >= begin:
            apps.append(_app(master, record, shuffles, size))
        if shuffles and at + 1 + shuffles > begin:
            ids += _some(master, record.app, max(0, begin - at - 1), end - at - 1)
        at += 1 + shuffles
    else:
        end = 0 if at <= end else end
    return apps, [_shuffle(each) for each in _summaries(master, ids)], end


def _runs(master: Master, only: str) -> Iterator[tuple[AppRecord, int, int]]:
    """The runs that are asked for, with the number of their shuffles and their payload."""
    with master.lock:
        records = master.registry.apps()
    wanted = [record for record in records if not only or only in (record.app, name_of(record.app))]
    for at in range(0, len(wanted), AT_ONCE):
        with master.lock:
            sizes = [master.registry.run_size(record.app) for record in wanted[at : at + AT_ONCE]]
        for record, (shuffles, size) in zip(wanted[at : at + AT_ONCE], sizes, strict=True):
            yield record, shuffles, size


def _some(master: Master, app: str, first: int, end: int) -> list[ShuffleId]:
    with master.lock:
        return list(islice(master.registry.shuffle_ids(app), first, end))


def _summaries(master: Master, ids: Sequence[ShuffleId]) -> Iterator[ShuffleSummary]:
    for at in range(0, len(ids), AT_ONCE):
        with master.lock:
            found = [master.registry.summary(id) for id in ids[at : at + AT_ONCE]]
        yield from (each for each in found if each is not None)


def _app(master: Master, record: AppRecord, shuffles: int, size: int) -> pb.AppStatus:
    return pb.AppStatus(
        app=record.app,
        name=record.name,
        idle_seconds=master.idle(record.app),
        shuffles=shuffles,
        bytes=size,
        driver=master.driver(record.app),
    )


def _shuffle(summary: ShuffleSummary) -> pb.ShuffleStatus:
    spec, totals = summary.spec, summary.totals
    # Parts given as dicts take half the time of messages, and there may be tens of thousands of shuffles.
    return pb.ShuffleStatus(
        shuffle={"app": spec.id.app, "shuffle": spec.id.shuffle, "generation": spec.id.generation},
        partitions=spec.partitions,
        maps=spec.maps,
        committed=summary.committed,
        totals={
            "blocks": totals.blocks,
            "bytes": totals.bytes,
            "raw_bytes": totals.raw_bytes,
            "records": totals.records,
        },
        replicas=spec.replicas,
        degraded=summary.degraded,
    )


def unregistered(master: Master, ids: Iterable[ShuffleId]) -> Iterator[ShuffleId]:
    """Those of the shuffles that are not registered."""
    rest = iter(ids)
    while some := list(islice(rest, AT_ONCE)):
        with master.lock:
            gone = [id for id in some if not master.registry.is_registered(id)]
        yield from gone


def held_page(master: Master, worker: str, first: int, limit: int) -> list[tuple[ShuffleId, MapOutput]]:
    """Up to `limit` of the committed outputs that lie at a worker, from number `first` on."""
    with master.lock:
        ids = master.registry.shuffles_at(worker)
    found: list[tuple[ShuffleId, MapOutput]] = []
    for at in range(0, len(ids), AT_ONCE):
        if len(found) == limit:
            break
        with master.lock:
            for id in ids[at : at + AT_ONCE]:
                number = master.registry.count_in(id, worker)
                if first < number:
                    found += [(id, output) for output in master.registry.held_in(id, worker, first, limit - len(found))]
                first = max(0, first - number)
    return found


class Skews:
    """The sizes of a shuffle's partitions, over all workers: to see at a glance whether one is much too large.

    Answers for one shuffle after the other: however many ask, the workers are asked once in FRESH_SECONDS.
    """

    def __init__(self, master: Master, cluster: Cluster) -> None:
        self._master, self._cluster = master, cluster
        self._lock = threading.Lock()
        self._kept: OrderedDict[ShuffleId, tuple[float, Skew]] = OrderedDict()

    def of(self, app: str, number: int) -> Skew:
        """Of the shuffle with this number of a run, or of the newest run of an application of this name.

        :raises: UnknownShuffle, AppExpired, DeadlineExceeded.
        """
        with asking(self._master) as registry:
            spec = registry.spec(ShuffleId(_newest_run(registry, app), number))
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
            return Skew(spec.id.app, committed, 0, spec.partitions, np.zeros(0, np.int64))
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
        return Skew(spec.id.app, committed, found, spec.partitions, sizes)


def _newest_run(registry: Registry, app: str) -> str:
    if registry.has_app(app) or not registry.runs_of(app):
        return app
    return [record.app for record in registry.apps() if name_of(record.app) == app][-1]


def _sample(registry: Registry, spec: ShuffleSpec) -> list[MapOutput]:
    """The committed ones of at most MOST_OUTPUTS maps, evenly spread: the registry is locked meanwhile."""
    if spec.maps <= MOST_OUTPUTS:
        return registry.located(spec.id)[0]
    maps = range(0, spec.maps, -(-spec.maps // MOST_OUTPUTS))
    return [output for each in maps for output in registry.located(spec.id, each, each + 1)[0]]
