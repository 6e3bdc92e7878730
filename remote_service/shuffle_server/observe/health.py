"""Is the process well (`/health`), does it accept work (`/ready`), and is it the master that leads (`/leader`)?

They are three questions, because different things are done about the answers: a process that is not well is restarted;
one that is not ready gets no new work and goes on serving. So a full disk is not ill: a restart would not empty it, and
would cut off the readers of what is committed. A master that stands by for another one is well, and ready: its work is
to take over. It is only not where requests are sent to.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.errors import DeadlineExceeded, ShuffleError
from shuffle_api.periodic import task_states
from shuffle_server.observe.figures import MasterSources, Sources, WorkerSources, Writable, asking

PROBE_SECONDS = 1.0  # what was found out about the disk holds so long: asking often must not load it
PROBE_BYTES = 4096  # a block of most file systems: less may fit into a full one

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `reason` says what is wrong when it is not `ok`."""

    name: str
    ok: bool
    reason: str = ""


class WriteProbe:
    """Writes a small file beside the registry's journal and removes it, at most once a second. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".probe"
        self._lock = threading.Lock()
        self._last = Writable()
        self._until = 0.0

    def look(self) -> Writable:
        with self._lock:
            if time.monotonic() >= self._until:
                self._last = _write(self._path)
                self._until = time.monotonic() + PROBE_SECONDS
            return self._last


class Health:
    """Answers both questions for what runs in this process.

    :param need_bytes: room without which no push is worth beginning.
    """

    def __init__(self, sources: Sources, need_bytes: int) -> None:
        self._master = None if sources.master is None else _MasterHealth(sources.master)
        self._worker = None if sources.worker is None else _WorkerHealth(sources.worker, need_bytes)

    def alive(self) -> list[Check]:
        """The checks of `/health`."""
        return [
            *([] if self._master is None else self._master.alive()),
            _tasks(),
        ]

    def ready(self) -> list[Check]:
        """The checks of `/ready`, for a server that is not stopping."""
        return [
            *([] if self._master is None else self._master.ready()),
            *([] if self._worker is None else self._worker.ready()),
        ]

    def leader(self) -> Check:
        """The check of `/leader`."""
        return Check("leader", False, "no master runs here") if self._master is None else self._master.leader()


class _MasterHealth:
    def __init__(self, sources: MasterSources) -> None:
        self._master, self._writable, self._leads = sources.master, sources.writable, sources.leads

    def alive(self) -> list[Check]:
        writable, given_up = self._writable(), self._master.given_up
        return [
            Check("journal", given_up is None and (writable.full or not writable.reason), _reason(given_up, writable)),
            self._answers(),
        ]

    def _answers(self) -> Check:
        try:
            with asking(self._master):
                return Check("registry", True)
        except DeadlineExceeded as error:
            return Check("registry", False, str(error))

    def ready(self) -> list[Check]:
        reason = _reason(self._master.given_up, self._writable())
        if self._master.failing and not reason:
            reason = "the last write failed, and what was to be recorded was refused; the next operation tries again"
        return [Check("journal", not reason, reason), self.leader()]

    def leader(self) -> Check:
        leads = self._leads()
        return Check("leader", leads, "" if leads else "the lease is not renewed: another master may lead")


class _WorkerHealth:
    def __init__(self, sources: WorkerSources, need_bytes: int) -> None:
        self._sources, self._need = sources, need_bytes

    def ready(self) -> list[Check]:
        return [self._room(), self._registered()]

    def _room(self) -> Check:
        store = self._sources.store.statistics()
        if store.room_bytes >= self._need:
            return Check("disk", True)
        paths = ", ".join(f"{disk.path} ({disk.out})" if disk.out else disk.path for disk in store.disks)
        return Check(
            "disk", False, f"{store.room_bytes} bytes are free in {paths}, fewer than {self._need}; free space there"
        )

    def _registered(self) -> Check:
        try:
            reason = self._sources.absent()
        except DeadlineExceeded as error:
            reason = str(error)
        return Check("registered", not reason, reason)


def _tasks() -> Check:
    failing = [
        f"{task.name} has failed for {task.failing_seconds:.0f} s: {task.reason}"
        for task in task_states()
        if task.reason
    ]
    return Check("tasks", not failing, "; ".join([*failing, "see the log"]) if failing else "")


def _reason(given_up: ShuffleError | None, writable: Writable) -> str:
    return writable.reason if given_up is None else str(given_up)


def _write(path: Path) -> Writable:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(fd, bytes(PROBE_BYTES))
        finally:
            os.close(fd)
            os.unlink(path)
    except OSError as error:
        return Writable(f"{path.parent}: {error.strerror}", error.errno in _FULL)
    return Writable() if written == PROBE_BYTES else Writable(f"{path.parent}: no space left", True)
