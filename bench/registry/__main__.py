"""The registry's speed: ``python -m bench.registry --json FILE``. docs/benchmarks/README.md says what the figures mean.

Durable commits through gRPC from many clients, the cost of the log (with and without it in turn), the recovery of a
million operations, the first page of a large lookup, and the requests of a master of ten thousand workers. Takes about
five minutes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.harness import program
from bench.harness.process import cpu_seconds
from bench.harness.server import ServerProcess
from bench.registry import cluster, recovery, sockets
from bench.registry.load import MAPS, PARTITIONS, Mode, begin_app, latencies_ms, load_from_processes, output, share_of
from bench.registry.master import master_process
from shuffle_server.master.client import RegistryClient
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb

TIMEOUT = 240.0


@dataclass(frozen=True, slots=True)
class Parameters:
    clients: int = 16
    processes: int = 2  # that the clients run in
    modes: tuple[str, ...] = ("1x1", "1x4", "1x8", "4x1", "16x1")  # of each client: tasks x map outputs at a time
    cost_mode: str = "32x1"  # of the log's cost: as many as saturate the machine
    seconds: float = 5.0
    rounds: int = 6  # of the log's cost
    operations: int = 1_000_000
    lookups: int = 50
    workers: int = 10_000  # of the parts `cluster` and `sockets`
    apps: int = 200
    outputs: int = 1_000_000
    rate: int = 5000  # commits a second of the part `sockets`


def _durable(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """`flight-shuffle server --durability fsynced`, a fresh one for each mode."""
    found = {}
    for mode in parameters.modes:
        with ServerProcess(scratch / f"server-{mode}", scratch / "server.log", ["--durability", "fsynced"]) as server:
            found[mode] = _run(parameters, server.control, server.pid, mode)
    return found


def _run(parameters: Parameters, address: str, pid: int, mode: str) -> dict[str, float]:
    cpu = cpu_seconds(pid)
    latencies = load_from_processes(
        address,
        "bench",
        processes=parameters.processes,
        clients=parameters.clients,
        mode=Mode.of(mode),
        seconds=parameters.seconds,
    )
    return {**_figures(latencies, parameters.seconds), "server_cpu_s": round(cpu_seconds(pid) - cpu, 2)}


def _figures(latencies: Sequence[float], seconds: float) -> dict[str, float]:
    return {"commits_s": round(len(latencies) / seconds, 1), **latencies_ms(sorted(latencies))}


def _log_cost(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """Commits/s of the same master with a synced log, a written log and none: A B C C B A ..., medians."""
    sides: dict[str, list[dict[str, float]]] = {"synced": [], "written": [], "none": []}
    for number in range(parameters.rounds):
        for log in reversed(sides) if number % 2 else sides:
            with master_process(scratch / f"cost-{log}-{number}", log) as master:
                sides[log].append(_run(parameters, master.address, master.pid, parameters.cost_mode))
    rates = {log: [each["commits_s"] for each in figures] for log, figures in sides.items()}
    medians = {log: statistics.median(values) for log, values in rates.items()}
    return {
        "ratio_synced": round(medians["synced"] / medians["none"], 4),
        "ratio_written": round(medians["written"] / medians["none"], 4),
        "ratios_synced": [round(a / b, 4) for a, b in zip(rates["synced"], rates["none"], strict=True)],
        "ratios_written": [round(a / b, 4) for a, b in zip(rates["written"], rates["none"], strict=True)],
        "median_commits_s": medians,
        "rounds_commits_s": rates,
        "server_cpu_us_per_commit": {
            log: round(statistics.median(1e6 * each["server_cpu_s"] / _all(parameters, each) for each in figures), 1)
            for log, figures in sides.items()
        },
    }


def _all(parameters: Parameters, figures: dict[str, float]) -> float:
    """Commits of a run, those of the warm-up included."""
    return figures["commits_s"] * (parameters.seconds + 1)


def _lookup(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """Pages of a shuffle of 1,000 partitions and 10,000 maps."""
    with ServerProcess(scratch / "lookup", scratch / "server.log") as server:
        worker, (id,) = begin_app(server.control, "bench", 1)
        with closing(RegistryClient(server.control, timeout=TIMEOUT)) as client:
            client.commit_all(id, [output(map_id, worker) for map_id in range(MAPS)])
        with closing(ControlClient(server.control, client="flight-shuffle-bench", timeout=TIMEOUT)) as control:
            first, whole, pages = [], [], 0
            for _ in range(parameters.lookups):
                started = time.perf_counter()
                reply = control.call("Locate", pb.LocateRequest(shuffle=messages.key_of(id)))
                first.append(time.perf_counter() - started)
                pages, found = 1, [messages.map_output(each) for each in reply.outputs]
                while reply.more:
                    request = pb.LocateRequest(shuffle=messages.key_of(id), first_map=reply.next_map)
                    reply = control.call("Locate", request)
                    found += map(messages.map_output, reply.outputs)
                    pages += 1
                whole.append(time.perf_counter() - started)
    return {
        "partitions": PARTITIONS,
        "maps": len(found),
        "pages": pages,
        "first_page_p50_ms": round(1e3 * statistics.median(first), 2),
        "first_page_p99_ms": round(1e3 * share_of(sorted(first), 0.99), 2),
        "all_pages_p50_ms": round(1e3 * statistics.median(whole), 2),
    }


def _recovery(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    return recovery.measure(scratch / "recovery", parameters.operations)


def _cluster(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    return cluster.measure(scratch, parameters.workers, parameters.apps, parameters.outputs)


def _sockets(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    return sockets.measure(scratch, parameters.workers, parameters.rate, parameters.seconds)


HELP = {
    "modes": "of each client, TASKSxBATCH",
    "cost_mode": "for the log's cost",
    "seconds": "of each run, after a second of warm-up",
    "rate": "commits a second of `sockets`",
}
PARTS = {
    "grpc": _durable,
    "log_cost": _log_cost,
    "recovery": _recovery,
    "lookup": _lookup,
    "cluster": _cluster,
    "sockets": _sockets,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = program.parser("registry", __doc__)
    program.add_options(parser, **{name: (value, HELP.get(name, name)) for name, value in asdict(Parameters()).items()})
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="the file keeps the others")
    given = vars(parser.parse_args(arguments))
    path, parts, scratch = given.pop("json"), given.pop("parts"), given.pop("scratch")
    parameters = Parameters(**{**given, "modes": tuple(given["modes"])})
    with tempfile.TemporaryDirectory(prefix="bench-registry-", dir=scratch) as folder:
        report = program.measure("registry", parameters, Path(folder), parts, PARTS)
    program.publish({**program.kept(path), **report}, path)


if __name__ == "__main__":
    program.run(main)
