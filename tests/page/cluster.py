"""A master with many shuffles, whose workers are simulated: they join and send heartbeats, and have no data."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.harness.server import ServerProcess
from shuffle_api.backoff import Backoff
from shuffle_api.errors import DeadlineExceeded, Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server import __version__
from shuffle_server.master.client import RegistryClient
from shuffle_server.proto import registry_pb2
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb

OPTIONS = ("--http-listen", "127.0.0.1:0", "--app-timeout", "1h", "--worker-timeout", "10m")
CALL_S = 120.0
SHUFFLES_OF_AN_APP = 500
MAPS, PARTITIONS = 4, 1000
DISK = 4 << 40
COMPACTED_SHOWN = 8  # shuffles that a worker names in its heartbeats
CLIENT = "flight-shuffle-test"
Answer = TypeVar("Answer")


class SimulatedWorkers:
    """Workers of a master at `address`, from the constructor on until `close`."""

    def __init__(self, address: str, count: int) -> None:
        self._random = random.Random(count)
        self._client = ControlClient(address, client=CLIENT, timeout=CALL_S, stub=rpc.ShuffleRegistryStub)
        self._traffic = [0] * count
        self.ids = [f"worker-{number:04}" for number in range(count)]
        for number, id in enumerate(self.ids):
            host = f"127.1.{number // 200}.{1 + number % 200}"  # where nobody listens, should the master ask
            worker = messages.worker_message(WorkerInfo(id, host, 1, DISK // 2))
            request = registry_pb2.JoinRequest(
                worker=worker, incarnation=1, protocol=messages.PROTOCOL, oldest=messages.PROTOCOL
            )
            reply: registry_pb2.JoinReply = self._client.call("Join", request)
        self._epoch = reply.epoch
        self._task = PeriodicTask("heartbeats", self._beat_all, reply.beat_seconds / 2, at_once=True)
        self._task.start()

    def close(self) -> None:
        self._task.close()
        self._client.close()

    def _beat_all(self) -> None:
        for number, id in enumerate(self.ids):
            self._traffic[number] += self._random.randrange(100 << 20)
            identity = registry_pb2.Identity(epoch=self._epoch, worker=id, incarnation=1)
            status = self._status(id, self._traffic[number])
            request = registry_pb2.BeatRequest(identity=identity, free_bytes=DISK // 2, status=status)
            self._client.call("Beat", request)

    def _status(self, id: str, traffic: int) -> pb.WorkerStatus:
        used = self._random.randrange(DISK // 2)
        return pb.WorkerStatus(
            worker=id,
            release=__version__,
            memory_budget=8 << 30,
            memory_used=self._random.randrange(8 << 30),
            waiting_streams=int(id[-1]),
            open_pushes=self._random.randrange(64),
            open_pulls=self._random.randrange(64),
            bytes_pushed=traffic,
            bytes_pulled=2 * traffic,
            credit_stalls=traffic >> 20,
            credit_stall_seconds=traffic / (1 << 30),
            disks=(
                pb.DiskStatus(path=f"/mnt/disk{n}/flight-shuffle", size=DISK, used=used, free=DISK - used)
                for n in range(4)
            ),
            compactions=(
                pb.ShuffleCompaction(shuffle=pb.ShuffleKey(app=app_of(0), shuffle=n), compacted=n + 1)
                for n in range(COMPACTED_SHOWN)
            ),
        )


class ManyShuffles:
    """A master of its own process with so many shuffles of simulated workers. A context manager."""

    def __init__(self, root: Path, workers: int, shuffles: int) -> None:
        self._stack = ExitStack()
        try:
            self.master = self._stack.enter_context(
                ServerProcess(root / "master", root / "master.log", OPTIONS, role="master")
            )
            self.workers = self._stack.enter_context(closing(SimulatedWorkers(self.master.control, workers)))
            apps = -(-shuffles // SHUFFLES_OF_AN_APP)
            with closing(ControlClient(self.master.control, client=CLIENT, timeout=CALL_S)) as control:
                self._fill(control, apps, shuffles)
        except BaseException:
            self._stack.close()
            raise

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://{self.master.metrics}/"

    def _fill(self, control: ControlClient, apps: int, shuffles: int) -> None:
        for number in range(apps):
            name = f"warehouse load {number}"
            driver = pb.Driver(
                user="etl-nightly", host=f"edge-{number % 7}.example.com", began=time.time() - 60 * number
            )
            request = pb.RegisterAppRequest(app=app_of(number), instance="i", name=name, driver=driver)
            control.call("RegisterApp", request)
        chance = random.Random(shuffles)
        with closing(RegistryClient(self.master.control, timeout=CALL_S)) as registry, ThreadPoolExecutor(8) as pool:
            done = []
            for number in range(shuffles):
                spec = ShuffleSpec(ShuffleId(app_of(number % apps), number // apps), PARTITIONS, MAPS)
                outputs = [self._output(map_id, chance) for map_id in range(chance.randrange(1, MAPS + 1))]
                done.append(pool.submit(_write, control, registry, spec, outputs))
            for each in done:
                each.result()

    def _output(self, map_id: int, chance: random.Random) -> MapOutput:
        size = chance.randrange(1 << 30)
        totals = Totals(PARTITIONS, size, 2 * size, size // 100, map_id)
        return MapOutput(MapAttempt(map_id, 0), chance.choice(self.workers.ids), totals)

    def __enter__(self) -> ManyShuffles:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def app_of(number: int) -> str:
    """As long as those that engines make."""
    return f"app-20261129051{number:04}-0042~{number:032x}"


def _write(control: ControlClient, registry: RegistryClient, spec: ShuffleSpec, outputs: list[MapOutput]) -> None:
    reply: pb.RegisterShuffleReply = _patiently(lambda: control.call("RegisterShuffle", messages.spec_message(spec)))
    id = ShuffleId(spec.id.app, spec.id.shuffle, reply.generation)
    for each in outputs:
        _patiently(partial(registry.commit, id, each))


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """On a busy machine the master's disk may not keep up for a while."""
    backoff = Backoff(CALL_S)
    while True:
        try:
            return ask()
        except (Overloaded, DeadlineExceeded):
            if (pause := backoff.pause()) is None:
                raise
            time.sleep(pause)
