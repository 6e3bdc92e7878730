"""A consumer group that grows and shrinks while producers write: each record once, those of a key in order."""

from __future__ import annotations

import json
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from shuffle_api.errors import AttemptSuperseded, DeadlineExceeded, InvalidArgument, ShuffleError, StorageFailed
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Alignment, Barrier, Captured, InFlight, Position, ReaderState, key_group
from shuffle_plugins.pipelined import ConsumerGroup, DataBlock, DirectorySnapshots, PipelinedWriter
from shuffle_plugins.pipelined.snapshots import Snapshot
from tests.documents import block
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene

GROUPS, MAPS, KEYS = 16, 2, 40
LOOK = 0.005


class Killed(Exception):
    """The task is at its end, without a word."""


class Tally:
    """The records of each key group, in the order in which they came."""

    def __init__(self) -> None:
        self.seen: dict[int, list[str]] = {}

    def snapshot(self, key_groups: range) -> Mapping[int, bytes]:
        assert self.seen.keys() == set(key_groups)
        return {group: json.dumps(records).encode() for group, records in self.seen.items() if records}

    def assign(self, states: Mapping[int, bytes | None]) -> None:
        assert not self.seen.keys() & states.keys()
        self.seen |= {group: json.loads(state) if state is not None else [] for group, state in states.items()}

    def revoke(self, key_groups: frozenset[int]) -> None:
        for group in key_groups:
            del self.seen[group]


class Faults:
    """Tasks die by chance, a few in each phase of a job: a task that has to read much again must come to its end."""

    def __init__(self, seed: int, each_phase: int) -> None:
        self._chance, self._each_phase = random.Random(seed), each_phase
        self._lock = threading.Lock()
        self.deaths = self._most = 0

    def begin_phase(self) -> None:
        with self._lock:
            self._most = self.deaths + self._each_phase

    def strike(self, share: float) -> None:
        with self._lock:
            if self.deaths < self._most and self._chance.random() < share:
                self.deaths += 1
                raise Killed


class FaultySnapshots(DirectorySnapshots):
    """Its callers die before they put a snapshot, or after."""

    def __init__(self, directory: Path, faults: Faults) -> None:
        super().__init__(directory)
        self._faults = faults

    def put(self, checkpoint: int, key_groups: range, snapshot: bytes) -> bool:
        self._faults.strike(0.2)
        first = super().put(checkpoint, key_groups, snapshot)
        self._faults.strike(0.2)
        return first


