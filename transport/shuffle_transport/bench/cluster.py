"""``flight-shuffle bench cluster``: what the network and the disks of a running cluster do, as seen from this machine.

Each worker alone, then all at once: map outputs of random bytes are pushed and committed, then pulled and verified.
Nothing is compressed. Several pushes and pulls of a worker go on at a time, each over a connection of its own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from shuffle_api.errors import Overloaded, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId, new_run
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import ShuffleSpec, WorkerInfo
from shuffle_transport import messages
from shuffle_transport.bench import machine
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.progress import Progress, say
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials, Keyring

APP = "bench-cluster"
BLOCK = 1 << 20
ROUND_TRIPS = 50


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes that are written to each worker and read again, in so many streams at a time; seconds for each of them."""

    size: int
    streams: int
    timeout: float


def measure(server: str, keyring: Keyring, work: Work, *, quiet: bool = False) -> dict[str, Any]:
    """The report. Raises Overloaded without a worker, and what pushes and pulls raise. `quiet`: no progress bar."""
    run, driver = new_run(APP), messages.this_driver()
    with closing(ControlClient(server, client="flight-shuffle-bench", credentials=keyring.for_app(run))) as control:
        reply = control.call("RegisterApp", pb.RegisterAppRequest(app=run, instance=run, name=APP, driver=driver))
        send = partial(_heartbeat, control, pb.HeartbeatRequest(app=run, driver=driver))
        heartbeat = PeriodicTask("bench-heartbeat", send, max(1, reply.heartbeat_seconds))
        heartbeat.start()
        try:
            workers = _serving(control, reply.workers)
            with Progress("cluster", hidden=quiet) as progress:
                return _Bench(control, run, keyring.for_app(run), work, progress).report(workers)
        finally:
            heartbeat.close()
            control.call("UnregisterApp", pb.UnregisterAppRequest(app=run))


def _heartbeat(control: ControlClient, request: pb.HeartbeatRequest) -> None:
    control.call("Heartbeat", request)


def _serving(control: ControlClient, workers: Sequence[pb.Worker]) -> list[WorkerInfo]:
    found = [messages.worker_info(each) for each in workers if not (each.draining or each.silent)]
    if not found:
        raise Overloaded(
            f"no worker of {control.address} takes map outputs", remedy="start one, or wait until one has joined"
        )
    return sorted(found, key=lambda worker: worker.id)


class _Bench:
    def __init__(
        self, control: ControlClient, run: str, credentials: Credentials, work: Work, progress: Progress
    ) -> None:
        self._control, self._run, self._credentials, self._work = control, run, credentials, work
        self._progress, self._streams, self._ended, self._phase = progress, 0, count(), ""
        self._shuffles = 0
        payload = os.urandom(BLOCK)
        self._blocks = [Block(0, crc32c(payload), BLOCK, 1, payload)] * max(1, work.size // work.streams // BLOCK)

    def report(self, workers: list[WorkerInfo]) -> dict[str, Any]:
        took = [_timed(self._control.hello) for _ in range(ROUND_TRIPS)]
        found: dict[str, Any] = {
            "benchmark": "cluster",
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine.facts(),
            "parameters": asdict(self._work),
            "control_round_trip_ms": round(1e3 * statistics.median(took), 2),
            "workers": [],
        }
        self._streams = 4 * len(workers) * self._work.streams  # each is written and read alone, and with all others
        for worker in workers:
            self._phase = worker.id
            found["workers"].append({"worker": worker.id, "address": worker.address, **self._rates([worker])})
            if self._progress.is_shown:
                say(f"{worker.id}: {_rates_shown(found['workers'][-1])}")
        self._phase = "all at once"
        found["all_at_once"] = self._rates(workers)
        return found

    def _rates(self, workers: list[WorkerInfo]) -> dict[str, float]:
        """GiB/s to and from these workers together."""
        streams = [worker for worker in workers for _ in range(self._work.streams)]
        shuffle = self._register(len(streams))
        size = len(streams) * len(self._blocks) * BLOCK
        with ExitStack() as stack:
            clients = [
                stack.enter_context(
                    closing(FlightClient(worker.address, timeout=self._work.timeout, credentials=self._credentials))
                )
                for worker in streams
            ]
            pool = stack.enter_context(ThreadPoolExecutor(len(streams), "bench"))

            def all_of(transfer: Callable[[FlightClient, ShuffleId, int], None]) -> float:
                return _timed(lambda: list(pool.map(transfer, clients, [shuffle] * len(streams), range(len(streams)))))

            rates = {name: all_of(transfer) for name, transfer in (("write", self._write), ("read", self._read))}
        self._control.call("UnregisterShuffle", pb.UnregisterShuffleRequest(shuffle=messages.key_of(shuffle)))
        return {f"{name}_gib_s": round(size / seconds / machine.GIB, 3) for name, seconds in rates.items()}

    def _register(self, maps: int) -> ShuffleId:
        spec = ShuffleSpec(ShuffleId(self._run, self._shuffles), 1, maps, codec="none")
        self._shuffles += 1
        reply = self._control.call("RegisterShuffle", messages.spec_message(spec))
        return replace(spec.id, generation=reply.generation)

    def _write(self, client: FlightClient, shuffle: ShuffleId, map_id: int) -> None:
        target = PushTarget(shuffle, MapAttempt(map_id, 0), 1, "none")
        totals = totals_of(table_rows(self._blocks))
        client.push(target, self._blocks, first_block=0, end=totals, commit=True)
        self._note_end("written")

    def _read(self, client: FlightClient, shuffle: ShuffleId, map_id: int) -> None:
        maps = [pb.MapAttempt(map=map_id)]
        for item in client.pull(pb.GetTicket(shuffle=messages.key_of(shuffle), end_partition=1, maps=maps)):
            if isinstance(item, ShuffleError):
                raise item
        self._note_end("read")

    def _note_end(self, what: str) -> None:
        self._progress.at(next(self._ended) + 1, self._streams, f"{self._phase}: {what}")


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    rows = [("worker", "address", "write GiB/s", "read GiB/s")]
    together = {"worker": "all at once", "address": "", **report["all_at_once"]}
    for each in (*report["workers"], together):
        rows.append((each["worker"], each["address"], *(f"{each[f'{n}_gib_s']:.2f}" for n in ("write", "read"))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(width) for c, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, f"round trip to the master: {report['control_round_trip_ms']} ms", ""])


def _rates_shown(rates: Mapping[str, Any]) -> str:
    return f"{rates['write_gib_s']:.2f} GiB/s written, {rates['read_gib_s']:.2f} GiB/s read"


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
