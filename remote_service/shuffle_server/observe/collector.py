"""What a scrape reads from the server's parts: no counter is kept twice, and between scrapes nothing is done."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from shuffle_api.errors import DeadlineExceeded
from shuffle_api.periodic import TaskState, task_states
from shuffle_server import __version__
from shuffle_server.connection_guard import REASONS, ConnectionStatistics
from shuffle_server.expansion import is_bounded
from shuffle_server.observe import families as f
from shuffle_server.observe.families import Family
from shuffle_server.observe.figures import Figures, MasterFigures
from shuffle_server.observe.traffic import Traffic, TrafficTotals
from shuffle_server.store.statistics import StoreStatistics
from shuffle_server.token_counts import TokenStatistics
from shuffle_server.worker.relay.channel_relay import ChannelRelayStatistics
from shuffle_server.worker.relay.values import RelayStatistics
from shuffle_transport.pool import PoolStatistics

log = logging.getLogger(__name__)

Values = float | Mapping[tuple[str, ...], float]


class ServerCollector(Collector):
    """Exposes what is counted elsewhere.

    :param traffic: of the worker in this process, None when there is none.
    :param figures: the server's state, None while it starts; may raise DeadlineExceeded, then it is left out.
    :param ready: whether the server accepts work.
    :param leads: whether the master in this process leads, None when there is none.
    """

    def __init__(
        self,
        traffic: Traffic | None,
        figures: Callable[[], Figures | None],
        ready: Callable[[], bool],
        leads: Callable[[], bool] | None,
    ) -> None:
        self._traffic, self._figures, self._ready, self._leads = traffic, figures, ready, leads

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known to be unique, and to collect them would ask the server while it starts."""
        return ()

    def collect(self) -> Iterator[Metric]:
        versions = {"version": __version__, "python": platform.python_version(), "pyarrow": pa.__version__}
        yield InfoMetricFamily(f.BUILD.name.removesuffix("_info"), f.BUILD.help, versions)
        yield _metric(f.READY, float(self._ready()))
        yield from _tasks(task_states())
        if self._leads is not None:
            yield _metric(f.LEADER, float(self._leads()))
        if self._traffic is not None:
            yield from _traffic(self._traffic.totals())
        try:
            figures = self._figures()
        except DeadlineExceeded as error:
            log.warning("this scrape goes without the server's state: %s", error)
            return
        if figures is not None:
            yield _metric(f.TOKEN_CHECKS, {(outcome,): count for outcome, count in figures.tokens.checks.items()})
        if figures is not None and figures.worker is not None:
            yield from _questions(figures.tokens)
            yield from _pool(figures.worker.pool)
            yield from _store(figures.worker.store)
            yield from _relay(figures.worker.relay)
            yield from _channels(figures.worker.channels)
            yield _metric(f.EXPANSION_BOUNDED, is_bounded())
            yield _metric(f.CALLS, figures.worker.calls)
            yield _metric(f.MOST_CALLS, figures.worker.most_calls)
            yield _metric(f.JOINED, {(name,): joins for name, joins in figures.worker.joined.items()})
            yield _metric(f.CONNECTIONS_UNREAD, figures.worker.connections.unread)
            yield from _connections(figures.worker.connections, f.CONNECTIONS, f.CONNECTIONS_CUT)
        if figures is not None and figures.master is not None:
            yield from _registry(figures.master)


def _traffic(totals: TrafficTotals) -> Iterator[Metric]:
    yield _metric(f.PUSHED_BYTES, totals.pushed_bytes)
    yield _metric(f.PUSHED_BLOCKS, totals.pushed_blocks)
    yield _metric(f.PUSHED_MESSAGES, totals.pushed_messages)
    yield _metric(f.DISCARDED_BYTES, totals.discarded_bytes)
    yield _metric(f.PULLED_BYTES, totals.pulled_bytes)
    yield _metric(f.PULLED_BLOCKS, totals.pulled_blocks)
    yield _metric(f.PULLED_MESSAGES, totals.pulled_messages)
    yield _metric(f.HANDED_OVER_BYTES, {("push",): totals.adopted_bytes, ("pull",): totals.located_bytes})
    yield _metric(f.CREDIT_STALLS, totals.credit_stalls)
    yield _metric(f.CREDIT_STALL_SECONDS, totals.credit_stall_seconds)
    yield _metric(f.STREAMS, {("push",): totals.open_pushes, ("pull",): totals.open_pulls})


def _tasks(states: Iterable[TaskState]) -> Iterator[Metric]:
    failing, failures = dict[tuple[str, ...], float](), dict[tuple[str, ...], float]()
    for state in states:  # of several with one name the worst
        failing[(state.name,)] = max(state.failing_seconds, failing.get((state.name,), 0.0))
        failures[(state.name,)] = failures.get((state.name,), 0) + state.failures
    yield _metric(f.TASK_FAILING, failing)
    yield _metric(f.TASK_FAILURES, failures)


