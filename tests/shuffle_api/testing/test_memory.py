"""`MemoryShuffle` passes the exam, and does what only it can do."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputLost, MapOutputNotWritten, ServerUnreachable
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShufflePlugin
from shuffle_api.testing import MemoryShuffle, ShufflePluginTests, oracle
from shuffle_api.values import MapOutput, ShuffleHandle

WORKLOAD = oracle.Workload(seed=1, partitions=2, maps=1)


class TestMemoryShuffle(ShufflePluginTests):
    plugin_class = MemoryShuffle
    supports_blocks = True
    supports_batches = True
    can_lose = True

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        assert isinstance(plugin, MemoryShuffle)
        plugin.lose_map_output(handle, output.output.map)


def test_handle_names_the_exchange_of_its_plugin() -> None:
    with MemoryShuffle() as one, MemoryShuffle() as two:
        endpoints = [plugin.master("app").register_shuffle(1, 1).endpoint for plugin in (one, two)]
    assert all(endpoint.startswith("memory:") for endpoint in endpoints)
    assert len(set(endpoints)) == 2


def test_handle_in_another_process_says_that_nobody_is_there() -> None:
    task = (
        "import pickle, sys; from shuffle_api.testing import MemoryShuffle;"
        "MemoryShuffle().reader(pickle.load(sys.stdin.buffer), range(1))"
    )
    with MemoryShuffle() as plugin, plugin.master("app") as master:
        sent = pickle.dumps(master.register_shuffle(1, 0))
        child = subprocess.run([sys.executable, "-c", task], input=sent, capture_output=True, timeout=240)
    assert child.returncode == 1
    assert b"nobody answers at memory:" in child.stderr
    assert b"use the handle in the same process" in child.stderr


def test_handle_of_a_closed_plugin_leads_nowhere() -> None:
    with MemoryShuffle() as plugin:
        handle = plugin.master("app").register_shuffle(1, 0)
    with MemoryShuffle() as other, pytest.raises(ServerUnreachable, match=handle.endpoint):
        other.reader(handle, range(1))


def test_exchange_of_a_forgotten_plugin_does_not_stay_in_memory() -> None:
    handle = MemoryShuffle().master("app").register_shuffle(1, 0)
    gc.collect()
    with MemoryShuffle() as other, pytest.raises(ServerUnreachable):
        other.reader(handle, range(1))


def test_lost_map_output_says_why() -> None:
    with MemoryShuffle() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(2, 1)
        with pytest.raises(MapOutputNotWritten):
            plugin.lose_map_output(handle, 0)
        oracle.write(plugin, handle, WORKLOAD, MapAttempt(0, 0))
        plugin.lose_map_output(handle, 0, reason="a cosmic ray")
        with pytest.raises(MapOutputLost, match="a cosmic ray"):
            oracle.read(plugin, handle)


def test_blocks_of_opaque_content_come_back_one_by_one_and_have_no_records() -> None:
    with MemoryShuffle({"content": "opaque"}) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            writer.write_block(0, b"\xff\xff", 3)
            writer.write_block(0, b"\xfe", 0)
            writer.commit()
        with plugin.reader(handle, range(1)) as reader:
            blocks = [(bytes(payload), records) for _, _, payload, records in reader.read_blocks()]
            with pytest.raises(InvalidArgument, match="read_blocks"):
                list(reader)
    assert blocks == [(b"\xff\xff", 3), (b"\xfe", 0)]


def test_records_cannot_be_written_one_by_one_into_opaque_content() -> None:
    with MemoryShuffle({"content": "opaque"}) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer, pytest.raises(InvalidArgument, match="write_block"):
            writer.write(0, b"record")


def test_commit_states_sizes_and_counts() -> None:
    with MemoryShuffle() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            writer.write(0, b"abc")
            writer.write(0, b"")
            totals = writer.commit().totals
    assert (totals.blocks, totals.records, totals.bytes, totals.raw_bytes) == (2, 2, 11, 11)
