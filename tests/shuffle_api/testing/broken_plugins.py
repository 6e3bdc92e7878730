"""Plugins that break one promise each, and the exam's test that has to find it.

`test_plugin_tests.py` runs this file as a test session of its own and expects each of these tests to fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from shuffle_api.buffer import Buffer
from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import NO_OPTIONS, Options
from shuffle_api.testing import MemoryShuffle, ShufflePluginTests
from shuffle_api.testing.memory import MemoryMaster, MemoryReader, MemoryWriter
from shuffle_api.testing.memory_service import MemoryBlock, MemoryService
from shuffle_api.values import MapOutput, ShuffleHandle

BlockTuple = tuple[int, MapAttempt, bytes, int]


class Broken(MemoryShuffle):
    """`MemoryShuffle` with its parts replaced."""

    writer_class: ClassVar[type[MemoryWriter]] = MemoryWriter
    reader_class: ClassVar[type[MemoryReader]] = MemoryReader

    def writer(self, handle: ShuffleHandle, attempt: MapAttempt) -> MemoryWriter:
        return self._opened(self.writer_class(MemoryService.find(handle.endpoint), handle.spec, attempt))

    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> MemoryReader:
        return self._opened(self.reader_class(MemoryService.find(handle.endpoint), handle.spec, partitions, maps))


class LosesARecord(Broken):
    class Writer(MemoryWriter):
        def write(self, partition: int, record: Buffer) -> None:
            if len(self._blocks) != 17:
                super().write(partition, record)
            else:
                self._blocks.append(MemoryBlock(partition, b"", 1))

    writer_class = Writer


class RepeatsARecord(Broken):
    class Reader(MemoryReader):
        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            for n, record in enumerate(super().__iter__()):
                yield record
                if n == 5:
                    yield record

    reader_class = Reader


class DropsEmptyRecords(Broken):
    class Reader(MemoryReader):
        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            return (item for item in super().__iter__() if item[1])

    reader_class = Reader


class ReversesRecords(Broken):
    class Reader(MemoryReader):
        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            return reversed(list(super().__iter__()))

    reader_class = Reader


class KeepsTheCallersBuffer(Broken):
    class Writer(MemoryWriter):
        def write(self, partition: int, record: Buffer) -> None:
            self._kept = [*getattr(self, "_kept", []), (partition, memoryview(record))]

        def commit(self) -> MapOutput:
            for partition, record in self.__dict__.pop("_kept", []):
                super().write(partition, record)
            return super().commit()

    writer_class = Writer


class EndsEarlyInSilence(Broken):
    class Reader(MemoryReader):
        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            try:
                yield from super().__iter__()
            except ShuffleError:
                return

    reader_class = Reader


class BeginsAgain(Broken):
    class Reader(MemoryReader):
        def _begin_reading(self, shuffle: ShuffleId) -> None:
            pass

    reader_class = Reader


class ForgetsTheEnd(Broken):
    class Reader(MemoryReader):
        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            for n, record in enumerate(super().__iter__()):
                if n == 100:
                    return
                yield record

    reader_class = Reader


class IgnoresTheMapRange(Broken):
    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> MemoryReader:
        return super().reader(handle, partitions)


class CanBeReadOnce(Broken):
    class Reader(MemoryReader):
        def read_blocks(self) -> Iterator[BlockTuple]:
            yield from super().read_blocks()
            stored = self._exchange._blocks
            stored.update({key: () for key in stored if key[0] == self._spec.id})

    reader_class = Reader


class ShowsBothAttempts(Broken):
    class Writer(MemoryWriter):
        def commit(self) -> MapOutput:
            mine = tuple(self._blocks)
            winner = super().commit()
            if winner.output != self._attempt:
                self._exchange._blocks[self._spec.id, winner.output] += mine
            return winner

    writer_class = Writer


class LastCommitWins(Broken):
    class Writer(MemoryWriter):
        def commit(self) -> MapOutput:
            mine = tuple(self._blocks)
            winner = super().commit()
            self._exchange._blocks[self._spec.id, winner.output] = mine
            return winner

    writer_class = Writer


class LoserThinksItWon(Broken):
    class Writer(MemoryWriter):
        def commit(self) -> MapOutput:
            winner = super().commit()
            return MapOutput(self._attempt, winner.worker, winner.totals)

    writer_class = Writer


class CommitsOnLeaving(Broken):
    class Writer(MemoryWriter):
        def abort(self) -> None:
            if not self._aborted:
                self.commit()

    writer_class = Writer


class WritesAfterTheCommit(Broken):
    class Writer(MemoryWriter):
        def _check_open(self) -> None:
            pass

    writer_class = Writer


class ReadsUnwrittenMapsAsEmpty(Broken):
    class Reader(MemoryReader):
        def read_blocks(self) -> Iterator[BlockTuple]:
            for output in self._exchange.map_outputs(self._spec.id):
                self._maps = range(output.output.map, output.output.map + 1)
                yield from super().read_blocks()

    reader_class = Reader


class LeaksAcrossApps(Broken):
    class Reader(MemoryReader):
        def read_blocks(self) -> Iterator[BlockTuple]:
            for (id, attempt), blocks in self._exchange._blocks.items():
                if id.shuffle == self._spec.id.shuffle:
                    yield from ((partition, attempt, payload, count) for partition, payload, count in blocks)

    reader_class = Reader


class ReadsWhatIsUnregistered(Broken):
    class Reader(MemoryReader):
        def read_blocks(self) -> Iterator[BlockTuple]:
            if self._registered():
                yield from super().read_blocks()

        def _registered(self) -> bool:
            try:
                self._exchange.check_registered(self._spec.id)
            except ShuffleError:
                return False
            return True

    reader_class = Reader


class SharesAnApp(Broken):
    def master(self, app: str) -> MemoryMaster:
        masters: dict[str, MemoryMaster] = self.__dict__.setdefault("masters", {})
        if app not in masters:
            masters[app] = super().master(app)
        return masters[app]


class TakesAnyOption(Broken):
    def __init__(self, options: Options = NO_OPTIONS) -> None:
        super().__init__({key: value for key, value in options.items() if key == "content"})


class RaisesUntypedErrors(Broken):
    class Writer(MemoryWriter):
        def write(self, partition: int, record: Buffer) -> None:
            if partition >= self._spec.partitions:
                raise IndexError("list index out of range")
            super().write(partition, record)

    writer_class = Writer


class MixesUpMaps(Broken):
    shared: ClassVar[dict[ShuffleId, list[MemoryBlock]]] = {}

    class Writer(MemoryWriter):
        def write(self, partition: int, record: Buffer) -> None:
            super().write(partition, record)
            MixesUpMaps.shared.setdefault(self._spec.id, []).append(self._blocks.pop())

        def commit(self) -> MapOutput:
            self._blocks = MixesUpMaps.shared.pop(self._spec.id, [])
            return super().commit()

    writer_class = Writer


class MiscountsBlocks(Broken):
    class Reader(MemoryReader):
        def read_blocks(self) -> Iterator[BlockTuple]:
            return ((p, attempt, payload, count + 1) for p, attempt, payload, count in super().read_blocks())

    reader_class = Reader


FOUND_BY: Mapping[type[Broken], str] = {
    LosesARecord: "test_records_of_many_maps_and_partitions_come_back",
    RepeatsARecord: "test_one_partition_holds_everything",
    DropsEmptyRecords: "test_empty_records_are_records",
    ReversesRecords: "test_order_within_map_and_partition_is_kept",
    KeepsTheCallersBuffer: "test_a_record_may_be_any_buffer_and_be_reused_after_the_call",
    EndsEarlyInSilence: "test_reader_closed_in_the_middle_does_not_seem_to_end",
    BeginsAgain: "test_iterator_left_in_the_middle_goes_on_and_no_second_one_begins",
    ForgetsTheEnd: "test_many_small_records",
    IgnoresTheMapRange: "test_a_range_of_maps",
    CanBeReadOnce: "test_reading_again_gives_the_same_records",
    ShowsBothAttempts: "test_attempt_that_starts_after_the_commit_of_another_does_not_replace_it",
    LastCommitWins: "test_first_commit_wins_and_both_commits_return_the_winner",
    LoserThinksItWon: "test_exactly_one_of_racing_attempts_wins",
    CommitsOnLeaving: "test_leaving_by_an_error_aborts_and_passes_it_on",
    WritesAfterTheCommit: "test_write_after_commit_is_refused",
    ReadsUnwrittenMapsAsEmpty: "test_maps_that_have_not_committed_are_named",
    LeaksAcrossApps: "test_two_applications_with_the_same_shuffle_number_see_their_own_data",
    ReadsWhatIsUnregistered: "test_reader_of_an_unregistered_shuffle_is_refused",
    SharesAnApp: "test_runs_of_one_application_share_nothing",
    TakesAnyOption: "test_unknown_option_is_refused_and_the_known_ones_are_listed",
    RaisesUntypedErrors: "test_refused_record_does_not_spoil_the_attempt",
    MixesUpMaps: "test_writers_of_one_thread_take_turns",
    MiscountsBlocks: "test_records_are_read_as_blocks_that_name_their_attempt",
}

# `Broken` itself breaks nothing: it shows that the tests fail for the promise and not for the way it is broken.
ALL: list[type[Broken]] = [Broken, *FOUND_BY]
for _plugin in ALL:
    globals()[f"Test{_plugin.__name__}"] = type(
        f"Test{_plugin.__name__}", (ShufflePluginTests,), {"plugin_class": _plugin, "supports_blocks": True}
    )
