"""Attempts: one of each map wins, the others leave no trace; nothing of one is visible before its commit, if the mode
says so. Threads share plugins and masters, and each has its own writers and readers.
"""

from __future__ import annotations

import threading
from functools import partial

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleMaster, ShufflePlugin, ShuffleWriter
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import DEADLINE, PluginTestBase, in_threads
from shuffle_api.values import MapOutput, ShuffleHandle

FIRST, SECOND = MapAttempt(0, 0), MapAttempt(0, 1)
WORKLOAD = oracle.Workload(seed=21, partitions=3, maps=1)
SHARED = oracle.Workload(seed=61, partitions=5, maps=8, records=400)


class AttemptTests(PluginTestBase):
    """Commit, abort, retries, speculation."""

    @pytest.fixture
    def one_map(self, plugin: ShufflePlugin, master: ShuffleMaster) -> ShuffleHandle:
        """A shuffle of one map and three partitions."""
        return self.shuffle(plugin, master, partitions=3)

    def check_winner(self, plugin: ShufflePlugin, handle: ShuffleHandle, winner: MapAttempt) -> None:
        """Readers get what the winner wrote and nothing else."""
        oracle.verify(WORKLOAD.expected([winner], range(3)), oracle.read(plugin, handle))

    def check_nothing_visible(self, plugin: ShufflePlugin, master: ShuffleMaster, handle: ShuffleHandle) -> None:
        """No attempt has committed, as far as anybody can see."""
        assert master.map_outputs(handle) == []
        if plugin.mode.start == "after_commit":  # else a reader would wait for the next attempt
            with pytest.raises(MapOutputNotWritten):
                oracle.read(plugin, handle)

    def filled(self, plugin: ShufflePlugin, handle: ShuffleHandle, attempt: MapAttempt) -> ShuffleWriter:
        """A writer that has written all its records."""
        writer = plugin.writer(handle, attempt)
        oracle.fill(writer, WORKLOAD.written(attempt))
        return writer

    def test_nothing_is_visible_before_the_commit(
        self, plugin: ShufflePlugin, master: ShuffleMaster, one_map: ShuffleHandle
    ) -> None:
        with self.filled(plugin, one_map, FIRST) as writer:
            self.check_nothing_visible(plugin, master, one_map)
            writer.commit()
        self.check_winner(plugin, one_map, FIRST)

    def test_abort_leaves_nothing(self, plugin: ShufflePlugin, master: ShuffleMaster, one_map: ShuffleHandle) -> None:
        self.filled(plugin, one_map, FIRST).abort()
        self.check_nothing_visible(plugin, master, one_map)

    def test_leaving_without_commit_aborts(
        self, plugin: ShufflePlugin, master: ShuffleMaster, one_map: ShuffleHandle
    ) -> None:
        with self.filled(plugin, one_map, FIRST):
            pass
        self.check_nothing_visible(plugin, master, one_map)

    def test_leaving_by_an_error_aborts_and_passes_it_on(
        self, plugin: ShufflePlugin, master: ShuffleMaster, one_map: ShuffleHandle
    ) -> None:
        with pytest.raises(ZeroDivisionError), self.filled(plugin, one_map, FIRST):
            raise ZeroDivisionError
        self.check_nothing_visible(plugin, master, one_map)

    def test_the_next_attempt_succeeds_after_an_abort(self, plugin: ShufflePlugin, one_map: ShuffleHandle) -> None:
        self.filled(plugin, one_map, FIRST).abort()
        assert oracle.write(plugin, one_map, WORKLOAD, SECOND).output == SECOND
        self.check_winner(plugin, one_map, SECOND)

    def test_first_commit_wins_and_both_commits_return_the_winner(
        self, plugin: ShufflePlugin, master: ShuffleMaster, one_map: ShuffleHandle
    ) -> None:
        with self.filled(plugin, one_map, FIRST) as first, self.filled(plugin, one_map, SECOND) as second:
            winner, loser_sees = second.commit(), first.commit()
        assert winner.output == SECOND
        assert loser_sees == winner
        assert master.map_outputs(one_map) == [winner]
        self.check_winner(plugin, one_map, SECOND)

    def test_attempt_that_starts_after_the_commit_of_another_does_not_replace_it(
        self, plugin: ShufflePlugin, one_map: ShuffleHandle
    ) -> None:
        winner = oracle.write(plugin, one_map, WORKLOAD, FIRST)
        assert oracle.write(plugin, one_map, WORKLOAD, SECOND) == winner
        self.check_winner(plugin, one_map, FIRST)

    def test_exactly_one_of_racing_attempts_wins(
        self, plugin: ShufflePlugin, master: ShuffleMaster, one_map: ShuffleHandle
    ) -> None:
        start = threading.Barrier(4, timeout=DEADLINE)

        def race(attempt: int) -> MapOutput:
            with self.filled(plugin, one_map, MapAttempt(0, attempt)) as writer:
                start.wait()
                return writer.commit()

        outputs = in_threads(*(partial(race, attempt) for attempt in range(4)))
        assert set(outputs) == set(master.map_outputs(one_map))
        assert len(set(outputs)) == 1
        self.check_winner(plugin, one_map, outputs[0].output)

    def test_aborting_loser_does_not_harm_the_winner(self, plugin: ShufflePlugin, one_map: ShuffleHandle) -> None:
        with self.filled(plugin, one_map, FIRST) as loser:
            oracle.write(plugin, one_map, WORKLOAD, SECOND)
            loser.abort()
        self.check_winner(plugin, one_map, SECOND)

    def test_commit_again_returns_the_same_output(self, plugin: ShufflePlugin, one_map: ShuffleHandle) -> None:
        with self.filled(plugin, one_map, FIRST) as writer:
            assert writer.commit() == writer.commit()
        self.check_winner(plugin, one_map, FIRST)

    def test_abort_after_commit_does_nothing(self, plugin: ShufflePlugin, one_map: ShuffleHandle) -> None:
        with self.filled(plugin, one_map, FIRST) as writer:
            writer.commit()
            writer.abort()
        self.check_winner(plugin, one_map, FIRST)

    def test_write_after_commit_is_refused(self, plugin: ShufflePlugin, one_map: ShuffleHandle) -> None:
        with self.filled(plugin, one_map, FIRST) as writer:
            writer.commit()
            with pytest.raises(InvalidArgument):
                writer.write(0, b"late")
        self.check_winner(plugin, one_map, FIRST)

    def test_write_and_commit_after_abort_are_refused(self, plugin: ShufflePlugin, one_map: ShuffleHandle) -> None:
        with self.filled(plugin, one_map, FIRST) as writer:
            writer.abort()
            writer.abort()
            with pytest.raises(InvalidArgument):
                writer.write(0, b"late")
            with pytest.raises(InvalidArgument):
                writer.commit()

    def test_map_outputs_are_the_winners_ascending_by_map(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        workload = oracle.Workload(seed=22, partitions=2, maps=4, records=3)
        handle = self.shuffle(plugin, master, partitions=2, maps=4)
        winners = [oracle.write(plugin, handle, workload, MapAttempt(map, map % 2)) for map in (3, 0, 2)]
        assert master.map_outputs(handle) == sorted(winners, key=lambda output: output.output.map)


class ThreadTests(PluginTestBase):
    """Concurrency within one process."""

    def test_writers_in_eight_threads(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(SHARED.partitions, SHARED.maps)

        def write() -> None:
            in_threads(*(partial(oracle.write, plugin, handle, SHARED, attempt) for attempt in SHARED.attempts()))

        got = self.read_written(plugin, handle, write)
        oracle.verify(SHARED.expected(SHARED.attempts(), range(5)), got)

    def test_readers_in_threads_each_with_its_partition(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, SHARED)
        parts = in_threads(*(partial(oracle.read, plugin, handle, range(n, n + 1)) for n in range(5)))
        for n, got in enumerate(parts):
            oracle.verify(SHARED.expected(SHARED.attempts(), range(n, n + 1)), got)

    def test_writers_of_one_thread_take_turns(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        handle = master.register_shuffle(1, 2)
        with plugin.writer(handle, MapAttempt(0, 0)) as one, plugin.writer(handle, MapAttempt(1, 0)) as two:
            for n in range(20):
                one.write(0, oracle.TAG.pack(0, 0, n))
                two.write(0, oracle.TAG.pack(1, 0, n))
            one.commit()
            two.commit()
        for map in range(2):
            expected = [(0, oracle.TAG.pack(map, 0, n)) for n in range(20)]
            assert oracle.read(plugin, handle, maps=range(map, map + 1)) == expected

    def test_shuffles_in_threads_do_not_mix(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        def job(seed: int) -> int:
            workload = oracle.Workload(seed=seed, partitions=3, maps=2)
            handle = self.stored(plugin, master, workload)
            oracle.verify(workload.expected(workload.attempts(), range(3)), oracle.read(plugin, handle))
            return handle.spec.id.shuffle

        numbers = in_threads(*(partial(job, seed) for seed in range(6)))
        assert len(set(numbers)) == 6
