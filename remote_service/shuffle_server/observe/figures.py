"""The state of a server at one moment, gathered when somebody asks: for metrics, health and status."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.errors import DeadlineExceeded, InvalidArgument
from shuffle_api.registry.state import Figures as RegistryFigures
from shuffle_api.registry.state import Registry
from shuffle_server.master.master import Master
from shuffle_server.store.statistics import StoreStatistics
from shuffle_server.store.store import Store
from shuffle_server.worker.relay import Relay
from shuffle_server.worker.relay_values import RelayStatistics
from shuffle_transport.pool import BufferPool, PoolStatistics

LOCK_SECONDS = 5.0  # how long a question waits for the master; it holds its lock for milliseconds


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a server that are asked. `journal_dir` has the registry's files."""

    worker_id: str
    pool: BufferPool
    store: Store
    master: Master
    relay: Relay
    journal_dir: Path


@dataclass(frozen=True, slots=True)
class Figures:
    """What they answered. `journal_bytes` is the size of the registry's files."""

    pool: PoolStatistics
    store: StoreStatistics
    relay: RelayStatistics
    registry: RegistryFigures
    epoch: int
    journal_bytes: int


def gather(sources: Sources) -> Figures:
    """Ask all of them. Raises DeadlineExceeded when the master does not answer."""
    with asking(sources.master) as registry:
        counted = registry.figures()
    return Figures(
        pool=sources.pool.statistics(),
        store=sources.store.statistics(),
        relay=sources.relay.statistics(),
        registry=counted,
        epoch=sources.master.epoch,
        journal_bytes=_files_bytes(sources.journal_dir),
    )


@contextmanager
def asking(master: Master) -> Iterator[Registry]:
    """The registry, for as long as the body takes. Raises DeadlineExceeded: who looks on must not hang as well."""
    if not master.lock.acquire(timeout=LOCK_SECONDS):
        raise DeadlineExceeded(
            f"the registry was busy for {LOCK_SECONDS:g} s",
            remedy="see the log; a stack dump of the process shows where",
        )
    try:
        yield master.registry
    finally:
        master.lock.release()


def is_registered(sources: Sources) -> bool:
    """Whether the master knows this worker. Raises DeadlineExceeded."""
    with asking(sources.master) as registry:
        try:
            registry.worker(sources.worker_id)
        except InvalidArgument:
            return False
    return True


def _files_bytes(directory: Path) -> int:
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
