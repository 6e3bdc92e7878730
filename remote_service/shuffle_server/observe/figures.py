"""The state of a server at one moment, gathered when somebody asks: for metrics, health and status."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shuffle_api.errors import DeadlineExceeded, InvalidArgument
from shuffle_api.registry.state import Registry, RegistryFigures
from shuffle_server.bounds import Bound
from shuffle_server.connection_guard import ConnectionGuard, ConnectionStatistics
from shuffle_server.master.master import Master
from shuffle_server.store.statistics import StoreStatistics
from shuffle_server.store.store import Store
from shuffle_server.token_counts import TokenStatistics
from shuffle_server.worker.relay.channel_relay import ChannelRelay, ChannelRelayStatistics
from shuffle_server.worker.relay.relay import Relay
from shuffle_server.worker.relay.values import RelayStatistics
from shuffle_transport.pool import BufferPool, PoolStatistics
from shuffle_transport.proto import flight_shuffle_pb2 as pb

LOCK_SECONDS = 5.0  # how long a question waits for the master; it holds its lock for milliseconds


@dataclass(frozen=True, slots=True)
class Writable:
    """Whether something can be written: `reason` is empty when it can, `full` when only room is missing."""

    reason: str = ""
    full: bool = False


@dataclass(frozen=True, slots=True)
class Skew:
    """The payload of each partition in `outputs` of the `committed` map outputs of a shuffle of the run `app`. `sizes`
    is empty where there are more partitions than are answered for."""

    app: str
    committed: int
    outputs: int
    partitions: int
    sizes: np.ndarray


@dataclass(frozen=True, slots=True)
class MasterSources:
    """A master that is asked; whether its journal can be written, how large it is, and whether the master leads; the
    calls and the streams of its endpoint, by kind, and its connections; what it holds, in pages, the events after a
    number, so many at most, the sizes of a shuffle's partitions (of a run, or the newest run of an application of this
    name), and the standby masters; and where clients reach it."""

    master: Master
    writable: Callable[[], Writable]
    journal_bytes: Callable[[], int]
    leads: Callable[[], bool] = lambda: True
    calls: Callable[[], Mapping[str, int]] = dict
    streams: Callable[[], Mapping[str, int]] = dict
    connections: Callable[[], ConnectionStatistics] = ConnectionStatistics
    status: Callable[[pb.StatusRequest], pb.StatusReply] = lambda request: pb.StatusReply()
    events: Callable[[int, int], Sequence[pb.ClusterEvent]] = lambda after, limit: ()
    skew: Callable[[str, int], Skew] = lambda app, shuffle: Skew(app, 0, 0, 0, np.zeros(0, np.int64))
    standbys: Callable[[], Sequence[str]] = tuple
    address: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSources:
    """The parts of a worker that are asked. `absent` says why no master counts on it, empty when one does, and may
    raise DeadlineExceeded; `joined` of each registry, by its name, whether its master does.
    """

    pool: BufferPool
    store: Store
    relay: Relay
    channels: ChannelRelay
    absent: Callable[[], str]
    guard: ConnectionGuard
    calls: Bound[str]
    joined: Callable[[], Mapping[str, bool]] = lambda: {"": True}


@dataclass(frozen=True, slots=True)
class Sources:
    """What runs in this process: one of the two, or both; and what became of the tokens that either was shown."""

    master: MasterSources | None
    worker: WorkerSources | None
    tokens: Callable[[], TokenStatistics] = TokenStatistics


@dataclass(frozen=True, slots=True)
class MasterFigures:
    """`journal_bytes` is the size of the registry's files; `calls` and all behind it are of the control endpoint."""

    registry: RegistryFigures
    epoch: int
    journal_bytes: int
    calls: Mapping[str, int]
    streams: Mapping[str, int]
    connections: ConnectionStatistics


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    pool: PoolStatistics
    store: StoreStatistics
    relay: RelayStatistics
    channels: ChannelRelayStatistics
    connections: ConnectionStatistics
    calls: int
    most_calls: int  # of one application
    joined: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Figures:
    """What they answered."""

    master: MasterFigures | None
    worker: WorkerFigures | None
    tokens: TokenStatistics


def gather(sources: Sources) -> Figures:
    """Ask all of them. Raises DeadlineExceeded when the master does not answer."""
    return Figures(
        master=None if sources.master is None else _of_master(sources.master),
        worker=None if sources.worker is None else _of_worker(sources.worker),
        tokens=sources.tokens(),
    )


def _of_master(sources: MasterSources) -> MasterFigures:
    with asking(sources.master) as registry:
        counted = registry.figures()
    return MasterFigures(
        counted,
        sources.master.epoch,
        sources.journal_bytes(),
        sources.calls(),
        sources.streams(),
        sources.connections(),
    )


def _of_worker(sources: WorkerSources) -> WorkerFigures:
    return WorkerFigures(
        sources.pool.statistics(),
        sources.store.statistics(),
        sources.relay.statistics(),
        sources.channels.statistics(),
        sources.guard.statistics(),
        sources.calls.count,
        sources.calls.largest,
        sources.joined(),
    )


@contextmanager
def asking(master: Master) -> Iterator[Registry]:
    """The registry, for as long as the body takes. Raises DeadlineExceeded: an observer must not hang as well."""
    if not master.lock.acquire(timeout=LOCK_SECONDS):
        raise DeadlineExceeded(
            f"the registry was busy for {LOCK_SECONDS:g} s",
            remedy="see the log; a stack dump of the process shows where",
        )
    try:
        yield master.registry
    finally:
        master.lock.release()


def absent_from(master: Master, worker: str) -> str:
    """Why the master in this process does not count on a worker, empty when it does. Raises DeadlineExceeded."""
    with asking(master) as registry:
        try:
            registry.worker(worker)
        except InvalidArgument:
            return f"the master does not know worker {worker}"
    return ""


def files_bytes(directory: Path) -> int:
    """The size of the files in a directory; 0 when it cannot be read."""
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    total += entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
                except FileNotFoundError:
                    pass  # the journal was written afresh meanwhile
    except OSError:
        return 0  # the directory cannot be read: /health says so
    return total
