"""How often workers send heartbeats, and for how long they may be silent."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_server.master.worker_record import WorkerRecord

SUSPECT_SHARE = 0.4
"""Of the time after which a silent worker is declared lost: from then on it is the last choice. It is the first again
with its next heartbeat."""

HEARTBEATS_PER_TIMEOUT = 6
SLOWEST_HEARTBEAT = 2.0
HEARTBEATS_PER_SECOND = 1000
"""Of all workers together: with more than twice as many workers each sends them less often."""

SURE_HEARTBEATS = 3
"""A worker with a heartbeat within so many periods is there: others may delete copies that it also holds."""


@dataclass(frozen=True, slots=True)
class HeartbeatTerms:
    """With `workers` workers, each sends a heartbeat every max(2 s, workers / 1000 s), or six of them in
    `silent_seconds` if that is more often. A worker is lost after `silent_seconds`, and not before six of the periods
    that it was told last: nobody is lost because the cluster has grown or shrunk.
    """

    silent_seconds: float

    def beat_seconds(self, workers: int) -> float:
        base = min(SLOWEST_HEARTBEAT, self.silent_seconds / HEARTBEATS_PER_TIMEOUT)
        return max(base, workers / HEARTBEATS_PER_SECOND)

    def timeout(self, record: WorkerRecord) -> float:
        """After so many seconds of silence a worker is lost."""
        return max(self.silent_seconds, HEARTBEATS_PER_TIMEOUT * record.beat_seconds)

    def suspect_at(self, record: WorkerRecord) -> float:
        """From then on it is the last choice."""
        return record.seen + SUSPECT_SHARE * self.timeout(record)

    def is_sure(self, record: WorkerRecord, now: float) -> bool:
        """Whether nobody need doubt that a worker is there; `now` on the clock that counts every second."""
        return record.local or record.sure >= now - SURE_HEARTBEATS * record.beat_seconds
