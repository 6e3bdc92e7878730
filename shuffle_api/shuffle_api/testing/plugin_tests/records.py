"""Records come back as they were written: all, once, in order, byte for byte."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleMaster, ShufflePlugin
from shuffle_api.testing import oracle
from shuffle_api.testing.plugin_tests.base import PluginTestBase
from shuffle_api.values import ShuffleHandle

WORKLOADS = st.builds(
    oracle.Workload,
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 9),
    maps=st.integers(0, 4),
    records=st.integers(0, 60),
    size=st.sampled_from([0, 1, 100, 5_000]),
)


class RecordTests(PluginTestBase):
    """Round trips."""

    def check_workload(self, plugin: ShufflePlugin, master: ShuffleMaster, workload: oracle.Workload) -> ShuffleHandle:
        """Write it, read it, ask the oracle."""
        handle = master.register_shuffle(workload.partitions, workload.maps)

        def write() -> None:
            for attempt in workload.attempts():
                assert oracle.write(plugin, handle, workload, attempt).output == attempt

        got = self.read_written(plugin, handle, write)
        oracle.verify(workload.expected(workload.attempts(), range(workload.partitions)), got)
        return handle

    def check_records(self, plugin: ShufflePlugin, master: ShuffleMaster, records: list[bytes]) -> None:
        """The records come back from one partition of one map, in order."""
        handle = master.register_shuffle(1, 1)

        def write() -> None:
            with plugin.writer(handle, MapAttempt(0, 0)) as writer:
                oracle.fill(writer, ((0, record) for record in records))
                writer.commit()

        assert self.read_written(plugin, handle, write) == [(0, record) for record in records]

    def test_records_of_many_maps_and_partitions_come_back(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=1, partitions=7, maps=5))

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(workload=WORKLOADS)
    def test_any_workload_comes_back(
        self, plugin: ShufflePlugin, master: ShuffleMaster, workload: oracle.Workload
    ) -> None:
        self.check_workload(plugin, master, workload)

    def test_one_partition_holds_everything(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=2, partitions=1, maps=3))

    def test_many_partitions_most_of_them_nearly_empty(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=3, partitions=200, maps=4, records=300))

    def test_many_small_records(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=4, partitions=3, maps=1, records=20_000, size=8))

    def test_many_maps(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=5, partitions=2, maps=30, records=5))

    def test_order_within_map_and_partition_is_kept(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_records(plugin, master, [b"%d" % n for n in range(1000)])

    def test_one_record(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_records(plugin, master, [b"alone"])

    def test_empty_records_are_records(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_records(plugin, master, [b"", b"", b"x", b""])

    def test_big_record_comes_back(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        # Half of it shrinks, half does not; its neighbours stay in their places.
        big = bytes(4 << 20) + random.Random(6).randbytes(4 << 20)
        self.check_records(plugin, master, [b"before", big, b"after"])

    def test_bytes_of_any_kind_come_back(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        texts = ["plain", "Ünïcödé", "漢字", "\N{GRINNING FACE}", "line\nbreak\0nul"]
        framing = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\5\0\0\0hello"]
        self.check_records(plugin, master, [*map(str.encode, texts), bytes(range(256)), *framing])

    def test_equal_records_are_all_kept(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_records(plugin, master, [b"same"] * 50)

    def test_a_record_may_be_any_buffer_and_be_reused_after_the_call(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        handle = master.register_shuffle(1, 1)

        def write() -> None:
            with plugin.writer(handle, MapAttempt(0, 0)) as writer:
                buffer = bytearray(b"first")
                writer.write(0, buffer)
                buffer[:] = b"other"
                writer.write(0, memoryview(buffer)[1:4])
                buffer[:] = b"XXXXX"
                writer.commit()

        got = self.read_written(plugin, handle, write)
        assert got == [(0, b"first"), (0, b"the")]
        assert all(type(record) is bytes for _, record in got)

    def test_maps_without_records_are_complete_and_empty(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=7, partitions=3, maps=4, records=0))

    def test_a_shuffle_without_maps_is_empty(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        self.check_workload(plugin, master, oracle.Workload(seed=8, partitions=3, maps=0))

    def test_commit_states_how_many_records_were_written(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        workload = oracle.Workload(seed=9, partitions=4, maps=2, records=37)
        handle = self.check_workload(plugin, master, workload)
        assert [output.totals.records for output in master.map_outputs(handle)] == [37, 37]
