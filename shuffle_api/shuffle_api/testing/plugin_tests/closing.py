"""Closing: any number of times, in any order, and never a reader that ends early as if that were all."""

from __future__ import annotations

import itertools

import pytest

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase

WORKLOAD = oracle.Workload(seed=51, partitions=2, maps=3, records=500, size=400)


class ClosingTests(PluginTestBase):
    """What was closed stays closed and harms nobody else."""

    def test_everything_can_be_closed_twice(self, options: dict[str, OptionValue], app: str) -> None:
        plugin = self.plugin_class(options)
        master = plugin.master(app)
        handle = master.register_shuffle(1, 0)
        reader = plugin.reader(handle, range(1))
        assert list(reader) == []
        for closable in (reader, master, plugin):
            closable.close()
            closable.close()

    def test_reader_closed_early_does_not_disturb_the_others(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        self.needs(plugin.mode.reconsumable, "can be read more than once")
        handle = self.stored(plugin, master, WORKLOAD)
        with plugin.reader(handle, range(2)) as reader:
            next(iter(reader))
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, handle))

    def test_reader_that_was_never_iterated_can_be_closed(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        plugin.reader(handle, range(2)).close()
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), oracle.read(plugin, handle))

    def test_iterator_left_in_the_middle_goes_on_and_no_second_one_begins(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        workload = oracle.Workload(seed=52, partitions=1, maps=1, records=30, size=10)
        handle = master.register_shuffle(1, 1)
        got: list[tuple[int, bytes]] = []

        def write() -> None:
            oracle.write(plugin, handle, workload, MapAttempt(0, 0))

        def read() -> None:
            with plugin.reader(handle, range(1)) as reader:
                records = iter(reader)
                got.extend(itertools.islice(records, 10))
                with pytest.raises(InvalidArgument):
                    next(iter(reader))
                got.extend(records)
                with pytest.raises(InvalidArgument):
                    list(reader)

        self.both(plugin, write, read)
        oracle.verify(workload.expected(workload.attempts(), range(1)), got)

    def test_closed_reader_refuses_to_read(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        reader = plugin.reader(handle, range(2))
        reader.close()
        with pytest.raises(InvalidArgument):
            list(reader)

    def test_reader_closed_in_the_middle_does_not_seem_to_end(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        reader = plugin.reader(handle, range(2))
        records = iter(reader)
        next(records)
        reader.close()
        with pytest.raises(ShuffleError):
            list(records)

    def test_reader_yields_all_or_fails_when_its_shuffle_is_unregistered(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        with plugin.reader(handle, range(2)) as reader:
            records = iter(reader)
            got = [next(records)]
            master.unregister_shuffle(handle)
            try:
                got.extend(records)
            except ShuffleError:
                return
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(2)), got)

    def test_closing_the_plugin_aborts_open_writers(
        self, plugin: ShufflePlugin, master: ShuffleMaster, options: dict[str, OptionValue]
    ) -> None:
        handle = self.shuffle(plugin, master, partitions=2, maps=3)
        with self.plugin_class(options) as task:
            writer = task.writer(handle, MapAttempt(0, 0))
            oracle.fill(writer, WORKLOAD.written(MapAttempt(0, 0)))
        with pytest.raises(ShuffleError):
            writer.commit()
        writer.abort()
        assert master.map_outputs(handle) == []

    def test_closing_the_plugin_closes_open_readers(
        self, plugin: ShufflePlugin, master: ShuffleMaster, options: dict[str, OptionValue]
    ) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        with self.plugin_class(options) as task:
            reader = task.reader(handle, range(2))
            records = iter(reader)
            next(records)
        with pytest.raises(ShuffleError):
            list(records)
        reader.close()

    def test_closed_plugin_opens_nothing(
        self, plugin: ShufflePlugin, master: ShuffleMaster, options: dict[str, OptionValue], app: str
    ) -> None:
        handle = master.register_shuffle(1, 1)
        task = self.plugin_class(options)
        task.close()
        with pytest.raises(ShuffleError):
            task.master(f"{app}-other")
        with pytest.raises(ShuffleError), task.writer(handle, MapAttempt(0, 0)) as writer:
            writer.commit()
        with pytest.raises(ShuffleError), task.reader(handle, range(1)) as reader:
            list(reader)

    def test_closed_master_registers_nothing(self, plugin: ShufflePlugin, app: str) -> None:
        master = plugin.master(app)
        master.close()
        with pytest.raises(InvalidArgument):
            master.register_shuffle(1, 1)
