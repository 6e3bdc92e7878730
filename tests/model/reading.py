"""A reduce stage: what its tasks take from each worker, as a flow.

Each task needs a part from each worker that holds outputs. Of each worker is known how many tasks' parts it has served;
a task is over when all have served its part, and no worker is ahead of the slowest one by more than the tasks that run
at a time. So one worker that is slow, or away, holds up the stage when the tasks that run have everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from shuffle_api.ids import MapAttempt
from tests.model.compacted import Shape
from tests.model.machines import Machines

TASK_SECONDS = 1.0  # that a reduce task takes at least

if TYPE_CHECKING:
    from tests.model.cluster import Cluster


class Reading:
    """The reduce stage of one application."""

    def __init__(self, cluster: Cluster, shape: Shape, executors: int) -> None:
        self._cluster, self.shape = cluster, shape
        self._executors = executors
        self.waiting = False  # maps run again
        self.workers = np.zeros(0, int)
        self._reads = self._read_bytes = self._payload = np.zeros(0)
        self._served = np.zeros(0)  # parts of tasks
        self._outputs: dict[int, list[MapAttempt]] = {}

    def plan(self, outputs: dict[int, list[MapAttempt]]) -> None:
        """These outputs lie at these workers, from now on."""
        done = self.done
        served = dict(zip(self.workers.tolist(), self._served.tolist(), strict=True))
        for worker in outputs:
            if worker not in served:
                self._cluster.workers[worker].open_indexes(self.shape.id, outputs[worker])
        self._outputs = outputs
        self.workers = np.array(sorted(outputs), int)
        count = len(self.workers)
        self._served = np.array([served.get(worker, done) for worker in self.workers.tolist()])
        self._reads, self._read_bytes, self._payload = np.zeros(count), np.zeros(count), np.zeros(count)
        self._look(outputs)

    def _look(self, workers: Iterable[int]) -> None:
        """What a task costs at workers whose files have changed."""
        for number in workers:
            if number in self._outputs:
                at = int(np.searchsorted(self.workers, number))
                cost = self._cluster.workers[number].cost(self.shape.id, self._outputs[number])
                self._reads[at], self._read_bytes[at], self._payload[at] = cost

    @property
    def done(self) -> float:
        """Tasks that are over."""
        return float(self._served.min()) if len(self._served) else 0.0

    @property
    def over(self) -> bool:
        return not self.waiting and self.done >= self.shape.job.partitions

    def pass_time(self, seconds: float, machines: Machines, free: np.ndarray, readers: np.ndarray) -> np.ndarray:
        """Go on for so long; the seconds that each of its workers' disks was busy.

        :param free: seconds that each disk has for reads.
        :param readers: how many stages read at each worker.
        """
        self._look(self._cluster.rearranged.pop(self.shape.id, ()))
        workers, job = self.workers, self.shape.job
        missed = machines.missed()[workers]
        reads, read_bytes = missed * self._reads, missed * self._read_bytes  # of a task
        cost = machines.read_seconds(1, 0) * reads + machines.read_seconds(0, 1) * read_bytes
        speed, sharing = machines.speed[workers], readers[workers]
        by_disk = np.divide(free[workers] * speed, sharing * cost, out=np.full(len(workers), np.inf), where=cost > 0)
        by_network = machines.network * seconds * speed / (sharing * self._payload)
        most = min(
            self._executors * machines.network * seconds / self._payload.sum(), job.slots * seconds / TASK_SECONDS
        )
        more = np.where(machines.up[workers], np.minimum(np.minimum(by_disk, by_network), most), 0)
        limit = min(self.done + job.slots, job.partitions)
        before, self._served = self._served, np.minimum(self._served + more, np.maximum(self._served, limit))
        parts = self._served - before
        machines.reads[workers] += parts * reads
        machines.read_bytes[workers] += parts * read_bytes
        machines.pulled_bytes[workers] += parts * self._payload
        machines.pulls[workers] += parts
        spent: np.ndarray = parts * cost / speed
        return spent
