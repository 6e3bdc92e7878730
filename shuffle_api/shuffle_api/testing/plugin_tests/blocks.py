"""Blocks: the optional ability to write and read many records at once."""

from __future__ import annotations

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import (
    ShuffleMaster,
    ShufflePlugin,
    ShuffleWriter,
    SupportsReadBlocks,
    SupportsWriteBlock,
)
from shuffle_api.records import pack_records, unpack_records
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase
from shuffle_api.values import ShuffleHandle

WORKLOAD = oracle.Workload(seed=71, partitions=3, maps=2)


class BlockTests(PluginTestBase):
    """`SupportsWriteBlock` and `SupportsReadBlocks`. The shuffles of the exam have the content "records"."""

    @pytest.fixture
    def two_maps(self, plugin: ShufflePlugin, master: ShuffleMaster) -> ShuffleHandle:
        """A shuffle of two maps and three partitions."""
        self.needs(self.supports_blocks, "supports blocks")
        self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
        return master.register_shuffle(3, 2)

    def block_writer(self, writer: ShuffleWriter) -> SupportsWriteBlock:
        """The writer, as one of blocks."""
        assert isinstance(writer, SupportsWriteBlock)
        return writer

    def read_blocks(
        self, plugin: ShufflePlugin, handle: ShuffleHandle, partitions: range
    ) -> list[tuple[int, MapAttempt, list[bytes]]]:
        """The blocks of the partitions with their records, which are as many as the block says."""
        with plugin.reader(handle, partitions) as reader:
            assert isinstance(reader, SupportsReadBlocks)
            blocks = []
            for partition, attempt, payload, records in reader.read_blocks():
                unpacked = list(unpack_records(payload))
                assert len(unpacked) == records
                blocks.append((partition, attempt, unpacked))
            return blocks

    def test_ability_is_what_the_flag_says(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            assert isinstance(writer, SupportsWriteBlock) == self.supports_blocks
            writer.commit()
        with plugin.reader(handle, range(1)) as reader:
            assert isinstance(reader, SupportsReadBlocks) == self.supports_blocks

    def test_blocks_are_read_as_records_in_order_with_single_ones(
        self, plugin: ShufflePlugin, two_maps: ShuffleHandle
    ) -> None:
        with plugin.writer(two_maps, MapAttempt(0, 0)) as writer:
            writer.write(2, b"one")
            self.block_writer(writer).write_block(2, pack_records([b"two", b"", b"three"]), 3)
            writer.write(2, b"four")
            self.block_writer(writer).write_block(2, pack_records([b"five"]), 1)
            output = writer.commit()
        assert output.totals.records == 6
        got = oracle.read(plugin, two_maps, maps=range(1))
        assert [record for _, record in got] == [b"one", b"two", b"", b"three", b"four", b"five"]

    def test_records_are_read_as_blocks_that_name_their_attempt(
        self, plugin: ShufflePlugin, two_maps: ShuffleHandle
    ) -> None:
        winners = [oracle.write(plugin, two_maps, WORKLOAD, MapAttempt(map, 1)).output for map in range(2)]
        blocks = self.read_blocks(plugin, two_maps, range(3))
        for winner in winners:
            got = [(partition, r) for partition, attempt, records in blocks if attempt == winner for r in records]
            oracle.verify(WORKLOAD.expected([winner], range(3)), got)
        assert {attempt for _, attempt, _ in blocks} == set(winners)

    def test_blocks_of_a_partition_range(self, plugin: ShufflePlugin, two_maps: ShuffleHandle) -> None:
        for attempt in WORKLOAD.attempts():
            oracle.write(plugin, two_maps, WORKLOAD, attempt)
        got = [
            (partition, r) for partition, _, records in self.read_blocks(plugin, two_maps, range(1, 2)) for r in records
        ]
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), range(1, 2)), got)

    def test_block_for_no_partition_or_with_negative_count_is_refused(
        self, plugin: ShufflePlugin, two_maps: ShuffleHandle
    ) -> None:
        with plugin.writer(two_maps, MapAttempt(0, 0)) as writer:
            with pytest.raises(InvalidArgument, match=r"3"):
                self.block_writer(writer).write_block(3, pack_records([b"x"]), 1)
            with pytest.raises(InvalidArgument):
                self.block_writer(writer).write_block(0, pack_records([b"x"]), -1)

    def test_block_after_commit_is_refused(self, plugin: ShufflePlugin, two_maps: ShuffleHandle) -> None:
        with plugin.writer(two_maps, MapAttempt(0, 0)) as writer:
            writer.commit()
            with pytest.raises(InvalidArgument):
                self.block_writer(writer).write_block(0, pack_records([b"x"]), 1)
