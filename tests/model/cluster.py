"""The whole of a run: master, workers, applications, faults, and the time that passes."""

from __future__ import annotations

import gc
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from shuffle_api.ids import ShuffleId
from shuffle_api.values import WorkerInfo
from shuffle_server.options import ServerOptions
from shuffle_server.store import compacted_files, compaction_model, page_cache, pending_outputs
from shuffle_server.store import directory as directory_module
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_server.store.device import AUTO, parse_device
from tests.model import compacted
from tests.model.application import Application
from tests.model.clock import Clock, StoreTime
from tests.model.faults import Faults
from tests.model.machines import Machines
from tests.model.master import LOOK_SECONDS, MeasuredMaster
from tests.model.parameters import MIB, Parameters
from tests.model.worker import Worker

STEP = 1.0  # seconds, in which disks and networks are looked at
WORKERS_OF_A_RACK = 40


class Cluster:
    """Everything that is simulated. To be made and run inside of `simulated_store`."""

    def __init__(self, parameters: Parameters, directory: Path, clock: Clock, store_time: StoreTime) -> None:
        self.parameters, self.clock, self.store_time = parameters, clock, store_time
        device = parse_device(parameters.device)
        if device is None:
            raise ValueError(f"--device {AUTO} is that of this machine: name a kind of disk, or READS:MIB")
        self.machines = Machines(parameters, device)
        self.master = MeasuredMaster(directory, clock, parameters.worker_timeout)
        self.nothing = os.open(os.devnull, os.O_RDONLY)
        options = CompactionOptions(ServerOptions(data_dir="").merge_below, device, parameters.page_cache * MIB)
        self.workers = [Worker(self, number, _info(number), options) for number in range(parameters.workers)]
        self.numbers = {worker.info.id: worker.number for worker in self.workers}
        self.shuffles: dict[ShuffleId, Application] = {}
        self.rearranged: defaultdict[ShuffleId, set[int]] = defaultdict(set)
        """The workers that hold outputs of a shuffle in other files than at the last step."""
        self.applications = [Application(self, job) for job in parameters.jobs]
        self.faults = Faults(self)
        self.master.listener = self.faults.happened

    def run(self) -> None:
        """Until all applications are over, or time is."""
        join = random.Random(self.parameters.seed)
        for worker in self.workers:
            self.clock.after(join.uniform(0, STEP), worker.join)
        for application in self.applications:
            self.clock.after(STEP + application.job.begin, application.begin)
        self.clock.every(LOOK_SECONDS, self.master.maintain)
        self.clock.every(STEP, self._step)
        self.faults.arrange()
        self.clock.run(self.parameters.seconds, lambda: all(each.over for each in self.applications))

    def _step(self) -> None:
        """What disks and networks have done since the last step."""
        machines = self.machines
        reading = [each for each in self.applications if each.reading is not None and not each.reduce_seconds]
        readers = np.zeros(len(self.workers), int)
        for each in reading:
            assert each.reading is not None
            readers[each.reading.workers] += 1
        free = machines.pass_time(STEP, readers > 0)
        for each in reading:
            assert each.reading is not None
            machines.disk_seconds[each.reading.workers] += each.reading.pass_time(STEP, machines, free, readers)
            each.look()

    def close(self) -> None:
        self.master.close()
        os.close(self.nothing)


@contextmanager
def simulated(parameters: Parameters, directory: Path) -> Iterator[Cluster]:
    """A cluster whose stores have simulated time and files. Garbage is not collected meanwhile: calls are measured."""
    clock = Clock()
    store_time = StoreTime(clock)
    memory = (parameters.memory or parameters.page_cache) * MIB
    with ExitStack() as stack:
        for module in (compacted_files, pending_outputs, compaction_model, directory_module):
            stack.enter_context(mock.patch.object(module, "time", store_time))
        stack.enter_context(mock.patch.object(compacted_files, "write_compacted", compacted.write_compacted))
        stack.enter_context(mock.patch.object(page_cache, "available", return_value=memory))
        gc.disable()
        stack.callback(gc.enable)
        cluster = Cluster(parameters, directory, clock, store_time)
        stack.callback(cluster.close)
        yield cluster


def _info(number: int) -> WorkerInfo:
    labels = (f"rack=r{number // WORKERS_OF_A_RACK}",)
    return WorkerInfo(f"w-{number:012x}", f"host-{number}", 9111, 1 << 44, 1, labels)
