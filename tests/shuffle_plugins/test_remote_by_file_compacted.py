"""Readers on the worker's host read compacted files, whatever happens to these and to the outputs in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.server import ServerProcess
from shuffle_api import ShuffleMaster
from shuffle_api.errors import MapOutputLost, ShuffleError, UnknownShuffle
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport.local_files.local_fetch import OutputBlocks
from tests.shuffle_plugins.test_remote_by_file_moves import OPTIONS, digests, read, write
from tests.shuffle_server.compaction import compacted_paths, own_files
from tests.shuffle_server.test_server import run_cli

COMPACTING = ("--device", "1000:150", "--page-cache", "1k", "--merge-below", "1")
PARTITIONS, MAPS, BLOCK = 8, 40, 2000


@contextmanager
def compacting_job(root: Path) -> Iterator[tuple[ServerProcess, RemoteShuffle, ShuffleMaster]]:
    """A server that compacts all it holds, and a job at it."""
    with (
        ServerProcess(root / "data", root / "log", COMPACTING) as server,
        RemoteShuffle({"server": server.control, **OPTIONS}) as plugin,
        plugin.master("job") as master,
    ):
        yield server, plugin, master


def read_some(plugin: RemoteShuffle, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> list[Any]:
    with plugin.reader(handle, partitions, maps) as reader:
        return sorted(digests(reader.read_blocks()))


def written(plugin: RemoteShuffle, handle: ShuffleHandle) -> list[Any]:
    return sorted(each for n in range(MAPS) for each in write(plugin, handle, n, size=BLOCK))


def compacted(data_dir: Path) -> None:
    wait_until(lambda: bool(compacted_paths(data_dir)) and not own_files(data_dir), "all outputs are compacted")


def of(expected: list[Any], partitions: range, maps: range = range(MAPS)) -> list[Any]:
    return [each for each in expected if each[0] in maps and each[1] in partitions]


def test_blocks_of_many_maps_are_read_at_once_and_are_those_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = OutputBlocks.read

    def counted(self: OutputBlocks, offset: int, length: int) -> memoryview:
        reads.append(length)
        return real(self, offset, length)

    monkeypatch.setattr(OutputBlocks, "read", counted)
    with compacting_job(tmp_path) as (server, plugin, master):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = written(plugin, handle)
        assert read(plugin, handle) == expected  # its process keeps where the outputs lie
        compacted(server.data_dir)
        files = len(compacted_paths(server.data_dir))
        assert read(plugin, handle) == expected
        for again in range(2):
            with RemoteShuffle({**OPTIONS}) as fresh:
                reads.clear()
                assert read_some(fresh, handle, range(3, 4)) == of(expected, range(3, 4))
                assert len(reads) <= 2 * files
                reads.clear()
                assert read_some(fresh, handle, range(2, 5)) == of(expected, range(2, 5))
                assert len(reads) <= 3 * 2 * files
                reads.clear()
                assert read_some(fresh, handle, range(3, 4), range(10, 20)) == of(expected, range(3, 4), range(10, 20))
                assert read(fresh, handle) == expected
                assert fresh.statistics().pulled_bytes == 0
            if not again:
                server.kill()
                server.restart()
                assert read(plugin, handle) == expected
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            blocks = iter(reader.read_blocks())
            held = [next(blocks)]
            master.unregister_shuffle(handle)
            try:  # those of the file that is open
                for block in blocks:
                    held.append(block)
            except (UnknownShuffle, MapOutputLost):
                assert files > 1
        assert set(digests(held)) <= set(expected)
        wait_until(lambda: compacted_paths(server.data_dir) == [], "the files are gone")


def test_one_damaged_output_is_lost_and_its_next_attempt_is_read_beside_the_others(tmp_path: Path) -> None:
    with compacting_job(tmp_path) as (server, plugin, master):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = written(plugin, handle)
        read(plugin, handle)
        compacted(server.data_dir)
        path = compacted_paths(server.data_dir)[0]
        content = bytearray(path.read_bytes())
        content[20_000] ^= 1  # a payload of the first partition
        path.write_bytes(content)
        with pytest.raises(ShuffleError) as failed:
            read(plugin, handle)
        assert failed.value.output is not None
        bad = failed.value.output.map
        wait_until(lambda: bad not in {each.output.map for each in master.map_outputs(handle)}, "it is lost")
        assert {each.output.map for each in master.map_outputs(handle)} == set(range(MAPS)) - {bad}
        server.kill()
        server.restart()
        for rest in (range(bad), range(bad + 1, MAPS)):
            assert read_some(plugin, handle, range(PARTITIONS), rest) == of(expected, range(PARTITIONS), rest)
        assert bad not in {each.output.map for each in master.map_outputs(handle)}
        write(plugin, handle, bad, BLOCK, attempt=1)
        assert read(plugin, handle) == expected


def test_a_worker_is_drained_of_what_it_has_compacted(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=0) as cluster,
        RemoteShuffle({"server": cluster.master.control, **OPTIONS}) as plugin,
    ):
        cluster.workers.append(cluster.add_worker("first", *COMPACTING))
        with plugin.master("job") as master:
            handle = master.register_shuffle(PARTITIONS, MAPS)
            expected = written(plugin, handle)
            read(plugin, handle)
            first = cluster.workers[0]
            compacted(first.data_dir)
            cluster.workers.append(cluster.add_worker("second"))
            with plugin.reader(handle, range(PARTITIONS)) as reader:
                blocks = iter(reader.read_blocks())
                held = [next(blocks)]
                done = run_cli("drain", "--master", cluster.master.control, first.worker, "--json", "--timeout", "100")
                assert done.returncode == 0, done.stderr
                wait_until(lambda: not first.running, "the worker's process ends")
                held += blocks
            first.stop()
            assert sorted(digests(held)) == expected
            assert {output.worker for output in master.map_outputs(handle)} == {cluster.workers[1].worker}
            assert read(plugin, handle) == expected


def test_compacted_outputs_move_to_the_object_store_and_back(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    arguments = [*COMPACTING, "--tier", f"file://{tmp_path / 'cold'}", "--tier-after", "4"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server,
        RemoteShuffle({"server": server.control, **OPTIONS}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = written(plugin, handle)
        assert read(plugin, handle) == expected
        wait_until(lambda: "compacted " in (tmp_path / "log").read_text(), "outputs are compacted")
        wait_until(
            lambda: not own_files(server.data_dir) and not compacted_paths(server.data_dir), "all outputs are away"
        )
        assert read(plugin, handle) == expected
        server.kill()
        server.restart()
        assert read(plugin, handle) == expected
