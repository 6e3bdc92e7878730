"""Threads: plugins and masters are shared by them, each has its own writers and readers."""

from __future__ import annotations

from functools import partial

from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase, in_threads

WORKLOAD = oracle.Workload(seed=61, partitions=5, maps=8, records=400)


class ThreadTests(PluginTestBase):
    """Concurrency within one process."""

    def test_writers_in_eight_threads(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(WORKLOAD.partitions, WORKLOAD.maps)

        def write() -> None:
            in_threads(*(partial(oracle.write, plugin, handle, WORKLOAD, attempt) for attempt in WORKLOAD.attempts()))

        got = self.read_written(plugin, handle, write)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(5)), got)

    def test_readers_in_threads_each_with_its_partition(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        parts = in_threads(*(partial(oracle.read, plugin, handle, range(n, n + 1)) for n in range(5)))
        for n, got in enumerate(parts):
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(n, n + 1)), got)

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
