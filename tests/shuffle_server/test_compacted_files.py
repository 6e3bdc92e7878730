"""Merged compacted files: a read from them returns the same as a read file by file, until
something changes an output."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import MapOutputLost, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store import compacted_file as region_module
from shuffle_server.store import compacted_files as regions_module
from shuffle_server.store import compacted_writer as writer_module
from shuffle_server.store import compaction_model as model_module
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker import fetch_handler as serve_module
from shuffle_server.worker import read_plan as gather_module
from shuffle_server.worker.fetch_handler import serve
from shuffle_transport.blocks import GET_SCHEMA
from tests.shuffle_server.compaction import compacted_paths, own_files
from tests.shuffle_server.helpers import SPEC, batch, block, open_files, output_files, read_all, room, write_map
from tests.shuffle_server.observe.helpers import Scrape
from tests.shuffle_server.test_fetch_handler import pull, write

BELOW = 1 << 20
BLOCKS = st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=30)), max_size=8)
PARTITIONS = 8


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_module, "LEAST_OUTPUTS", 2)
    monkeypatch.setattr(regions_module, "LEAST_MERGED", 2)


def wanted(outputs: list[MapAttempt], first: int = 0, end: int = PARTITIONS) -> list[OutputRange]:
    return [OutputRange(output, first, end) for output in outputs]


def merged(store: Store, outputs: list[MapAttempt]) -> int:
    """Read them twice, so that they are merged; the number of compacted files made."""
    for _ in range(2):
        pull(store, wanted(outputs))
    return store.compaction.merge()


def in_regions(store: Store, ranges: list[OutputRange]) -> int:
    """How many of the ranges are read out of a compacted file."""
    return sum(len(chunk.ranges) for chunk in store.merged(SPEC.id, ranges) if isinstance(chunk, CompactedRun))


def written(root: Path, maps: int = 6) -> tuple[Store, list[MapAttempt]]:
    rng = random.Random(7)
    store = Store(root, options=StoreOptions(compaction=CompactionOptions(BELOW)))
    blocks = [[(rng.randrange(PARTITIONS), rng.randbytes(rng.randrange(90))) for _ in range(20)] for _ in range(maps)]
    return store, [write(store, map_id, each) for map_id, each in enumerate(blocks)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data(), st.lists(BLOCKS, min_size=2, max_size=7), st.sampled_from([200, 1000, 1 << 20]))
def test_a_pull_is_the_same_whatever_of_it_is_merged(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, pushed: list[list[tuple[int, bytes]]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "COMPACTED_BYTES", most)
        store = Store(tmp_path_factory.mktemp("store"), options=StoreOptions(compaction=CompactionOptions(BELOW)))
        outputs = [write(store, map_id, blocks) for map_id, blocks in enumerate(pushed)]
        some = data.draw(st.lists(st.sampled_from(outputs), unique=True, min_size=2))
        bounds = st.integers(0, PARTITIONS)
        ranges = []
        for output in data.draw(st.lists(st.sampled_from(outputs), unique=True)):
            first, end = sorted((data.draw(bounds), data.draw(bounds)))
            ranges.append(OutputRange(output, first, end))
        same = wanted(data.draw(st.permutations(outputs)), 2, 3)
        before = [pull(store, each)[:2] for each in (ranges, same, wanted(outputs))]
        merged(store, some)
        assert [pull(store, each)[:2] for each in (ranges, same, wanted(outputs))] == before
        store.close()


def test_empty_blocks_between_others_are_merged(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(compaction=CompactionOptions(BELOW)))
    blocks = [(3, b""), (1, b"a"), (2, b""), (0, b""), (1, b"b"), (0, b"")]
    outputs = [write(store, map_id, blocks) for map_id in range(3)]
    before = pull(store, wanted(outputs))[0]
    assert merged(store, outputs) == 1
    assert pull(store, wanted(outputs))[0] == before


def test_outputs_are_read_out_of_a_region_and_their_files_are_not_opened(tmp_path: Path) -> None:
    store, outputs = written(tmp_path)
    before = pull(store, wanted(outputs, 3, 4))
    assert merged(store, outputs) == 1
    assert in_regions(store, wanted(outputs)) == len(outputs)
    for path in output_files(tmp_path.parent / tmp_path.name):
        path.rename(path.with_suffix(".aside"))
    assert pull(store, wanted(outputs, 3, 4)) == before


def test_the_first_pull_merges_nothing_nor_do_few_or_large_outputs(tmp_path: Path) -> None:
    store, outputs = written(tmp_path)
    pull(store, wanted(outputs))
    assert store.compaction.merge() == 0
    pull(store, wanted(outputs[:1]))
    assert store.compaction.merge() == 0
    pull(store, wanted(outputs))
    assert store.compaction.wanted.is_set()
    assert store.compaction.merge() == 1
    assert not store.compaction.wanted.is_set()
    large = [write(store, map_id, [(0, bytes(BELOW + 1))]) for map_id in (10, 11)]
    assert merged(store, large) == 0
    unmerging = Store(tmp_path / "other")
    assert merged(unmerging, [write(unmerging, map_id, [(0, b"x")]) for map_id in range(4)]) == 0


def test_a_region_takes_so_many_bytes_and_the_next_one_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "COMPACTED_BYTES", 3000)
    store, outputs = written(tmp_path, maps=9)
    before = pull(store, wanted(outputs))[0]
    assert merged(store, outputs) > 1
    assert pull(store, wanted(outputs))[0] == before
    payloads = [payload for map_id, _, payload in before if map_id < 8]  # one more does not fill a compacted file
    size = sum(map(len, payloads))
    assert store.compaction.statistics().bytes == sum(path.stat().st_size for path in compacted_paths(tmp_path)) > size
    assert store.compaction.statistics().rewritten == size
    store.remove_shuffle(SPEC.id)
    assert (store.compaction.statistics().bytes, store.compaction.statistics().rewritten) == (0, size)


def test_what_could_not_be_merged_is_tried_again_when_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions_module, "LEAST_MERGED", 4)
    store, outputs = written(tmp_path)
    assert merged(store, outputs[:3]) == 0
    pull(store, wanted(outputs[:3]))
    assert not store.compaction.wanted.is_set()
    assert merged(store, outputs) == 1
    assert in_regions(store, wanted(outputs)) == len(outputs)


def test_an_output_that_is_removed_is_lost_and_its_next_attempt_is_the_one_read(tmp_path: Path) -> None:
    store, outputs = written(tmp_path)
    merged(store, outputs)
    store.remove_output(SPEC.id, outputs[2])
    blocks, errors, _ = pull(store, wanted(outputs))
    assert {map_id for map_id, _, _ in blocks} == {0, 1, 3, 4, 5}
    assert [(type(error), error.output) for error in errors] == [(MapOutputLost, outputs[2])]
    again = MapAttempt(2, 1)
    writer = store.stage(SPEC, again, "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(5, b"again")]))
    assert store.publish(writer, turn) is not None
    blocks, errors, _ = pull(store, wanted([*outputs[:2], again, *outputs[3:]]))
    assert [payload for map_id, _, payload in blocks if map_id == 2] == [b"again"]
    assert not errors
    assert [error.output for error in pull(store, wanted(outputs))[1]] == [outputs[2]]


def test_an_output_that_is_away_is_not_read_out_of_a_region(tmp_path: Path) -> None:
    store, outputs = written(tmp_path)
    merged(store, outputs)
    held = store.catalog.find(SPEC.id, 0)
    assert held is not None
    store.catalog.change(SPEC.id, held, tiered=True)
    assert in_regions(store, wanted(outputs)) == len(outputs) - 1


def test_a_region_that_cannot_be_read_is_given_up_in_the_middle_of_a_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_module, "BATCH_BYTES", 100)
    monkeypatch.setattr(gather_module, "BATCH_BYTES", 100)
    store, outputs = written(tmp_path)
    before = pull(store, wanted(outputs))[0]
    merged(store, outputs)
    (run,) = store.merged(SPEC.id, wanted(outputs))
    assert isinstance(run, CompactedRun)
    with monkeypatch.context() as patch:  # the output's own index says where its blocks are
        hole = len(before) // 2 * region_module.COMPACTED_ROW.itemsize
        patch.setattr(region_module.CompactedFile, "rows", _with_a_last_row_beyond_the_end(hole))
        assert pull(store, wanted(outputs))[:2] == (before, [])
    file = run.places[0].file
    os.truncate(file.fd, file.span(PARTITIONS - 1, PARTITIONS)[0] + 1)
    blocks, errors, _ = pull(store, wanted(outputs))
    for output in outputs:
        own = [each for each in blocks if each[0] == output.map]
        assert own == [each for each in before if each[0] == output.map][: len(own)]
    assert [type(error) for error in errors] == [MapOutputLost] * len(errors)
    whole = {output.map for output in outputs} - {error.output.map for error in errors if error.output}
    assert [each for each in blocks if each[0] in whole] == [each for each in before if each[0] in whole]
    assert errors


def _with_a_last_row_beyond_the_end(beyond: int) -> Callable[..., object]:
    read = region_module.CompactedFile.rows

    def rows(self: region_module.CompactedFile, *arguments: int) -> object:
        found = read(self, *arguments).copy()
        found["offset"][-7:] += self.bytes + beyond
        return found

    return rows


def test_who_reads_goes_on_when_the_shuffle_is_removed_and_then_the_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_module, "BATCH_BYTES", 100)
    monkeypatch.setattr(gather_module, "BATCH_BYTES", 100)
    store, outputs = written(tmp_path)
    blocks = pull(store, wanted(outputs))[0]
    merged(store, outputs)
    assert len(compacted_paths(tmp_path)) == 1
    reading = serve(store, "w", GET_SCHEMA, SPEC.id, wanted(outputs), lambda _, __: None, lambda _: None, room())
    served = next(reading)[0].num_rows
    store.remove_shuffle(SPEC.id)
    store.empty_trash()
    assert compacted_paths(tmp_path) == []
    assert deleted_files(tmp_path) == 1
    served += sum(batch.num_rows for batch, _ in reading)
    assert served == len(blocks)
    assert deleted_files(tmp_path) == 0


def test_a_region_takes_memory_for_its_blocks_however_many_partitions_are_declared(tmp_path: Path) -> None:
    spec = ShuffleSpec(ShuffleId("wide", 0), 1 << 26, 6)
    store = Store(tmp_path, options=StoreOptions(compaction=CompactionOptions(BELOW)))
    last = spec.partitions - 1
    outputs = [write(store, map_id, [(0, b"a"), (last, b"b")], spec) for map_id in range(spec.maps)]
    ranges = [OutputRange(output, last, spec.partitions) for output in outputs]
    before = [pull(store, ranges, spec)[:2] for _ in range(2)][1]
    tracemalloc.start()
    try:
        assert store.compaction.merge() == 1
        assert pull(store, ranges, spec)[:2] == before
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_few_files_are_open_while_regions_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_module, "MOST_MERGED", 2)
    store, outputs = written(tmp_path)
    assert merged(store, outputs) == len(outputs) // 2


def deleted_files(root: Path) -> int:
    """Files without a name that this process has open, of a store at `root`."""
    return sum(name.endswith("(deleted)") for name in open_files(root))


def test_a_shuffle_that_is_removed_while_it_is_merged_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, outputs = written(tmp_path)
    make = writer_module.write_compacted

    def write_compacted(*arguments: Any, **named: Any) -> object:
        made = make(*arguments, **named)
        store.remove_shuffle(SPEC.id)
        return made

    monkeypatch.setattr(regions_module, "write_compacted", write_compacted)
    assert merged(store, outputs) == 0
    store.empty_trash()
    assert store.compaction.statistics().bytes == deleted_files(tmp_path) == 0
    assert compacted_paths(tmp_path) == []


def test_a_full_disk_merges_nothing_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, outputs = written(tmp_path)
    before = pull(store, wanted(outputs))[0]

    def full(self: DataDirectory, needed: int) -> None:
        raise StorageFull("full")

    monkeypatch.setattr(DataDirectory, "check_spare", full)
    assert merged(store, outputs) == 0
    assert pull(store, wanted(outputs))[0] == before
    assert not store.compaction.wanted.is_set()  # not again at once
    assert deleted_files(tmp_path) == 0


def test_a_killed_server_serves_what_it_served_and_leaves_no_region(tmp_path: Path) -> None:
    arguments = ["--metrics-listen", "127.0.0.1:0"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "server.log", arguments) as server,
        RemoteShuffle({"server": server.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(4, 40)
        expected = sorted(record for map_id in range(40) for record in write_map(plugin, handle, map_id, 20))
        for _ in range(2):
            for _ in range(2):
                assert read_all(plugin, handle) == expected
            wait_until(lambda: own_files(server.data_dir) == [], "the outputs are merged")
            assert Scrape(server.metrics)("merged_bytes") > 0
            assert read_all(plugin, handle) == expected
            server.kill()
            server.restart()
            assert read_all(plugin, handle) == expected
