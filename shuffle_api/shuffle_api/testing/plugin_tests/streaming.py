"""Reading while it is written: what a mode with `start="while_writing"` promises."""

from __future__ import annotations

import threading
from functools import partial

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import DEADLINE, PluginTestBase, in_threads
from shuffle_api.values import ShuffleHandle

WORKLOAD = oracle.Workload(seed=81, partitions=4, maps=3, records=300)


class StreamingTests(PluginTestBase):
    """Readers beside writers, each partition consumed once."""

    def stream(self, plugin: ShufflePlugin, master: ShuffleMaster, partitions: int = 1, maps: int = 1) -> ShuffleHandle:
        """A shuffle whose readers may start while its writers run."""
        self.needs(plugin.mode.start == "while_writing", "lets readers start while writers run")
        return master.register_shuffle(partitions, maps)

    def test_reader_opened_before_the_writers_gets_everything(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = self.stream(plugin, master, WORKLOAD.partitions, WORKLOAD.maps)
        reading = threading.Event()

        def read() -> list[oracle.Record]:
            with plugin.reader(handle, range(WORKLOAD.partitions)) as reader:
                reading.set()
                return list(reader)

        def write() -> list[oracle.Record]:
            assert reading.wait(DEADLINE)
            in_threads(*(partial(oracle.write, plugin, handle, WORKLOAD, attempt) for attempt in WORKLOAD.attempts()))
            return []

        got, _ = in_threads(read, write)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(WORKLOAD.partitions)), got)

    def test_readers_of_single_partitions_share_the_whole(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stream(plugin, master, WORKLOAD.partitions, WORKLOAD.maps)

        def write() -> list[oracle.Record]:
            in_threads(*(partial(oracle.write, plugin, handle, WORKLOAD, attempt) for attempt in WORKLOAD.attempts()))
            return []

        readers = [partial(oracle.read, plugin, handle, range(n, n + 1)) for n in range(WORKLOAD.partitions)]
        _, *parts = in_threads(write, *readers)
        for n, got in enumerate(parts):
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(n, n + 1)), got)

    def test_tasks_in_other_instances_of_the_plugin_meet(
        self, plugin: ShufflePlugin, master: ShuffleMaster, options: dict[str, OptionValue]
    ) -> None:
        handle = self.stream(plugin, master, WORKLOAD.partitions, WORKLOAD.maps)

        def write(attempt: MapAttempt) -> list[oracle.Record]:
            oracle.write(producer, handle, WORKLOAD, attempt)
            return []

        with self.plugin_class(options) as producer, self.plugin_class(options) as consumer:
            writers = [partial(write, attempt) for attempt in WORKLOAD.attempts()]
            got, *_ = in_threads(partial(oracle.read, consumer, handle), *writers)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(WORKLOAD.partitions)), got)

    def test_writer_that_gives_up_does_not_look_like_the_end(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = self.stream(plugin, master)

        def read() -> list[oracle.Record]:
            with plugin.reader(handle, range(1)) as reader:
                try:
                    return list(reader)
                except ShuffleError:
                    return []

        def write() -> list[oracle.Record]:
            with plugin.writer(handle, MapAttempt(0, 0)) as writer:
                writer.write(0, b"of the first attempt")
            with plugin.writer(handle, MapAttempt(0, 1)) as writer:
                writer.write(0, b"of the second attempt")
                writer.commit()
            return []

        got, _ = in_threads(read, write)
        assert not got or got[-1] == (0, b"of the second attempt")

    def test_reader_is_closed_while_its_writer_goes_on(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stream(plugin, master)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            with plugin.reader(handle, range(1)):
                pass
            writer.commit()
