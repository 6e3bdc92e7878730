"""A master of thousands of workers on one processor: their heartbeats over real sockets, and commits beside them."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from bench.harness.apart import at_once
from bench.harness.process import cpu_seconds
from bench.harness.server import ServerProcess
from bench.registry.cluster import ROOM, worker_of
from bench.registry.load import TIMEOUT, WARM_UP_S, begin_app, latencies_ms, output
from shuffle_server.master.client import RegistryClient
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2

Timed: TypeAlias = tuple[list[float], float]
"""The seconds that each call took, and all of them together."""

CONNECTIONS = 900  # below `--peer-max-connections`: a machine has no more sockets to one server by default
CLIENTS, TASKS = 8, 8  # that commit
PROCESSOR = ("taskset", "--cpu-list", "0")


def measure(scratch: Path, workers: int, commits: int, seconds: float) -> dict[str, Any]:
    """Of so many workers, and commits a second; latencies count from when a call was begun, however late that was."""
    with ServerProcess(scratch / "sockets", scratch / "server.log", role="master", prefix=PROCESSOR) as server:
        epoch, interval = _join(server.control, workers)
        cpu = cpu_seconds(server.pid)
        work = [
            ("beats", server.control, seconds, (workers, epoch, interval)),
            ("commits", server.control, seconds, commits),
        ]
        beats, committed = at_once(_call, work, TIMEOUT + seconds)
        spent = cpu_seconds(server.pid) - cpu
    return {
        "workers": workers,
        "connections": min(CONNECTIONS, workers),
        "beat_interval_s": interval,
        "server_processors": round(spent / (WARM_UP_S + max(beats[1], committed[1])), 2),
        "beats": _figures(*beats),
        "commits": _figures(*committed),
    }


def _figures(latencies: list[float], seconds: float) -> dict[str, float]:
    return {"per_second": round(len(latencies) / seconds), **latencies_ms(sorted(latencies))}


def _join(address: str, workers: int) -> tuple[int, float]:
    """The master's epoch, and the interval of heartbeats when all have joined."""
    with grpc.insecure_channel(address) as channel:
        stub = rpc.ShuffleRegistryStub(channel)
        for number in range(workers):
            info = messages.worker_message(worker_of(number))
            spoken = messages.PROTOCOL
            request = pb.JoinRequest(worker=info, incarnation=1, protocol=spoken, oldest=spoken)
            reply = stub.Join(request, timeout=TIMEOUT)
    return reply.epoch, reply.beat_seconds


def _call(what: str, address: str, seconds: float, how: Any) -> Timed:
    return _beats(address, seconds, *how) if what == "beats" else _commits(address, seconds, how)


def _beats(address: str, seconds: float, workers: int, epoch: int, interval: float) -> Timed:
    found: list[float] = []
    with ExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            stack.enter_context(grpc.insecure_channel(address, options)) for _ in range(min(CONNECTIONS, workers))
        ]
        stubs = [rpc.ShuffleRegistryStub(channel) for channel in channels]
        begin, calls = time.perf_counter(), []
        for number in range(int((seconds + WARM_UP_S) * workers / interval)):
            due = begin + number * interval / workers
            time.sleep(max(0.0, due - time.perf_counter()))
            id, sent = worker_of(number % workers).id, time.perf_counter()
            identity = pb.Identity(epoch=epoch, worker=id, incarnation=1)
            status = flight_shuffle_pb2.WorkerStatus(worker=id, open_pushes=number % 9)
            call = stubs[number % workers % len(stubs)].Beat.future(
                pb.BeatRequest(identity=identity, free_bytes=ROOM, status=status), timeout=TIMEOUT
            )
            if due >= begin + WARM_UP_S:
                call.add_done_callback(lambda _, sent=sent: found.append(time.perf_counter() - sent))
            calls.append(call)
        for call in calls:
            call.result()
    return found, time.perf_counter() - begin - WARM_UP_S


def _commits(address: str, seconds: float, rate: int) -> Timed:
    found: list[float] = []
    holder, ids = begin_app(address, "bench", CLIENTS)
    every = CLIENTS * TASKS / rate
    begin = time.perf_counter()

    def work(client: RegistryClient, shuffle: Any, task: int) -> None:
        for number in range(int((seconds + WARM_UP_S) / every)):
            due = begin + (number + task / TASKS) * every
            time.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            client.commit(shuffle, output(number * TASKS + task, holder))
            if due >= begin + WARM_UP_S:
                found.append(time.perf_counter() - sent)

    with ExitStack() as stack:
        threads = []
        for id in ids:
            client = stack.enter_context(closing(RegistryClient(address, timeout=TIMEOUT)))
            threads += [threading.Thread(target=work, args=(client, id, task)) for task in range(TASKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found, time.perf_counter() - begin - WARM_UP_S
