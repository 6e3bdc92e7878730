"""What is simulated."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """An application with one shuffle."""

    name: str
    maps: int
    partitions: int
    block: int  # bytes
    slots: int  # tasks at a time
    begin: float  # seconds after the start

    @property
    def output_bytes(self) -> int:
        return self.partitions * self.block


@dataclass(frozen=True, slots=True)
class Parameters:
    """The cluster, its applications, and what befalls it. `maps`, `partitions`, `block` and `slots` are those of the
    large application, `small_...` those of each other one."""

    workers: int = 100
    apps: int = 12
    maps: int = 1000
    partitions: int = 1000
    block: int = 16 << 10
    slots: int = 200
    small_maps: int = 40
    small_partitions: int = 100
    small_block: int = 16 << 10
    small_slots: int = 20
    executor_slots: int = 4
    map_seconds: float = 20.0
    arrive: float = 60.0
    device: str = "rotational"
    page_cache: int = 128
    memory: int = 0
    network: int = 1250
    kill: int = 1
    kill_at: float = 60.0
    stragglers: float = 0.02
    straggler_speed: float = 0.2
    restart: float = 0.0
    restart_at: float = 30.0
    restart_seconds: float = 10.0
    worker_timeout: float = 60.0
    seconds: float = 3600.0
    locate: int = 0
    linger: float = 0.0
    seed: int = 1

    @property
    def jobs(self) -> list[Job]:
        """The large application first."""
        large = Job("large", self.maps, self.partitions, self.block, self.slots, 0.0)
        others = self.apps - 1
        shape = self.small_maps, self.small_partitions, self.small_block, self.small_slots
        small = (Job(f"app{at}", *shape, self.arrive * at / max(1, others)) for at in range(others))
        return [large, *small]


HELP = {
    "workers": "worker processes, each on a machine and a disk of its own",
    "apps": "applications, the large one among them",
    "maps": "of the large application",
    "partitions": "of the large application",
    "block": "bytes of a map for a partition",
    "slots": "tasks of the large application at a time",
    "small_maps": "of each other application",
    "small_partitions": "of each other application",
    "small_block": "bytes of a map for a partition",
    "small_slots": "tasks of each other application at a time",
    "executor_slots": "tasks at a time of an executor, which remembers where the master places",
    "map_seconds": "of a map task besides its push",
    "arrive": "seconds within which the other applications begin",
    "device": "the workers' disks, as --device of a worker",
    "page_cache": "MiB of it at each worker",
    "memory": "MiB that file pages may take at each worker, as the compaction sees it; 0: as --page-cache",
    "network": "MiB per second of each worker and each executor",
    "kill": "workers that are killed",
    "kill_at": "seconds after the start",
    "stragglers": "the share of workers that are slow",
    "straggler_speed": "of a slow worker's disk and network, against the others'",
    "restart": "the share of workers that are restarted at a time, one group after the other; 0: none",
    "restart_at": "seconds after the start",
    "restart_seconds": "for which each is down, and between two groups",
    "worker_timeout": "as --worker-timeout of the master",
    "seconds": "of simulated time at most",
    "locate": "1: reduce tasks ask the master where outputs lie (Python); 0: the driver knows (Spark)",
    "linger": "seconds from the end of an application's reduce stage to its own",
    "seed": "of all that is drawn",
}
