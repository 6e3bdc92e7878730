"""Files that are handed over where there is little room: the disk, the floor and the quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.columnar import HashPartitioner
from shuffle_api.errors import QuotaExceeded, StorageFull
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from tests.arrow_memory import own_arrow_memory
from tests.shuffle_plugins.by_file import BY_FILE, MIB, PARTITIONS, numbers, rows, write
from tests.shuffle_server.helpers import fill, mounted_tmpfs, output_files


def test_a_full_directory_refuses_what_is_new_by_name_and_harms_nothing(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 40 * MIB) as disk:
        arguments = ["--free-floor", "0"]
        with (
            ServerProcess(disk / "data", tmp_path / "log", arguments) as server,
            RemoteShuffle({"server": server.control, **BY_FILE, "retry": 1}) as plugin,
            plugin.master("app") as master,
        ):
            handle = master.register_shuffle(PARTITIONS, 3)
            expected = write(plugin, handle, 0)
            with plugin.writer(handle, MapAttempt(1, 0)) as writer:
                writer.write_batch(rows(1), HashPartitioner("n"))
                writer.write_batch(rows(1), HashPartitioner("n"))
                ballast = fill(disk)
                with pytest.raises(StorageFull, match=str(disk)):
                    for _ in range(3):
                        writer.write_batch(rows(1), HashPartitioner("n"))
                    writer.commit()
            assert not list((server.data_dir / "worker/apps").rglob("*.partial"))
            with plugin.reader(handle, range(PARTITIONS), range(1)) as reader:
                assert numbers([batch for _, batch in reader.read_batches()]) == expected
            ballast.unlink()
            write(plugin, handle, 2)
            assert plugin.statistics().pushed_bytes == 0


def test_the_floor_and_the_quota_hold_while_a_lent_file_is_written(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 180 * MIB) as disk:
        with (
            ServerProcess(disk / "data", tmp_path / "log", ["--free-floor", "60", "--app-max-bytes", "40m"]) as server,
            RemoteShuffle({"server": server.control, **BY_FILE}) as plugin,
            plugin.master("one") as one,
            plugin.master("two") as two,
            plugin.master("three") as three,
        ):
            for master in (one, two):
                handle = master.register_shuffle(PARTITIONS, 2)
                write(plugin, handle, 0, batches=5)  # 21 MiB
            handle = one.register_shuffle(PARTITIONS, 1)
            with pytest.raises(QuotaExceeded):
                write(plugin, handle, 0, batches=12)  # 49 MiB: the quota ends before the floor
            handle = three.register_shuffle(PARTITIONS, 1)
            with pytest.raises(StorageFull, match="stay free"):
                write(plugin, handle, 0, batches=12)  # the floor before the quota
            space = os.statvfs(disk)
            assert space.f_bfree >= 0.6 * space.f_blocks
            wait_until(lambda: len(output_files(server.data_dir)) == 2, "the files of refused outputs go")


def test_a_writer_keeps_no_rows_of_what_it_has_written_to_a_file(tmp_path: Path) -> None:
    options = {**BY_FILE, "buffer_bytes": 4 * MIB, "block_bytes": 1 * MIB}
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log") as server,
        RemoteShuffle({"server": server.control, **options}) as plugin,
        plugin.master("app") as master,
    ):
        handle = master.register_shuffle(16, 1)  # blocks become full seldom: it is the buffer that ends them
        batch = rows(0)
        with own_arrow_memory() as memory, plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for _ in range(10):
                writer.write_batch(batch, HashPartitioner("n"))
                memory.look()
            assert writer.commit().totals.records == 10 * batch.num_rows
        assert 0 < memory.most <= 4 * MIB
        assert plugin.statistics().handed_over_bytes > 40 * MIB
