"""A job over a network that fails: ``python -m tests.faults.cluster_network --seed S``. Needs root and `ip`.

A master and workers, each in a network namespace of its own, joined by a bridge. Between the job, the workers and the
master there are proxies that delay what passes; while maps are written and partitions read, connections get a reset,
fall silent for seconds, or a worker's cable is out. The job's records must be those that the oracle expects. With
``--replicas 2 --kill`` one worker is killed for good in the middle of it, and no map may run again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.harness.cluster import end, wait_until
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.server import ServerProcess
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing.oracle import Workload, problems, read
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from tests.faults import network
from tests.faults.cluster_writers import write_all
from tests.faults.fault_proxy import FaultProxy

THREADS = 4
PARTITIONS_A_READ = 50
CALM_S = (0.2, 1.0)  # between two faults
SILENT_S = (0.2, 2.0)
WORKER_TIMEOUT_S = 20  # longer than any silence


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a job. `wrong`: what the oracle found. `faults`: how many of each kind."""

    seed: int
    workers: int
    maps: int
    partitions: int
    records: int
    replicas: int
    killed_after_s: float | None
    delay_ms: float
    faults: dict[str, int]
    attempts_begun_anew: int
    outputs_by_worker: list[int]
    write_s: float
    read_s: float
    wrong: list[str]


class Faults:
    """Lets one fault follow another, in a thread. A context manager; nothing is broken when it has been left."""

    def __init__(self, seed: int, proxies: Sequence[FaultProxy], machines: Sequence[network.Machine]) -> None:
        self.done: Counter[str] = Counter()
        self._chance, self._proxies, self._machines = random.Random(seed), proxies, machines
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults")

    def __enter__(self) -> Faults:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._chance.uniform(*CALM_S)):
            kind = self._chance.choice(("reset", "silence", "cable"))
            self.done[kind] += 1
            if kind == "reset":
                self._chance.choice(self._proxies).reset()
            elif kind == "silence":
                proxy = self._chance.choice(self._proxies)
                self._for_a_while(proxy.freeze, proxy.thaw)
            else:
                machine = self._chance.choice(self._machines)
                self._for_a_while(machine.cut, machine.mend)

    def _for_a_while(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        try:
            self._stop.wait(self._chance.uniform(*SILENT_S))
        finally:
            end()


def run(
    seed: int,
    *,
    workers: int,
    maps: int,
    partitions: int,
    records: int,
    delay: float,
    faults: bool,
    replicas: int = 1,
    kill_after: float | None = None,
) -> Report:
    """One job, in this process's own network namespace.

    :param delay: in seconds, each way.
    :param kill_after: seconds after the first map until one of the workers is killed for good; None: never.
    """
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-cluster-network-")))
        net = stack.enter_context(network.Network())
        machine = net.machine()
        master = stack.enter_context(
            ServerProcess(
                root / "master",
                root / "master.log",
                ("--worker-timeout", str(WORKER_TIMEOUT_S)),
                role="master",
                listen=f"{machine.address}:0",
                prefix=machine.prefix,
            )
        )
        control = stack.enter_context(FaultProxy(master.control, f"{net.address}:0", delay=delay))
        proxies, machines, processes = [control], [], []
        for n in range(workers):
            machines.append(net.machine())
            process, proxy = _worker(stack, net, machines[-1], root / f"worker-{n}", control.address, delay)
            processes.append(process)
            proxies.append(proxy)
        wait_until(lambda: len(master.status().workers) == workers, f"{workers} workers have joined")
        injector = Faults(seed, proxies if faults else (), machines)
        workload = Workload(seed, partitions=partitions, maps=maps, records=records, size=100)
        # These machines have one file system: without the last, nothing would cross the network.
        options: dict[str, OptionValue] = {
            "server": control.address,
            "timeout": 60,
            "retry": 60,
            "replicas": replicas,
            "hand_over": "off",
        }
        plugin = stack.enter_context(RemoteShuffle(options))
        with plugin.master(f"network-{seed}") as app:
            handle = app.register_shuffle(partitions, maps)
            with injector if faults else ExitStack():
                started = time.monotonic()
                if kill_after is not None:
                    killer = threading.Timer(kill_after, random.Random(seed).choice(processes).kill)
                    stack.callback(killer.join)
                    killer.start()
                winners = write_all(plugin, handle, workload)
                written = time.monotonic()
                wrong = _read_all(plugin, handle, workload, winners)
                ended = time.monotonic()
            located = app.map_outputs(handle)
            if [output.output for output in located] != winners:
                wrong.append("committed are others than those that were acknowledged")
    return Report(
        seed=seed,
        workers=workers,
        maps=maps,
        partitions=partitions,
        records=maps * records,
        replicas=replicas,
        killed_after_s=kill_after,
        delay_ms=delay * 1000,
        faults=dict(injector.done),
        attempts_begun_anew=sum(winner.attempt for winner in winners),
        outputs_by_worker=sorted(Counter(output.worker for output in located).values()),
        write_s=round(written - started, 1),
        read_s=round(ended - written, 1),
        wrong=wrong,
    )


def _worker(
    stack: ExitStack, net: network.Network, machine: network.Machine, directory: Path, control: str, delay: float
) -> tuple[ServerProcess, FaultProxy]:
    """A worker on `machine`, and the proxy through which all others reach it: at the address that it advertises."""
    public = net.another_address()
    arguments = ("--master", control, "--data-listen", f"{machine.address}:0", "--advertise", public)
    log = directory.with_suffix(".log")
    worker = ServerProcess(directory, log, arguments, role="worker", prefix=machine.prefix)
    stack.callback(end, worker)
    port = worker.data.rpartition(":")[2]
    proxy = FaultProxy(f"{machine.address}:{port}", f"{public}:{port}", delay=delay)
    return worker, stack.enter_context(proxy)


def _read_all(
    plugin: RemoteShuffle, handle: ShuffleHandle, workload: Workload, winners: Sequence[MapAttempt]
) -> list[str]:
    """Read every partition once, and tell what is not as it was written."""
    ranges = [
        range(first, min(first + PARTITIONS_A_READ, workload.partitions))
        for first in range(0, workload.partitions, PARTITIONS_A_READ)
    ]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda partitions: read(plugin, handle, partitions), ranges))
    return problems(
        workload.expected(winners, range(workload.partitions)), (record for records in found for record in records)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cluster_network", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--maps", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1000, help="of a map (default: 1000)")
    parser.add_argument("--delay", type=float, default=1.0, metavar="MS", help="each way (default: 1)")
    parser.add_argument("--no-faults", action="store_true", help="delay only")
    parser.add_argument("--replicas", type=int, default=1, help="workers that hold each map output (default: 1)")
    parser.add_argument("--kill", type=float, metavar="S", help="kill a worker for good so long after the start")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there; default: standard output")
    given = parser.parse_args(arguments)
    if not network.possible():
        parser.error("this user may not make network namespaces here: run it as root, with `ip` and `unshare`")
    if not network.inside():
        return network.run_inside("tests.faults.cluster_network", arguments)
    report = run(
        given.seed,
        workers=given.workers,
        maps=given.maps,
        partitions=given.partitions,
        records=given.records,
        delay=given.delay / 1000,
        faults=not given.no_faults,
        replicas=given.replicas,
        kill_after=given.kill,
    )
    text = json.dumps(asdict(report), indent=1)
    print(text) if given.json is None else given.json.write_text(text + "\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    unwind_when_told_to_end()
    raise SystemExit(main())