def _pool(pool: PoolStatistics) -> Iterator[Metric]:
    yield _metric(f.POOL_BUDGET, pool.budget)
    yield _metric(f.POOL_USED, pool.used)
    yield _metric(f.POOL_PEAK, pool.peak)
    yield _metric(f.POOL_PRESSED, pool.pressed)
    yield _metric(f.POOL_WAITING, pool.waiting)
    yield _metric(f.POOL_WAITING_BYTES, pool.waiting_bytes)
    yield _metric(f.POOL_OLDEST_WAIT, pool.oldest_wait_seconds)
    yield _metric(f.POOL_WAIT_SECONDS, pool.stall_seconds)
    yield _metric(f.POOL_REFUSALS, pool.refused)
    yield _metric(f.POOL_APPS, pool.owners)
    yield _metric(f.POOL_LARGEST_SHARE, pool.largest_share)
    yield _metric(f.POOL_LENT, pool.lent)
    yield _metric(f.POOL_OUTGOING, pool.outgoing)
    yield _metric(f.PULLS_CUT, pool.stalled)


def _registry(figures: MasterFigures) -> Iterator[Metric]:
    registry = figures.registry
    yield _metric(f.APPS, registry.apps)
    yield _metric(f.SHUFFLES, registry.shuffles)
    yield _metric(f.MOST_SHUFFLES, registry.most_shuffles)
    yield _metric(f.WORKERS, registry.workers)
    yield _metric(f.MAP_OUTPUTS, {("committed",): registry.committed, ("lost",): registry.lost})
    yield _metric(f.MAP_OUTPUT_BYTES, registry.bytes)
    yield _metric(f.EPOCH, figures.epoch)
    yield _metric(f.JOURNAL_BYTES, figures.journal_bytes)
    yield _metric(f.CONTROL_CALLS, {(lane,): figures.calls.get(lane, 0) for lane in f.CONTROL_LANES})
    yield _metric(f.CONTROL_STREAMS, {(kind,): figures.streams.get(kind, 0) for kind in f.STREAM_KINDS})
    yield from _connections(figures.connections, f.CONTROL_CONNECTIONS, f.CONTROL_CONNECTIONS_CUT)


def _store(store: StoreStatistics) -> Iterator[Metric]:
    stored = {"committed": store.committed_bytes, "staged": store.staged_bytes, "spare": store.spare_bytes}
    yield _metric(f.STORED_BYTES, {(state,): count for state, count in stored.items()})
    compaction = store.compaction
    yield _metric(f.MERGED_BYTES, compaction.bytes)
    yield _metric(f.REWRITTEN_BYTES, compaction.rewritten)
    yield _metric(f.COMPACTION, {(decision,): count for decision, count in compaction.decisions.items()})
    yield _metric(f.COMPACTION_PENDING, compaction.pending)
    yield _metric(f.DISK_BOUND, compaction.disk_bound)
    yield _metric(f.DISK_SEEK, {(disk.path,): disk.seek_bytes for disk in store.disks})
    yield _metric(f.STAGED_OUTPUTS, store.staged_outputs)
    yield _metric(f.LARGEST_STAGED, store.largest_staged)
    yield _metric(f.INDEX_CACHE, store.index_bytes)
    yield _metric(f.DISK_SIZE, {(disk.path,): disk.size for disk in store.disks})
    yield _metric(f.DISK_USED, {(disk.path,): disk.used for disk in store.disks})
    yield _metric(f.DISK_OUT, {(disk.path,): bool(disk.out) for disk in store.disks})
    yield _metric(f.DISK_FREE, {(disk.path,): disk.free for disk in store.disks})


def _relay(relay: RelayStatistics) -> Iterator[Metric]:
    yield _metric(f.RELAYED_SHUFFLES, len(relay.streams))
    yield _metric(f.RELAY_STREAMS, {("push",): relay.writers, ("pull",): relay.readers})
    yield _metric(f.RELAY_QUEUED_BLOCKS, relay.queued_blocks)
    yield _metric(f.RELAY_QUEUED_BYTES, relay.queued_bytes)


def _channels(channels: ChannelRelayStatistics) -> Iterator[Metric]:
    yield _metric(f.RELAY_TASKS, channels.tasks)
    yield _metric(f.RELAYED_CHANNELS, channels.channels)
    yield _metric(f.RELAYED_CHANNEL_HELD, channels.held_bytes)
    yield _metric(f.RELAYED_CHANNEL_MESSAGES, channels.messages)
    yield _metric(f.RELAYED_CHANNEL_BYTES, channels.bytes)


def _connections(connections: ConnectionStatistics, there: Family, cut: Family) -> Iterator[Metric]:
    yield _metric(there, {("known",): connections.known, ("stranger",): connections.strangers})
    yield _metric(cut, {(reason,): connections.cut.get(reason, 0) for reason in REASONS})


def _questions(tokens: TokenStatistics) -> Iterator[Metric]:
    yield _metric(f.TOKEN_QUESTIONS, {(outcome,): count for outcome, count in tokens.questions.items()})
    yield _metric(f.TOKENS_KNOWN, tokens.known)


def _metric(family: Family, values: Values) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        metric.add_metric(labels, value)
    return metric
