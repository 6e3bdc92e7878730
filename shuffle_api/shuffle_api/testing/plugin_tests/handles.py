"""Handles: values that travel to tasks and open the same shuffle there. And the registration behind them."""

from __future__ import annotations

import pickle

import pytest

from shuffle_api.errors import InvalidArgument, ShuffleExists, UnknownShuffle
from shuffle_api.ids import MapAttempt, name_of
from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase

WORKLOAD = oracle.Workload(seed=31, partitions=3, maps=2)
OTHER = oracle.Workload(seed=32, partitions=3, maps=2)


class HandleTests(PluginTestBase):
    """Registering, pickling, unregistering."""

    def test_handle_says_what_was_registered(self, plugin: ShufflePlugin, master: ShuffleMaster, app: str) -> None:
        handle = master.register_shuffle(4, 5, shuffle=6)
        assert handle.plugin == plugin.name
        assert (name_of(handle.spec.id.app), handle.spec.id.shuffle) == (app, 6)
        assert (handle.spec.partitions, handle.spec.maps) == (4, 5)

    def test_handle_survives_pickling(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(3, 2)
        assert pickle.loads(pickle.dumps(handle)) == handle

    def test_handle_works_in_another_instance_of_the_plugin(
        self, plugin: ShufflePlugin, master: ShuffleMaster, options: dict[str, OptionValue]
    ) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        sent = pickle.loads(pickle.dumps(handle))
        with self.plugin_class(options) as task:
            got = oracle.read(task, sent)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(3)), got)

    def test_what_another_instance_of_the_plugin_writes_can_be_read(
        self, plugin: ShufflePlugin, master: ShuffleMaster, options: dict[str, OptionValue]
    ) -> None:
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        handle = master.register_shuffle(3, 2)
        with self.plugin_class(options) as task:
            for attempt in WORKLOAD.attempts():
                oracle.write(task, handle, WORKLOAD, attempt)
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(3)), oracle.read(plugin, handle))

    def test_chosen_numbers_differ_from_given_ones_and_from_those_of_shuffles_that_are_gone(
        self, master: ShuffleMaster
    ) -> None:
        handles = [master.register_shuffle(1, 1)]
        handles.append(master.register_shuffle(1, 1, shuffle=handles[0].spec.id.shuffle + 1))
        for _ in range(3):
            handles.append(master.register_shuffle(1, 1))
            master.unregister_shuffle(handles[-1])
        assert len({handle.spec.id for handle in handles}) == len(handles)

    def test_registering_the_same_again_is_a_no_op(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        assert master.register_shuffle(3, 2, shuffle=handle.spec.id.shuffle) == handle
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(3)), oracle.read(plugin, handle))

    @pytest.mark.parametrize(("partitions", "maps"), [(4, 2), (3, 3)])
    def test_registering_the_number_with_other_properties_is_refused(
        self, master: ShuffleMaster, partitions: int, maps: int
    ) -> None:
        master.register_shuffle(3, 2, shuffle=9)
        with pytest.raises(ShuffleExists, match="/9"):
            master.register_shuffle(partitions, maps, shuffle=9)

    @pytest.mark.parametrize(
        ("partitions", "maps", "shuffle"), [(0, 1, None), (-1, 1, None), (1, -1, None), (1, 1, -1)]
    )
    def test_impossible_shuffles_are_refused(
        self, master: ShuffleMaster, partitions: int, maps: int, shuffle: int | None
    ) -> None:
        with pytest.raises(InvalidArgument):
            master.register_shuffle(partitions, maps, shuffle=shuffle)

    def test_reader_of_an_unregistered_shuffle_is_refused(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        master.unregister_shuffle(handle)
        with pytest.raises(UnknownShuffle) as raised:
            oracle.read(plugin, handle)
        assert raised.value.shuffle == handle.spec.id

    def test_writer_of_an_unregistered_shuffle_is_refused(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(3, 2)
        master.unregister_shuffle(handle)
        with pytest.raises(UnknownShuffle):
            oracle.write(plugin, handle, WORKLOAD, MapAttempt(0, 0))

    def test_map_outputs_of_an_unregistered_shuffle_are_refused(self, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(3, 2)
        master.unregister_shuffle(handle)
        with pytest.raises(UnknownShuffle):
            master.map_outputs(handle)

    def test_commit_after_the_shuffle_was_unregistered_is_refused(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = self.shuffle(plugin, master, partitions=3, maps=2)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            oracle.fill(writer, WORKLOAD.written(MapAttempt(0, 0)))
            master.unregister_shuffle(handle)
            with pytest.raises(UnknownShuffle):
                writer.commit()

    def test_number_that_is_registered_again_is_another_shuffle(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        first = self.shuffle(plugin, master, partitions=3, maps=2)
        with plugin.writer(first, MapAttempt(0, 7)) as late:
            oracle.fill(late, OTHER.written(MapAttempt(0, 0)))
            master.unregister_shuffle(first)
            second = master.register_shuffle(3, 2, shuffle=first.spec.id.shuffle)
            assert second.spec.id != first.spec.id
            with pytest.raises(UnknownShuffle):
                late.commit()
        with pytest.raises(UnknownShuffle):
            oracle.read(plugin, first)
        assert master.map_outputs(second) == []
        for attempt in WORKLOAD.attempts():
            oracle.write(plugin, second, WORKLOAD, attempt)
        master.unregister_shuffle(first)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(3)), oracle.read(plugin, second))

    def test_unregistering_is_idempotent(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle, other = self.stored(plugin, master, WORKLOAD), self.stored(plugin, master, WORKLOAD)
        for _ in range(3):
            master.unregister_shuffle(handle)
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(3)), oracle.read(plugin, other))
