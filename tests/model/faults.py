"""What befalls the workers: slow ones, killed ones, and a restart of all of them, group by group."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from shuffle_api.ids import ShuffleId
from shuffle_api.registry.events import Event, LostOutput, WorkerLost

if TYPE_CHECKING:
    from tests.model.cluster import Cluster


@dataclass(slots=True)
class Recovery:
    """A worker that was killed: when it was declared lost, and when all that lay there was written again."""

    killed: float
    detected: float = 0.0
    outputs: int = 0
    left: set[tuple[ShuffleId, int]] = field(default_factory=set)
    recovered: float = 0.0


class Faults:
    """Makes them happen, and notes how the cluster recovers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = random.Random(f"faults/{cluster.parameters.seed}")
        self.recoveries: dict[str, Recovery] = {}
        self.restarted = 0
        self.restart_over = 0.0

    def arrange(self) -> None:
        parameters, machines = self._cluster.parameters, self._cluster.machines
        count = len(self._cluster.workers)
        slow = self._random.sample(range(count), round(parameters.stragglers * count))
        machines.speed[slow] = parameters.straggler_speed
        if parameters.kill:
            self._cluster.clock.after(parameters.kill_at, self._kill)
        if parameters.restart:
            self._cluster.clock.after(parameters.restart_at, partial(self._restart, 0))

    def _kill(self) -> None:
        machines = self._cluster.machines
        holders = [worker for worker in self._cluster.workers if machines.held[worker.number]]
        for worker in self._random.sample(holders, min(self._cluster.parameters.kill, len(holders))):
            machines.up[worker.number] = False
            machines.held[worker.number] = 0
            self.recoveries[worker.info.id] = Recovery(self._cluster.clock.now)

    def _restart(self, first: int) -> None:
        """Of a group of workers; those that were killed stay away."""
        clock, parameters, workers = self._cluster.clock, self._cluster.parameters, self._cluster.workers
        size = max(1, round(parameters.restart * len(workers)))
        group = [each for each in workers[first : first + size] if each.info.id not in self.recoveries]
        for worker in group:
            self._cluster.machines.up[worker.number] = False

        def back() -> None:
            for worker in group:
                self._cluster.machines.up[worker.number] = True
                worker.join()
            self.restarted += len(group)
            self.restart_over = clock.now

        clock.after(parameters.restart_seconds, back)
        if first + size < len(workers):
            clock.after(2 * parameters.restart_seconds, partial(self._restart, first + size))

    def happened(self, event: Event) -> None:
        """Of the registry."""
        if isinstance(event, WorkerLost):
            if event.worker.id in self.recoveries:
                self.recoveries[event.worker.id].detected = self._cluster.clock.now
        elif isinstance(event, LostOutput):
            application = self._cluster.shuffles[event.shuffle]
            recovery = self.recoveries.get(event.output.worker)
            if recovery is not None:
                recovery.outputs += 1
                if not application.over:
                    recovery.left.add((event.shuffle, event.output.output.map))
            application.lost(event.output.output.map)

    def written(self, shuffle: ShuffleId, map: int) -> None:
        """A map output has been committed."""
        for recovery in self.recoveries.values():
            if (shuffle, map) in recovery.left:
                recovery.left.discard((shuffle, map))
                recovery.recovered = self._cluster.clock.now
