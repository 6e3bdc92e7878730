"""Reading from workers' files while what lies there moves: to other workers, into regions, to the object store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.server import ServerProcess
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.test_server import run_cli

PARTITIONS, MAPS = 4, 6
OPTIONS: dict[str, OptionValue] = {
    "timeout": 60,
    "retry": 60,
    "content": "opaque",
    "codec": "none",
    "hand_over_from": 0,
}


def digest(map_id: int, partition: int, payload: Any) -> tuple[int, int, str]:
    return map_id, partition, hashlib.sha256(payload).hexdigest()


def write(
    plugin: RemoteShuffle, handle: ShuffleHandle, map_id: int, size: int = 256 << 10, attempt: int = 0
) -> list[Any]:
    """Two blocks in each partition."""
    random = np.random.default_rng(map_id)
    written = []
    with plugin.writer(handle, MapAttempt(map_id, attempt)) as writer:
        for n in range(2 * handle.spec.partitions):
            payload = random.bytes(size)
            writer.write_block(n % handle.spec.partitions, payload, 0)
            written.append(digest(map_id, n % handle.spec.partitions, payload))
        writer.commit()
    return written


def digests(blocks: Iterable[Any]) -> list[Any]:
    return [digest(output.map, partition, payload) for partition, output, payload, _ in blocks]


def read(plugin: RemoteShuffle, handle: ShuffleHandle) -> list[Any]:
    with plugin.reader(handle, range(handle.spec.partitions)) as reader:
        return sorted(digests(reader.read_blocks()))


def test_a_worker_is_drained_in_the_middle_of_a_read(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=2) as cluster,
        RemoteShuffle({"server": cluster.master.control, **OPTIONS}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = sorted(each for n in range(MAPS) for each in write(plugin, handle, n))
        assert plugin.statistics().pushed_bytes == 0
        victim = cluster.worker(master.map_outputs(handle)[0].worker)
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            blocks = iter(reader.read_blocks())
            held = [next(blocks)]
            done = run_cli("drain", "--master", cluster.master.control, victim.worker, "--json", "--timeout", "50")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["left"]
            wait_until(lambda: not victim.running, "the worker's process ends")
            held += blocks
        assert sorted(digests(held)) == expected  # the payload of the first one too, whose file is deleted
        victim.stop()
        assert {output.worker for output in master.map_outputs(handle)}.isdisjoint({victim.worker})
        before = plugin.statistics().located_bytes
        assert read(plugin, handle) == expected
        assert plugin.statistics().located_bytes - before == 2 * PARTITIONS * MAPS * (256 << 10)


def test_a_worker_is_killed_in_the_middle_of_a_read_and_another_one_has_copies(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=2) as cluster,
        RemoteShuffle({"server": cluster.master.control, **OPTIONS, "replicas": 2}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = sorted(each for n in range(MAPS) for each in write(plugin, handle, n))
        assert plugin.statistics().pushed_bytes == 0
        assert all(len(set(output.workers)) == 2 for output in master.map_outputs(handle))
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            blocks = iter(reader.read_blocks())
            held = [next(blocks)]
            cluster.worker(master.map_outputs(handle)[0].worker).kill()
            held += blocks
        assert sorted(digests(held)) == expected
        assert read(plugin, handle) == expected
        assert plugin.statistics().pulled_bytes == 0  # the other one's files are here as well


def test_outputs_move_to_the_object_store_in_the_middle_of_a_read(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    arguments = ["--tier", f"file://{tmp_path / 'cold'}", "--tier-after", "1"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server,
        RemoteShuffle({"server": server.control, **OPTIONS}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = sorted(each for n in range(MAPS) for each in write(plugin, handle, n))
        files = partial(lambda: list((tmp_path / "data/worker/apps").rglob("*.out")))
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            blocks = iter(reader.read_blocks())
            held = [next(blocks)]
            wait_until(lambda: not files(), "all outputs are away")
            held += blocks
        assert sorted(digests(held)) == expected
        assert read(plugin, handle) == expected


@pytest.mark.timeout(180)
def test_outputs_are_merged_while_they_are_read_from_their_files(tmp_path: Path) -> None:
    maps = 64
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log") as server,
        RemoteShuffle({"server": server.control, **OPTIONS}) as plugin,
        RemoteShuffle({"hand_over": "off"}) as wire,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(2, maps)
        expected = sorted(each for n in range(maps) for each in write(plugin, handle, n, size=8 << 10))
        with plugin.reader(handle, range(2)) as reader:
            blocks = iter(reader.read_blocks())
            held = [next(blocks)]
            for _ in range(3):
                with wire.reader(handle, range(1)) as other:
                    assert len(list(other.read_blocks())) == 2 * maps
            wait_until(lambda: "compacted " in (tmp_path / "log").read_text(), "outputs are merged")
            held += blocks
        assert sorted(digests(held)) == expected
        read(plugin, handle)  # a place that is not so any more is asked for again after that
        pulled = plugin.statistics().pulled_bytes
        assert read(plugin, handle) == expected
        assert plugin.statistics().pulled_bytes == pulled
