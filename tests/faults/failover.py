"""A leader that fails in the middle of a job: ``python -m tests.faults.failover --seeds 50``.

Two masters that share a PostgreSQL, two workers, all of them processes, and a job whose records an oracle compares. At
a moment that the seed draws, the leading master is killed, stopped, frozen, cut off from the database, or loses its
session there. Within TAKEOVER_S the other one has to lead; no record, output or worker may be lost; and the probes of
the other one, /health and /ready, have to be green from when it stands by until the end.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.harness import machine
from bench.harness.cluster import wait_until
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.server import ServerProcess
from shuffle_api.errors import ShuffleError
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing.oracle import Workload, problems, read
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.postgres.session import LEASE_SECONDS
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.faults.cluster_writers import write_all
from tests.faults.fault_proxy import FaultProxy
from tests.shuffle_server.master.database import Database, running_database
from tests.shuffle_server.master_process import TIMEOUT, MasterProcess, reached_at, socket_of

TAKEOVER_S = 10.0
WORKERS, SHUFFLES, MAPS, PARTITIONS, RECORDS = 2, 2, 12, 8, 300
PROBE_S = 0.05  # between two rounds of probes
ENDS_WITH = {"kill": -9, "stop": 0, "session": 1, "freeze": 1, "cut": 1}
"""What may become of the leader, and the exit status that it has in the end."""
LOSE_SESSION = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"


@dataclass(frozen=True, slots=True)
class Plan:
    """When `nth` maps are about to commit, or ranges of partitions are about to be read (`phase`), `fault` strikes the
    leader `after` seconds later."""

    seed: int
    fault: str
    phase: str
    nth: int
    after: float
    by_file: bool


@dataclass(frozen=True, slots=True)
class Report:
    """`takeover_s`: from the fault until the other master leads. `probes`: answers of /health and of /ready. `wrong`:
    whatever should not be, but for a takeover that takes too long."""

    seed: int
    fault: str
    phase: str
    takeover_s: float
    probes: int
    seconds: float
    wrong: list[str]


def draw(seed: int) -> Plan:
    """The plan of a seed, the same one each time."""
    chance = random.Random(f"failover {seed}")
    phase = chance.choice(("write", "write", "read"))
    return Plan(
        seed,
        chance.choices(tuple(ENDS_WITH), (4, 2, 2, 3, 3))[0],
        phase,
        chance.randrange(SHUFFLES * (MAPS if phase == "write" else PARTITIONS)),
        chance.choice((0.0, 0.0, 0.01, 0.1)),
        chance.random() < 0.3,
    )


class Probes:
    """Asks a master that stands by, again and again, in a thread: what a supervisor asks, and whether it leads. A
    context manager.

    :ivar leads_at: when it was seen to lead, on the clock `time.monotonic`.
    """

    def __init__(self, master: MasterProcess) -> None:
        self.leads_at: float | None = None
        self.count, self.red = 0, list[str]()
        self._master = master
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probes")

    def _run(self) -> None:
        while not self._over.wait(PROBE_S):
            try:
                if self.leads_at is None and self._master.answer("/leader")[0] == 200:
                    self.leads_at = time.monotonic()
                for path in ("/health", "/ready"):
                    status, document = self._master.answer(path)
                    self.count += 1
                    if status != 200:
                        self.red.append(f"{path}: {status} {document['checks']}")
            except OSError as error:
                self.red.append(f"a probe failed: {error}")

    def __enter__(self) -> Probes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Fault:
    """What strikes the leader, once, in a thread of its own: the job goes on meanwhile.

    :ivar struck_at: when it did.
    """

    def __init__(self, plan: Plan, leader: MasterProcess, database: str, proxy: FaultProxy) -> None:
        self.struck_at: float | None = None
        self._plan, self._leader, self._database, self._proxy = plan, leader, database, proxy
        self._lock, self._left = threading.Lock(), plan.nth + 1
        self._thread = threading.Thread(target=self._strike, name="fault")

    def reached(self, phase: str) -> None:
        """One step of the job is about to be taken."""
        with self._lock:
            self._left -= phase == self._plan.phase
            if self._left or phase != self._plan.phase:
                return
        self._thread.start()

    def _strike(self) -> None:
        time.sleep(self._plan.after)
        self.struck_at = time.monotonic()
        if self._plan.fault == "kill":
            self._leader.process.kill()
        elif self._plan.fault == "stop":
            self._leader.process.terminate()
        elif self._plan.fault == "session":
            with closing(psycopg.connect(self._database, autocommit=True)) as connection:
                connection.execute(LOSE_SESSION)
        elif self._plan.fault == "freeze":
            self._leader.stop()
        else:
            self._proxy.freeze()
            time.sleep(LEASE_SECONDS)
            self._proxy.reset()  # as TCP's user timeout does with a connection that acknowledges nothing

    def end(self) -> int:
        """Nothing holds the leader up any more; how it has ended."""
        self._thread.join()
        if self._plan.fault == "freeze":
            self._leader.go_on()
        self._proxy.thaw()
        return self._leader.process.wait(TIMEOUT)


def run(plan: Plan, database: Database) -> Report:
    """One job, to its end."""
    began, metadata = time.monotonic(), database.fresh()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"failover-{plan.seed}-")))
        proxy = stack.enter_context(FaultProxy(socket_of(metadata)))
        url = reached_at(proxy.address, metadata) if plan.fault == "cut" else metadata
        leader = stack.enter_context(MasterProcess(root / "one", url))
        leader.await_leading()
        standby = stack.enter_context(MasterProcess(root / "two", metadata))
        standby.await_standing_by()
        both = f"{leader.control},{standby.control}"
        for n in range(WORKERS):
            log = root / f"worker-{n}.log"
            stack.enter_context(ServerProcess(root / f"worker-{n}", log, ["--master", both], role="worker"))
        fault = Fault(plan, leader, metadata, proxy)
        with Probes(standby) as probes:
            wrong = _job(plan, both, fault)
            wait_until(lambda: probes.leads_at is not None, "the other master leads")
            wrong += _lost(standby.control)
        status = fault.end()
    assert probes.leads_at is not None
    assert fault.struck_at is not None
    if status != ENDS_WITH[plan.fault]:
        wrong.append(f"the leader that failed ended with status {status}, not {ENDS_WITH[plan.fault]}")
    takeover, seconds = probes.leads_at - fault.struck_at, time.monotonic() - began
    wrong += [f"of {probes.count} probes {len(probes.red)} are red: {probes.red[0]}"] if probes.red else []
    return Report(plan.seed, plan.fault, plan.phase, round(takeover, 2), probes.count, round(seconds, 1), wrong)


def _job(plan: Plan, servers: str, fault: Fault) -> list[str]:
    """Write and read shuffles; what is wrong with what was read, or committed."""
    options: dict[str, OptionValue] = {"server": servers, "timeout": 60, "retry": 60}
    options |= {"hand_over": "auto", "hand_over_from": 0} if plan.by_file else {"hand_over": "off"}
    wrong: list[str] = []
    with RemoteShuffle(options) as plugin, plugin.master(f"failover-{plan.seed}") as job:
        for number in range(SHUFFLES):
            workload = Workload(plan.seed + number, PARTITIONS, MAPS, RECORDS)
            handle = job.register_shuffle(PARTITIONS, MAPS)
            winners = write_all(plugin, handle, workload, lambda attempt: fault.reached("write"))
            wrong += [f"{winner} is not the first attempt" for winner in winners if winner.attempt]
            for partition in range(PARTITIONS):
                fault.reached("read")
                wrong += _read(plugin, handle, range(partition, partition + 1), workload, winners)
            if [output.output for output in job.map_outputs(handle)] != winners:
                wrong.append("committed are others than those that were acknowledged")
    return wrong


def _read(
    plugin: RemoteShuffle, handle: ShuffleHandle, partitions: range, workload: Workload, winners: Sequence[Any]
) -> list[str]:
    return problems(workload.expected(winners, partitions), read(plugin, handle, partitions))


def _lost(control: str) -> list[str]:
    """What the master that leads now has lost."""

    def status() -> pb.StatusReply:
        with closing(ControlClient(control, client="failover", timeout=60, retry=60)) as client:
            reply: pb.StatusReply = client.call("Status", pb.StatusRequest())
            return reply

    found = status()
    lost = {
        "workers": found.workers_lost,
        "outputs": found.outputs_lost,
        "absent workers": WORKERS - len(found.workers),
    }
    return [f"{count} {what} are lost" for what, count in lost.items() if count]


def run_all(seeds: Sequence[int], each: Callable[[Report], object]) -> list[Report]:
    """Of the runs of these seeds, one after the other."""
    reports = []
    with running_database() as database:
        for seed in seeds:
            plan = draw(seed)
            try:
                report = run(plan, database)
            except (ShuffleError, OSError, AssertionError) as error:  # TimeoutError is an OSError
                report = Report(seed, plan.fault, plan.phase, -1.0, 0, 0.0, [f"{type(error).__name__}: {error}"])
            each(report)
            reports.append(report)
    return reports


def complaints(report: Report) -> list[str]:
    """What is wrong with a run, a takeover that takes too long included."""
    late = [f"the takeover took {report.takeover_s:g} s, more than {TAKEOVER_S:g} s"]
    return report.wrong + (late if report.takeover_s > TAKEOVER_S else [])


def summary(reports: Sequence[Report]) -> dict[str, dict[str, float]]:
    """The takeovers by fault."""
    by_fault: defaultdict[str, list[float]] = defaultdict(list)
    for report in reports:
        by_fault[report.fault].append(report.takeover_s)
    return {
        fault: {"runs": len(times), "median_s": round(statistics.median(times), 2), "longest_s": max(times)}
        for fault, times in sorted(by_fault.items())
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.failover", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=50, help="how many runs (default: 50)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the reports there")
    given = parser.parse_args(arguments)

    def say(report: Report) -> None:
        wrong = complaints(report)
        print(f"{'WRONG' if wrong else 'ok   '} {report.seconds:6.1f} s  {draw(report.seed)}", flush=True)
        print(f"      takeover {report.takeover_s:g} s, {report.probes} probes; {'; '.join(wrong)}", flush=True)

    reports = run_all(range(given.seed, given.seed + given.seeds), say)
    failing = [report.seed for report in reports if complaints(report)]
    found = {"machine": machine.facts(), "faults": summary(reports), "runs": len(reports), "failing": failing}
    print(json.dumps(found, indent=1))
    if given.json:
        found["each"] = [asdict(report) for report in reports]
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(bool(failing))


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
