"""Random schedules of writers and readers, attempts that give up and race: readers get the winners', or an error."""

from __future__ import annotations

import random
import threading
import time
from functools import partial

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import in_threads
from tests.shuffle_plugins.hybrid.scene import WAIT, Scene

OPENINGS = 3 * 3 + 2
"""Times that a reader begins: each attempt that does not win may cost one, up to three of each of three maps, and so
may a stop half way."""


class Schedule:
    """What happens in one run, all from its seed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        maps, partitions = chance.randrange(1, 4), chance.randrange(1, 5)
        self.workload = oracle.Workload(seed, partitions, maps, records=chance.choice([5, 300, 1500]), size=300)
        self.options: dict[str, OptionValue] = {
            "local": chance.randrange(2) == 0,
            "block_bytes": chance.choice([4 << 10, 64 << 10]),
            "flush_timeout": chance.choice([0.001, 0.02]),
            "lane_bytes": chance.choice([64 << 10, 16 << 20]),
            "wait": chance.choice([0.02, 0.3, 30.0]),
            "linger": 0.0,
            "window": 1 << 20,
        }
        self.chance = chance

    def writers(self) -> list[list[tuple[MapAttempt, int, bool]]]:
        """Threads, each with its attempts: how many records it writes, and whether it commits then."""
        threads: list[list[tuple[MapAttempt, int, bool]]] = []
        for map in range(self.workload.maps):
            records = self.workload.records
            tries = self.chance.randrange(3)
            given_up = [(MapAttempt(map, n), self.chance.randrange(records + 1), False) for n in range(tries)]
            threads.append([*given_up, (MapAttempt(map, tries), records, True)])
            if self.chance.randrange(3) == 0:  # another one at the same time: the first to commit wins
                threads.append([(MapAttempt(map, tries + 1), records, True)])
        return threads


class Run:
    """The tasks of a schedule, as functions that threads call."""

    def __init__(self, schedule: Schedule, scene: Scene) -> None:
        self.schedule, self.scene = schedule, scene
        self.failed = threading.Event()  # an attempt did not win: readers may fail

    def write(self, attempts: list[tuple[MapAttempt, int, bool]], seed: int) -> None:
        chance = random.Random(seed)
        for attempt, count, commits in attempts:
            time.sleep(chance.choice([0.0, 0.05, 0.2]))
            with self.scene.writer(attempt.map, attempt.attempt) as writer:
                for n, (partition, record) in enumerate(self.schedule.workload.written(attempt)[:count]):
                    writer.write(partition, record)
                    if n % 100 == 0:
                        time.sleep(chance.choice([0.0, 0.0, 0.01, 0.05]))
                if not commits or writer.commit().output != attempt:
                    self.failed.set()

    def read(self, partitions: range, seed: int) -> None:
        """A reader, slow or fast, early or late; one that fails, or is stopped half way, begins again."""
        chance = random.Random(seed)
        pause, stops = chance.choice([0.0, 0.0, 0.001, 0.01]), chance.randrange(4) == 0
        for _ in range(OPENINGS):
            time.sleep(chance.choice([0.0, 0.0, 0.1, 0.5]))
            got: list[oracle.Record] = []
            try:
                with self.scene.reader(partitions) as reader:
                    for n, record in enumerate(reader):
                        got.append(record)
                        if n % 50 == 0:
                            time.sleep(pause)
                        if stops and n == 200:
                            break
                    else:
                        self.check(partitions, got)
                        return
                    stops = False
            except StreamBroken:
                assert self.failed.wait(WAIT), "no attempt has failed"
        raise AssertionError(f"the reader of {partitions} did not come to an end in {OPENINGS} openings")

    def check(self, partitions: range, got: list[oracle.Record]) -> None:
        """What was read is what the winners wrote. They are known by now: the reader has read to its end."""
        winners = [output.output for output in self.scene.master.map_outputs(self.scene.handle)]
        assert len(winners) == self.schedule.workload.maps
        oracle.verify(self.schedule.workload.expected(winners, partitions), got)


@pytest.mark.parametrize("seed", range(30))
def test_every_reader_gets_what_the_winners_wrote_each_record_once_and_in_order(
    seed: int, server: ServerProcess
) -> None:
    schedule = Schedule(seed)
    workload, chance = schedule.workload, schedule.chance
    options: dict[str, OptionValue] = {"server": server.control, "timeout": 120.0, "retry": 60.0, **schedule.options}
    with Scene(workload.partitions, workload.maps, options) as scene:
        run = Run(schedule, scene)
        writers = [partial(run.write, attempts, chance.randrange(1 << 30)) for attempts in schedule.writers()]
        readers = []
        for _ in range(chance.randrange(1, 5)):
            start = chance.randrange(workload.partitions)
            wanted = range(start, chance.randrange(start, workload.partitions) + 1)
            readers.append(partial(run.read, wanted, chance.randrange(1 << 30)))
        in_threads(*writers, *readers)
        run.read(range(workload.partitions), chance.randrange(1 << 30))  # and again, when all is over
