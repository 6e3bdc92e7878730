"""Readers of part of a shuffle, several readers, and maps that cannot be read."""

from __future__ import annotations

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase

WORKLOAD = oracle.Workload(seed=11, partitions=6, maps=5)
ONE_MAP = oracle.Workload(seed=12, partitions=1, maps=1, records=3)


class RangeTests(PluginTestBase):
    """Partition ranges, map ranges, repetition."""

    def check_ranges(
        self, plugin: ShufflePlugin, master: ShuffleMaster, partitions: range, maps: range | None = None
    ) -> None:
        """A reader of these ranges gets what the oracle says."""
        handle = self.stored(plugin, master, WORKLOAD)
        winners = WORKLOAD.attempts() if maps is None else WORKLOAD.attempts()[maps.start : maps.stop]
        oracle.verify(WORKLOAD.expected(winners, partitions), oracle.read(plugin, handle, partitions, maps))

    def test_a_range_of_partitions(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_ranges(plugin, master, range(2, 5))

    def test_a_range_of_maps(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_ranges(plugin, master, range(6), range(1, 4))

    def test_a_range_of_partitions_out_of_a_range_of_maps(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_ranges(plugin, master, range(3, 4), range(4, 5))

    @pytest.mark.parametrize(("partitions", "maps"), [(range(2, 2), None), (range(6), range(3, 3))])
    def test_an_empty_range_is_empty(
        self, plugin: ShufflePlugin, master: ShuffleMaster, partitions: range, maps: range | None
    ) -> None:
        self.check_ranges(plugin, master, partitions, maps)

    @pytest.mark.parametrize("partitions", [range(4, 7), range(-1, 2), range(0, 6, 2), range(5, 2, -1)])
    def test_a_partition_range_outside_the_shuffle_is_refused(
        self, plugin: ShufflePlugin, master: ShuffleMaster, partitions: range
    ) -> None:
        handle = master.register_shuffle(6, 0)
        with pytest.raises(InvalidArgument, match=r"partition.*6"):
            oracle.read(plugin, handle, partitions)

    @pytest.mark.parametrize("maps", [range(4), range(-1, 2), range(0, 3, 2)])
    def test_a_map_range_outside_the_shuffle_is_refused(
        self, plugin: ShufflePlugin, master: ShuffleMaster, maps: range
    ) -> None:
        handle = master.register_shuffle(1, 3)
        with pytest.raises(InvalidArgument, match=r"map.*3"):
            oracle.read(plugin, handle, maps=maps)

    def test_partitions_read_one_by_one_are_the_whole(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = self.stored(plugin, master, WORKLOAD)
        got = [record for n in range(6) for record in oracle.read(plugin, handle, range(n, n + 1))]
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(6)), got)

    def test_reading_again_gives_the_same_records(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.needs(plugin.mode.reconsumable, "can be read more than once")
        handle = self.stored(plugin, master, WORKLOAD)
        for _ in range(3):
            got = oracle.read(plugin, handle)
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(6)), got)

    def test_readers_that_take_turns_do_not_disturb_each_other(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        self.needs(plugin.mode.reconsumable, "can be read more than once")
        handle = self.stored(plugin, master, WORKLOAD)
        with plugin.reader(handle, range(6)) as one, plugin.reader(handle, range(6)) as two:
            pairs = list(zip(one, two, strict=True))
        for got in zip(*pairs, strict=True):
            oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(6)), got)

    def test_maps_that_have_not_committed_are_named(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.needs(plugin.mode.start == "after_commit", "lets readers start after the commit only")
        handle = self.shuffle(plugin, master, maps=8)
        for n in (0, 1, 2, 4, 6, 7):
            oracle.write(plugin, handle, ONE_MAP, MapAttempt(n, 0))
        with pytest.raises(MapOutputNotWritten, match=r"\b3\b.*\b5\b") as raised:
            oracle.read(plugin, handle)
        assert raised.value.shuffle == handle.spec.id

    def test_a_complete_range_of_maps_can_be_read_before_the_others(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = self.shuffle(plugin, master, maps=3)
        oracle.write(plugin, handle, ONE_MAP, MapAttempt(1, 0))
        expected = ONE_MAP.expected([MapAttempt(1, 0)], range(1))
        oracle.verify(expected, oracle.read(plugin, handle, maps=range(1, 2)))

    def test_a_lost_map_output_is_named_and_not_empty(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.needs(self.can_lose, "can be made to lose a map output")
        handle = self.stored(plugin, master, WORKLOAD)
        self.lose_map_output(plugin, handle, master.map_outputs(handle)[2])
        with pytest.raises(MapOutputLost) as raised:
            oracle.read(plugin, handle)
        assert raised.value.output == MapAttempt(2, 0)
        assert [output.output.map for output in master.map_outputs(handle)] == [0, 1, 3, 4]

    def test_a_lost_map_can_be_run_again(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.needs(self.can_lose, "can be made to lose a map output")
        handle = self.stored(plugin, master, WORKLOAD)
        self.lose_map_output(plugin, handle, master.map_outputs(handle)[2])
        assert oracle.write(plugin, handle, WORKLOAD, MapAttempt(2, 1)).output == MapAttempt(2, 1)
        winners = [output.output for output in master.map_outputs(handle)]
        oracle.verify(WORKLOAD.expected(winners, range(6)), oracle.read(plugin, handle))

    def test_a_lost_attempt_cannot_commit_again(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.needs(self.can_lose, "can be made to lose a map output")
        handle = self.stored(plugin, master, WORKLOAD)
        self.lose_map_output(plugin, handle, master.map_outputs(handle)[2])
        with pytest.raises(MapOutputLost):
            oracle.write(plugin, handle, WORKLOAD, MapAttempt(2, 0))
