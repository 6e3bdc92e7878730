"""Checkpoints and restarts at random moments with data in flight: every record counts once, whatever the alignment.

One thread plays all tasks, so that readers stand still for as long as it likes: much is in flight at both ends.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from shuffle_api.errors import DeadlineExceeded
from shuffle_api.interfaces import OptionValue
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Alignment, Barrier, Captured, ReaderState, WriterState, key_group_range
from shuffle_plugins.pipelined import DataBlock, PipelinedReader, PipelinedWriter
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene

MAPS, PARTITIONS, READERS, STEPS = 2, 4, 2, 250
PADDING = bytes(20_000)
ENOUGH = 2 << 20  # bytes that wait unsent, from which on nothing more is written: it would wait for ever

Seen = Counter[tuple[int, int]]


class Job:
    """Two producers, two consumers and their coordinator.

    :param logged: consumers have stored all of their state only at the checkpoint that one of them acknowledged last
        (its materialization), and go back to that one; producers go back to the last complete one.
    """

    def __init__(self, scene: Scene, chance: random.Random, *, logged: bool) -> None:
        self.scene, self.chance, self.logged = scene, chance, logged
        self.attempt, self.checkpoint, self.complete, self.given_up = 0, -1, -1, -1
        self.materialized, self.replays, self.acknowledged = -1, 0, 0.5
        self.writers: list[PipelinedWriter] = []
        self.readers: list[PipelinedReader] = []
        self.written = [0] * MAPS
        self.seen: list[Seen] = [Counter() for _ in range(READERS)]
        self.snapshots: list[Seen] = [Counter() for _ in range(READERS)]
        self.stored_writers: dict[int, list[WriterState]] = {}
        self.stored_readers: dict[int, dict[int, tuple[Seen, ReaderState]]] = {}
        self.in_flight = 0
        self.start()

    def start(self) -> None:
        """Everything, from the last complete checkpoint."""
        stored = self.stored_writers.get(self.complete)
        self.writers = [
            self.scene.writer(map, self.attempt, restore=stored[map] if stored else None) for map in range(MAPS)
        ]
        self.written = [state.records for state in stored] if stored else [0] * MAPS
        self.readers = [self.open_reader(index) for index in range(READERS)]

    def open_reader(self, index: int) -> PipelinedReader:
        checkpoint = self.materialized if self.logged else self.complete
        self.replays += checkpoint < self.complete
        seen, state = self.stored_readers.get(checkpoint, {}).get(index, (Counter(), None))
        self.seen[index] = Counter(seen)
        own = key_group_range(PARTITIONS, READERS, index)
        if self.logged and state is None:
            state = ReaderState.beginning(own, range(MAPS))
        self.attempt += 1
        return self.scene.reader(own, attempt=self.attempt, restore=state)

    def write(self) -> None:
        map = self.chance.randrange(MAPS)
        writer = self.writers[map]
        if writer.statistics().queued_bytes < ENOUGH:
            number = self.written[map]
            writer.write(number % PARTITIONS, b"%d %d " % (map, number) + PADDING)
            self.written[map] += 1

    def read(self, index: int, timeout: float) -> bool:
        """One event; False at the end."""
        try:
            event = self.readers[index].poll(timeout)
        except DeadlineExceeded:
            return True
        if event is None:
            return False
        if isinstance(event, DataBlock):
            for record in unpack_records(event.payload):
                map, number = record.split(b" ")[:2]
                self.seen[index][int(map), int(number)] += 1
        elif isinstance(event, Barrier):
            self.snapshots[index] = Counter(self.seen[index])
        elif isinstance(event, Captured) and event.checkpoint > self.given_up:
            found = self.stored_readers.setdefault(event.checkpoint, {})
            found[index] = (self.snapshots[index], event.state)
            if len(found) == READERS:
                self.complete = event.checkpoint
                self.in_flight += sum(len(state.blocks) for _, state in found.values())
                self.in_flight += sum(len(state.blocks) for state in self.stored_writers[self.complete])
            if self.chance.random() < self.acknowledged and self.complete == event.checkpoint:
                self.readers[index].acknowledge(event.checkpoint)
                self.materialized = event.checkpoint
        return True

    def begin_checkpoint(self) -> None:
        self.checkpoint += 1
        for writer in self.writers:
            writer.emit(Barrier(self.checkpoint))
        self.stored_writers[self.checkpoint] = [writer.state(self.checkpoint, WAIT) for writer in self.writers]

    def checkpoint_with_backlog(self) -> None:
        """One that is sure to be completed, with data in flight."""
        for _ in range(40):
            self.write()
        self.begin_checkpoint()
        deadline = time.monotonic() + WAIT
        while self.complete < self.checkpoint:
            assert time.monotonic() < deadline
            for index in range(READERS):
                self.read(index, 0.005)

    def lose_reader(self) -> None:
        index = self.chance.randrange(READERS)
        self.given_up = self.checkpoint
        self.readers[index].close()
        self.readers[index] = self.open_reader(index)

    def lose_everything(self) -> None:
        self.given_up = self.checkpoint
        for reader in self.readers:
            reader.close()
        for writer in self.writers:
            writer.abort()
        self.attempt += 1
        self.start()

    def end(self) -> Seen:
        """All that was counted, once everything has come to its end."""
        for writer in self.writers:
            writer.commit()
        for index in range(READERS):
            while self.read(index, WAIT):
                pass
            self.readers[index].close()
        return self.seen[0] + self.seen[1]


def run(alignment: Alignment, seed: int, *, local: bool, log_dir: str = "") -> tuple[Job, Seen, Seen]:
    """One job to its end: what was expected, what was counted."""
    chance = random.Random(f"{alignment} {seed} {local}")
    options: dict[str, OptionValue] = {
        "guarantee": "exactly_once",
        "alignment": alignment.value,
        "alignment_timeout": 0.02,
        "block_bytes": 30_000,
        "log_bytes": 100_000 if log_dir else 64 << 20,
        "log_dir": log_dir,
        "window": 1 << 20,
        "debloat_target": 0,
        "flush_timeout": 0.002,
        "timeout": WAIT,
        "local": local,
    }
    with Scene(PARTITIONS, MAPS, options) as scene:
        job = Job(scene, chance, logged=bool(log_dir))
        for step in range(STEPS):
            if step == STEPS // 2:
                job.acknowledged = 0 if log_dir else 0.5
                job.checkpoint_with_backlog()
                job.acknowledged = 0.5
                if log_dir:  # consumers have to be replayed to, for certain
                    job.lose_everything()
            pick = chance.random()
            if pick < 0.7:
                job.write()
            elif pick < 0.93:
                job.read(chance.randrange(READERS), 0.005)
            elif pick < 0.97:
                job.begin_checkpoint()
            elif pick < 0.99:
                job.lose_reader()
            else:
                job.lose_everything()
        written = list(job.written)
        seen = job.end()
    return job, Counter({(map, number): 1 for map in range(MAPS) for number in range(written[map])}), seen


@pytest.mark.parametrize("local", [True, False], ids=["local", "connected"])
@pytest.mark.parametrize("alignment", list(Alignment))
def test_every_record_counts_once(alignment: Alignment, local: bool) -> None:
    for seed in range(5):
        job, expected, seen = run(alignment, seed, local=local)
        assert seen == expected, (seed, seen - expected, expected - seen)
        assert job.complete >= 0
        assert alignment is not Alignment.UNALIGNED or job.in_flight > 0
        assert alignment is not Alignment.ALIGNED or job.in_flight == 0


@pytest.mark.parametrize("local", [True, False], ids=["local", "connected"])
@pytest.mark.parametrize("alignment", list(Alignment))
def test_every_record_counts_once_when_consumers_go_back_further(
    alignment: Alignment, local: bool, tmp_path: Path
) -> None:
    """What producers had sent before the checkpoint that they go back to is replayed from their logs on disk."""
    for seed in range(2):
        job, expected, seen = run(alignment, seed, local=local, log_dir=str(tmp_path / str(seed)))
        assert seen == expected, (seed, seen - expected, expected - seen)
        assert job.replays > 0
    assert not list(tmp_path.glob("*/*"))  # with the shuffle its logs are over
