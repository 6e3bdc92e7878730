"""An application: a map stage, a reduce stage, and maps that run again when their outputs are lost."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.remote.workers import Placements, WorkerTable
from shuffle_server.master.control import PAGE
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.model.compacted import Shape
from tests.model.parameters import Job
from tests.model.reading import Reading

if TYPE_CHECKING:
    from tests.model.cluster import Cluster

RETRY_SECONDS = 1.0
REFRESH_SECONDS = 2.0  # between two questions of an executor for a worker that does not answer
JITTER = 0.2  # of the time of a map task


class Executor:
    """A process of an application: its tasks share the master's answers about placement."""

    def __init__(self, host: str, cluster: Cluster) -> None:
        self.host, self.placements = host, Placements(cluster.clock)


class Application:
    """One run of a job.

    :ivar map_seconds: how long its map stage took; 0 before its end.
    """

    def __init__(self, cluster: Cluster, job: Job) -> None:
        self._cluster, self.job = cluster, job
        self._random = random.Random(f"{job.name}/{cluster.parameters.seed}")
        count = -(-job.slots // cluster.parameters.executor_slots)
        self._executors = [Executor(f"{job.name}-{number}", cluster) for number in range(count)]
        self._table = WorkerTable()
        self._known, self._refreshed = pb.WorkersKnown(), 0.0  # of the executors
        self._waiting: deque[int] = deque(range(job.maps))
        self._attempts: defaultdict[int, int] = defaultdict(int)
        self._where: dict[int, tuple[int, MapAttempt]] = {}  # worker and attempt of each map that is committed
        self._shape: Shape | None = None
        self._begun = self._mapped = 0.0
        self.reading: Reading | None = None
        self.map_seconds = self.reduce_seconds = 0.0
        self.runs_again = 0
        self.located = 0.0  # reduce tasks for which the master was asked
        self.over = False

    @property
    def shape(self) -> Shape:
        assert self._shape is not None
        return self._shape

    def begin(self) -> None:
        master, job, run = self._cluster.master, self.job, self.job.name
        request = pb.RegisterAppRequest(app=run, instance=run, name=run, known=self._table.known())
        reply = master.ask("RegisterApp", request)
        self._table.learn(reply)
        self._cluster.clock.after(reply.heartbeat_seconds, partial(self._heartbeat, reply.heartbeat_seconds))
        register = messages.spec_message(ShuffleSpec(ShuffleId(run, 0), job.partitions, job.maps))
        register.known.CopyFrom(self._table.known())
        registered = master.ask("RegisterShuffle", register)
        self._table.learn(registered)
        self._shape = Shape.of(ShuffleId(run, 0, registered.generation), job)
        self._cluster.shuffles[self.shape.id] = self
        self._begun = self._cluster.clock.now
        for slot in range(job.slots):
            self._next(self._executors[slot % len(self._executors)])

    def _heartbeat(self, seconds: float) -> None:
        if not self.over:
            request = pb.HeartbeatRequest(app=self.job.name, known=self._table.known())
            self._table.learn(self._cluster.master.ask("Heartbeat", request))
            self._cluster.clock.after(seconds, partial(self._heartbeat, seconds))

    # ------------------------------------------------------------------ map tasks

    def _next(self, executor: Executor) -> None:
        """A slot is free."""
        if self._waiting:
            self._run(self._waiting.popleft(), executor)

    def _run(self, map: int, executor: Executor) -> None:
        attempt = MapAttempt(map, self._attempts[map])
        seconds = self._cluster.parameters.map_seconds * self._random.uniform(1 - JITTER, 1 + JITTER)
        self._cluster.clock.after(seconds, partial(self._push, attempt, executor, ()))

    def _push(self, attempt: MapAttempt, executor: Executor, avoid: tuple[str, ...]) -> None:
        id = executor.placements.choose(avoid)
        if id is None:
            request = pb.PlaceRequest(
                shuffle=messages.key_of(self.shape.id), host=executor.host, avoid=executor.placements.to_avoid(avoid)
            )
            reply = self._cluster.master.ask("Place", request)
            executor.placements.answered(reply)
            id = reply.workers[0].id
        number = self._cluster.numbers[id]
        machines, life = self._cluster.machines, self._cluster.workers[number].lives
        machines.open_pushes[number] += 1
        seconds = RETRY_SECONDS
        if machines.up[number]:
            self._cluster.workers[number].opening(self.shape.id, attempt.map)
            seconds = machines.push_seconds(number, self.job.output_bytes)
        self._cluster.clock.after(seconds, partial(self._pushed, attempt, executor, number, life))

    def _pushed(self, attempt: MapAttempt, executor: Executor, number: int, life: int) -> None:
        """All bytes are there, if the worker still is."""
        machines, worker = self._cluster.machines, self._cluster.workers[number]
        machines.open_pushes[number] -= 1
        if self.over:
            return
        stands = bool(machines.up[number]) and worker.lives == life
        if stands:
            output = MapOutput(attempt, worker.info.id, self.shape.totals)
            stands = worker.commit(self.shape.id, [output]) == [None]
        if not stands:
            executor.placements.failed(worker.info.id)
            self._push(attempt, executor, (worker.info.id,))
            return
        worker.take(self.shape, attempt)
        self._where[attempt.map] = number, attempt
        self._cluster.faults.written(self.shape.id, attempt.map)
        if len(self._where) == self.job.maps:
            self._all_written()
        self._next(executor)

    def _all_written(self) -> None:
        now = self._cluster.clock.now
        if self.reading is None:
            self.map_seconds, self._mapped = now - self._begun, now
            self.reading = Reading(self._cluster, self.shape, len(self._executors))
        outputs: defaultdict[int, list[MapAttempt]] = defaultdict(list)
        for number, attempt in self._where.values():
            outputs[number].append(attempt)
        self.reading.plan({number: sorted(attempts) for number, attempts in outputs.items()})
        self.reading.waiting = False

    def lost(self, map: int) -> None:
        """The output of a map is gone: it runs again, at once."""
        if self.over or map not in self._where:
            return
        del self._where[map]
        self._attempts[map] += 1
        self.runs_again += 1
        if self.reading is not None:
            self.reading.waiting = True
        self._run(map, self._random.choice(self._executors))

    # ------------------------------------------------------------------ reduce tasks

    def look(self) -> None:
        """Some time of the reduce stage has passed."""
        assert self.reading is not None
        if self._cluster.parameters.locate:
            while self.located < self.reading.done:
                self._locate()
                self.located += 1
        if not self._cluster.machines.up[self.reading.workers].all():
            self._refresh()
        if self.reading.over and not self.reduce_seconds:
            self.reduce_seconds = self._cluster.clock.now - self._mapped
            self._cluster.clock.after(self._cluster.parameters.linger, self._end)

    def _refresh(self) -> None:
        """A worker does not answer the reduce tasks: each executor asks the master where it is."""
        if self._cluster.clock.now < self._refreshed + REFRESH_SECONDS:
            return
        self._refreshed = self._cluster.clock.now
        request = pb.HelloRequest(protocol=messages.PROTOCOL, client="model", known=self._known)
        changes = self._cluster.master.ask_often("Hello", request, len(self._executors)).changes
        self._known = pb.WorkersKnown(epoch=changes.epoch, version=changes.version)

    def _end(self) -> None:
        self.over = True
        self._cluster.master.ask("UnregisterApp", pb.UnregisterAppRequest(app=self.job.name))

    def _locate(self) -> None:
        first, more = 0, True
        while more:
            request = pb.LocateRequest(
                shuffle=messages.key_of(self.shape.id), first_map=first, end_map=self.job.maps, page=PAGE
            )
            reply = self._cluster.master.ask("Locate", request)
            first, more = reply.next_map, reply.more
