"""Two machines, each with the master of one registry and a standby of the other one: one machine ends."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench.harness.server import ServerProcess, lasting_addresses
from bench.shared_workers import NAMES, Job, app_of
from tests.shuffle_server.master.database import running_database
from tests.shuffle_server.master_process import MasterProcess

OTHER = dict(zip(NAMES, reversed(NAMES), strict=True))


def test_the_other_machine_takes_over_the_registry_of_one_that_ends(tmp_path: Path) -> None:
    ends = lasting_addresses(4)
    address = dict(zip([(registry, machine) for registry in NAMES for machine in NAMES], ends, strict=True))
    masters = ",".join(f"{name}={address[name, name]},{address[name, OTHER[name]]}" for name in NAMES)
    with ExitStack() as stack:
        database = stack.enter_context(running_database())
        schemas = {name: database.fresh() for name in NAMES}

        def start(registry: str, machine: str) -> MasterProcess:
            options, control = ("--registry", registry, "--masters", masters), address[registry, machine]
            directory = tmp_path / f"{registry}-on-{machine}"
            return stack.enter_context(MasterProcess(directory, schemas[registry], options, control))

        leading = {name: start(name, name) for name in NAMES}
        for each in leading.values():
            each.await_leading()
        standbys = {name: start(name, OTHER[name]) for name in NAMES}
        for each in standbys.values():
            each.await_standing_by()
        for number in range(2):
            worker = ServerProcess(
                tmp_path / f"w{number}", tmp_path / f"w{number}.log", ("--master", masters), role="worker"
            )
            stack.callback(worker.stop)
        jobs = [Job(",".join(ends), app_of(name)) for name in NAMES]
        for job in jobs:
            stack.callback(job.stop)
            job.await_rounds(2)
        for process in (leading["b"].process, standbys["a"].process):
            process.kill()
        standbys["b"].await_leading()
        for job in jobs:
            job.await_rounds(2)
