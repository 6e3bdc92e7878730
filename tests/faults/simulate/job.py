"""One run of an application: a driver that registers shuffles, tasks that write and read them."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

from shuffle_api.errors import AppExpired, MapOutputLost, ShuffleError, StreamBroken, UnknownApp, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from tests.faults.simulate.client import FINAL, Client, Corrupt, content, patiently
from tests.faults.simulate.locks import Here
from tests.faults.simulate.oracle import Oracle
from tests.faults.simulate.schedule import Job
from tests.faults.simulate.scheduler import Process

TRIES = 6  # of one attempt, then the next attempt is made
DROPPED = (AppExpired, UnknownApp, UnknownShuffle)


class Run:
    """A job under way. `over` once its driver has ended, for whatever reason."""

    def __init__(self, job: Job, number: int, oracle: Oracle, seed: int) -> None:
        self.job, self._oracle = job, oracle
        self._random = random.Random(f"{seed}/{number}")
        self._instance = f"{number}{self._random.randrange(1 << 30):x}"
        self.run = f"{job.name}~{self._instance}"
        self.driver = Process(f"driver{number}")
        self._tasks = Process(f"tasks{number}")  # tasks outlive their driver
        self.over = False
        self._failed: Exception | None = None
        self._attempts: dict[int, int] = {}
        self._running: dict[int, int] = {}

    def begin(self) -> None:
        self.driver.when_killed.append(self._ended)
        Here.scheduler.spawn(self.driver, self._main, f"{self.driver.name} main")
        if self.job.crash_at:
            Here.scheduler.after(self.job.crash_at - self.job.start, self._fail)

    def _fail(self) -> None:
        if not self.job.zombie:
            Here.scheduler.kill(self.driver)
            return
        self.driver.paused = True
        Here.scheduler.after(self.job.zombie, self._wake)

    def _wake(self) -> None:
        self.driver.paused = False

    def _ended(self) -> None:
        self._oracle.acked = {id: acked for id, acked in self._oracle.acked.items() if id.app != self.run}
        self.over = True

    # ------------------------------------------------------------------ driver

    def _main(self) -> None:
        self._client = Client()
        try:
            patiently(lambda: self._client.register_app(self.run, self._instance))
            Here.scheduler.spawn(self.driver, self._beat, f"{self.driver.name} heartbeat")
            for _ in range(self.job.shuffles):
                self._shuffle()
            self._oracle.runs.discard(self.run)
            patiently(lambda: self._client.unregister_app(self.run))
        except FINAL as error:
            self._oracle.refused(self.run, error)
        finally:
            self._ended()

    def _beat(self) -> None:
        while not self.over:
            Here.scheduler.sleep(Here.network.beat_seconds)
            try:
                if not self.over:
                    self._client.heartbeat(self.run)
            except FINAL as error:
                if not self.over:
                    self._failed = error
                return
            except ShuffleError:
                continue

    def _shuffle(self) -> None:
        """One shuffle after the other has the same number: late tasks of one write while the next is under way."""
        job = self.job
        wanted = ShuffleSpec(ShuffleId(self.run, 0), job.partitions, job.maps, "none", "opaque", job.replicas)
        spec = patiently(lambda: self._client.register_shuffle(wanted))
        self._oracle.acked[spec.id] = {}
        self._attempts = dict.fromkeys(range(job.maps), 0)
        self._running = dict.fromkeys(range(job.maps), 0)
        for _ in range(job.reads):
            while not self._read(spec):
                Here.scheduler.sleep(0.3)
            Here.scheduler.sleep(self._random.uniform(0, 4))
        del self._oracle.acked[spec.id]
        patiently(lambda: self._client.unregister_shuffle(spec.id))

    def _write(self, spec: ShuffleSpec) -> None:
        """Have every map written: as long as one is not, it has an attempt."""
        acked = self._oracle.acked[spec.id]
        while missing := [map_id for map_id in range(spec.maps) if map_id not in acked]:
            if self._failed is not None:
                self._oracle.refused(self.run, self._failed)
                raise self._failed
            for map_id in missing:
                if not self._running[map_id]:
                    for _ in range(self._random.choice((1, 1, 2))):
                        self._attempt(spec, map_id)
            Here.scheduler.sleep(0.25)

    def _attempt(self, spec: ShuffleSpec, map_id: int) -> None:
        output, running = MapAttempt(map_id, self._attempts[map_id]), self._running
        self._attempts[map_id] += 1
        running[map_id] += 1

        def run() -> None:
            try:
                self._task(spec, output)
            finally:
                running[map_id] -= 1

        Here.scheduler.spawn(self._tasks, run, f"{self._tasks.name} {output}")

    # ------------------------------------------------------------------ tasks

    def _task(self, spec: ShuffleSpec, output: MapAttempt) -> None:
        client, avoid = Client(), list[str]()
        Here.scheduler.sleep(self._random.choice((0.0, 0.0, self._random.uniform(0, 1), self._random.uniform(0, 9))))
        for _ in range(TRIES):
            try:
                self._push(client, spec, output, avoid)
                return
            except FINAL as error:
                if isinstance(error, DROPPED) and spec.id in self._oracle.acked and not self.over:
                    self._failed = error  # as an engine fails a stage for the error of its task
                return
            except ShuffleError:
                Here.scheduler.sleep(self._random.uniform(0.1, 0.8))

    def _push(self, client: Client, spec: ShuffleSpec, output: MapAttempt, avoid: list[str]) -> None:
        places = client.place(spec.id, avoid)
        if not places:
            raise StreamBroken("no worker is there")
        worker, address = places[0]
        push = client.stream if self._random.random() < 0.4 else client.put
        try:
            winner = push(address, spec, output)
        except ShuffleError:
            if self._random.random() < 0.5:
                avoid.append(worker)
            raise
        self._oracle.committed(spec.id, output.map, winner)

    # ------------------------------------------------------------------ reading

    def _report(self, spec: ShuffleSpec, output: MapAttempt, why: str) -> None:
        patiently(lambda: self._client.report_lost(spec.id, output, why))

    def _read_late(self, address: str, spec: ShuffleSpec, output: MapAttempt, seconds: float) -> None:
        """A reader that has located an output, and reads it when another attempt may have won, or the shuffle ended."""
        Here.scheduler.sleep(seconds)
        client = Client()
        with suppress(ShuffleError):
            try:
                self._compare(spec, output, client.read(address, spec, output))
            except Corrupt as error:
                client.report_lost(spec.id, output, str(error))

    def _compare(self, spec: ShuffleSpec, output: MapAttempt, got: dict[int, list[bytes]]) -> None:
        wanted = {partition: content(spec.id, output, partition) for partition in range(spec.partitions)}
        if got != wanted:
            self._oracle.blame(f"{spec.id} {output} reads {got}, not {wanted}")

    def _read(self, spec: ShuffleSpec) -> bool:
        """Whether all of the shuffle could be read."""
        self._write(spec)
        found = patiently(lambda: self._client.locate(spec.id))
        self._oracle.located(spec.id, {each.output.map: each.output for each in found.outputs}, found.lost)
        acked = self._oracle.acked[spec.id]
        for map_id in found.lost:
            acked.pop(map_id, None)
        if found.lost:
            self._oracle.snapshot_is_whole()
            return False
        for each in found.outputs:
            acked[each.output.map] = each.output
            if each.worker not in found.addresses:
                return False
            address = found.addresses[each.worker]
            if self._random.random() < 0.2:
                late = self._random.uniform(0.3, 5.0)
                read = partial(self._read_late, address, spec, each.output, late)
                Here.scheduler.spawn(self._tasks, read, f"{self._tasks.name} late reader")
            try:
                got = self._client.read(address, spec, each.output)
            except Corrupt as error:
                self._oracle.corrupt(each.worker, error)
                self._report(spec, each.output, str(error))
                return False
            except MapOutputLost:
                return False
            except FINAL:
                raise
            except ShuffleError:
                return False
            self._compare(spec, each.output, got)
        return True