class Job:
    """Producers, a group, its coordinator (the caller), and somebody who begins dead tasks again."""

    def __init__(self, scene: Scene, directory: Path, parallelism: int, faults: Faults | None = None) -> None:
        self.scene, self.faults = scene, faults or Faults(0, 0)
        self.group = ConsumerGroup(scene.handle, parallelism, FaultySnapshots(directory, self.faults))
        self.writers = [scene.writer(map) for map in range(MAPS)]
        self.checkpoint = self.complete = -1
        self.ending = threading.Event()
        self.written: Counter[tuple[int, int]] = Counter()
        self.counts: Counter[tuple[int, int]] = Counter()  # records by subtask and generation
        self.results: dict[int, Tally] = {}
        self.errors: list[BaseException] = []
        self.threads = [self._start(self._produce, map) for map in range(MAPS)]
        for subtask in range(parallelism):
            self.begin(subtask)

    def begin(self, subtask: int) -> None:
        self.threads.append(self._start(self._keep, subtask))

    def rescale(self, parallelism: int, now: int) -> None:
        """To another parallelism, and on until each task has got records with it."""
        for subtask in range(now, parallelism):
            self.begin(subtask)
        generation = self.take_checkpoint(parallelism) + 1
        self.until(lambda: all(self.counts[subtask, generation] for subtask in range(parallelism)))

    def take_checkpoint(self, parallelism: int = 0) -> int:
        self.checkpoint += 1
        for writer in self.writers:
            writer.emit(Barrier(self.checkpoint, parallelism=parallelism))
        for writer in self.writers:
            writer.state(self.checkpoint, WAIT)
        self.until(lambda: self.group.latest() == self.checkpoint)
        self.complete = self.checkpoint
        return self.checkpoint

    def until(self, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + WAIT
        while not condition():
            assert not self.errors, self.errors
            assert time.monotonic() < deadline
            time.sleep(LOOK)

    def end(self) -> None:
        """Each record of each key is there, once and in order."""
        self.ending.set()
        for thread in self.threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        assert not self.errors
        found: dict[tuple[int, int], list[int]] = {}
        groups: list[int] = []
        for tally in self.results.values():
            groups += tally.seen
            for record in (record for records in tally.seen.values() for record in records):
                map, key, number = (int(part) for part in record.split())
                found.setdefault((map, key), []).append(number)
        assert sorted(groups) == list(range(GROUPS))
        assert found == {key: list(range(count)) for key, count in self.written.items()}

    def _start(self, target: object, number: int) -> threading.Thread:
        def run() -> None:
            try:
                target(number)  # type: ignore[operator]
            except BaseException as error:
                self.errors.append(error)
                raise

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _produce(self, map: int) -> None:
        writer: PipelinedWriter = self.writers[map]
        chance = random.Random(map)
        while not self.ending.wait(LOOK):
            for _ in range(20):
                key = chance.randrange(KEYS)
                number = self.written[map, key]
                writer.write(key_group(zlib.crc32(b"%d" % key), GROUPS), b"%d %d %d" % (map, key, number))
                self.written[map, key] = number + 1
        writer.commit()

    def _keep(self, subtask: int) -> None:
        attempt = 0
        while True:
            try:
                self._consume(subtask, attempt)
            except (Killed, AttemptSuperseded):
                attempt += 1
            else:
                return

    def _consume(self, subtask: int, attempt: int) -> None:
        tally = Tally()
        with self.scene.plugin.consumer(self.group, subtask, tally, attempt=attempt) as consumer:
            captured: list[int] = []
            for event in consumer.events():
                self.faults.strike(0.02)
                if isinstance(event, DataBlock):
                    records = [bytes(record).decode() for record in unpack_records(event.payload)]
                    tally.seen[event.partition] += records
                    self.counts[subtask, consumer.generation] += len(records)
                elif isinstance(event, Captured):
                    captured.append(event.checkpoint)
                if self.complete in captured:
                    consumer.acknowledge(self.complete)
                    captured = [each for each in captured if each > self.complete]
        self.results[subtask] = tally


def options(alignment: Alignment) -> dict[str, object]:
    return {"guarantee": "exactly_once", "alignment": alignment.value, "block_bytes": 200, "flush_timeout": 0.002}


@pytest.mark.parametrize("alignment", [Alignment.ALIGNED, Alignment.UNALIGNED])
def test_group_grows_and_shrinks_in_the_middle_of_a_stream(scene: Open, tmp_path: Path, alignment: Alignment) -> None:
    job = Job(scene(GROUPS, MAPS, **options(alignment)), tmp_path, 2)
    job.until(lambda: all(job.counts[subtask, 0] for subtask in range(2)))
    job.take_checkpoint()
    job.rescale(3, now=2)
    job.take_checkpoint()
    job.rescale(1, now=3)
    job.take_checkpoint()
    job.end()
    generations = {generation for _, generation in job.counts}
    assert generations == {0, 2, 4}
    assert {subtask for subtask, generation in job.counts if generation == 2} == {0, 1, 2}


@pytest.mark.parametrize("seed", range(3))
def test_tasks_die_at_any_time_while_the_group_is_rescaled(scene: Open, tmp_path: Path, seed: int) -> None:
    faults = Faults(seed, each_phase=4)
    job = Job(scene(GROUPS, MAPS, **options(list(Alignment)[seed])), tmp_path, 2, faults)
    for parallelism, now in ((3, 2), (1, 3), (4, 1)):
        job.take_checkpoint()
        faults.begin_phase()
        job.rescale(parallelism, now)
    job.take_checkpoint()
    job.end()
    assert faults.deaths > 0


def test_barrier_that_is_cancelled_moves_nothing_and_drops_nothing(scene: Open, tmp_path: Path) -> None:
    there = scene(4, 2, **options(Alignment.UNALIGNED))
    group, tally = ConsumerGroup(there.handle, 1, DirectorySnapshots(tmp_path)), Tally()
    with there.writer(0) as one, there.writer(1) as two, there.plugin.consumer(group, 0, tally) as consumer:
        one.emit(Barrier(0, parallelism=2))
        assert consumer.poll(WAIT) == Barrier(0, unaligned=True, parallelism=2)
        for writer, record in ((one, b"a"), (two, b"b")):
            writer.write(2, record)
            writer.flush()
        deadline = time.monotonic() + WAIT
        while (read := consumer.statistics()) is None or read.records < 2:
            assert time.monotonic() < deadline
            with pytest.raises(DeadlineExceeded):  # they may belong to the next task of their key group
                consumer.poll(0.1)
        for writer in (one, two):
            writer.emit(Barrier(1))
        found: list[bytes] = []
        while not isinstance(event := consumer.poll(WAIT), Captured):
            if isinstance(event, DataBlock):
                found += [bytes(record) for record in unpack_records(event.payload)]
                tally.seen[event.partition] += ["x"]
        assert (sorted(found), event.checkpoint, consumer.generation) == ([b"a", b"b"], 1, 0)
        assert Snapshot.decode(group.snapshots.get(1, range(4))).states == {2: b'["x", "x"]'}
        one.commit()
        two.commit()
        assert not [event for event in consumer.events() if isinstance(event, DataBlock)]


def test_group_needs_a_guarantee_and_as_many_key_groups_as_tasks(scene: Open, tmp_path: Path) -> None:
    there = scene(4, 1)
    store = DirectorySnapshots(tmp_path)
    with pytest.raises(InvalidArgument, match="guarantee"):
        there.plugin.consumer(ConsumerGroup(there.handle, 1, store), 0, Tally())
    with pytest.raises(InvalidArgument, match="a parallelism of 5 with 4 key groups"):
        ConsumerGroup(there.handle, 5, store)
    with there.writer() as writer, pytest.raises(InvalidArgument, match="a parallelism of 5 for 4 key groups"):
        writer.emit(Barrier(0, parallelism=5))


def test_task_that_the_group_does_not_have_is_refused_after_the_timeout(scene: Open, tmp_path: Path) -> None:
    there = scene(4, 1, guarantee="exactly_once", timeout=0.5)
    with pytest.raises(DeadlineExceeded, match="the group has no task 2"):
        there.plugin.consumer(ConsumerGroup(there.handle, 2, DirectorySnapshots(tmp_path)), 2, Tally())


def test_checkpoint_of_which_a_key_group_is_missing_does_not_count(scene: Open, tmp_path: Path) -> None:
    store = DirectorySnapshots(tmp_path)
    group = ConsumerGroup(scene(4, 1).handle, 2, store)
    assert group.latest() is None
    for checkpoint, key_groups in ((3, range(2)), (3, range(2, 4)), (5, range(3)), (4, range(4))):
        store.put(checkpoint, key_groups, b"x")
    assert group.latest() == 4
    assert not store.put(4, range(4), b"y")
    assert store.get(4, range(4)) == b"x"
    store.delete_after(3)
    assert group.latest() == 3
    store.delete_before(4)
    assert group.latest() is None
    with pytest.raises(StorageFailed, match="snapshot 4"):
        store.get(4, range(4))


def test_snapshot_is_read_as_it_was_written_and_a_damaged_one_is_refused() -> None:
    reader = ReaderState(
        7, {0: Position({2: 5, 3: 1}, 4)}, (InFlight(0, 2, 5, 3, b"block\n"), InFlight(0, 3, 1, 1, b""))
    )
    snapshot = Snapshot(range(2, 4), 3, 8, reader, {2: b"\n\0", 3: b""})
    data = snapshot.encode()
    assert Snapshot.decode(data) == snapshot
    for damaged in (b"", data[:-1], data + b"x", data[1:], b"[]\n", b'{"key_groups": 1}\n'):
        with pytest.raises(StorageFailed):
            Snapshot.decode(damaged)


def test_barrier_says_the_parallelism_to_the_task(scene: Open) -> None:
    there = scene(4, 2, guarantee="exactly_once")
    with there.writer(0) as one, there.writer(1) as two, there.reader() as reader:
        for writer in (one, two):
            writer.emit(Barrier(0))
            writer.emit(Barrier(1, parallelism=3))
        events = [reader.poll(WAIT) for _ in range(4)]
        assert [event for event in events if isinstance(event, Barrier)] == [Barrier(0), Barrier(1, parallelism=3)]
    error: ShuffleError
    with pytest.raises(InvalidArgument) as found:
        Barrier(1, parallelism=-1)
    error = found.value
    assert "parallelism" in error.message


def test_program_of_the_document_runs(tmp_path: Path) -> None:
    program = block("docs/pipelined.md", "ConsumerGroup(").text
    exec(compile(program, "docs/pipelined.md", "exec"), {"__name__": "docs", "directory": tmp_path})


def test_first_program_of_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("docs/pipelined.md", "Captured").text, "docs/pipelined.md", "exec"), {"__name__": "docs"})
    assert capsys.readouterr().out.splitlines() == ["0 1", "0 1"]
