"""Map outputs that the `remote` plugin hands over as files: what goes which way, and what happens when it cannot."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.columnar import HashPartitioner
from shuffle_api.errors import (
    BlockCorrupt,
    MapOutputLost,
    MapOutputNotWritten,
    PermissionDenied,
    Unauthenticated,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport import messages
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.local_files import LocalFileAccess, locate_blocks
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.certificates import make_party, make_secret
from tests.shuffle_plugins.by_file import BY_FILE, MIB, PARTITIONS, numbers, read, rows, write
from tests.shuffle_server.helpers import output_files

DEADLINE = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", ["--staged-timeout", "2"]) as process:
        yield process


@pytest.fixture
def plugin(server: ServerProcess) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": server.control, **BY_FILE}) as remote:
        yield remote


@pytest.fixture
def master(plugin: RemoteShuffle) -> Iterator[ShuffleMaster]:
    with plugin.master("app") as registered:
        yield registered


def test_all_goes_by_file_uncompressed_and_is_read_from_it(plugin: RemoteShuffle, master: ShuffleMaster) -> None:
    handle = master.register_shuffle(PARTITIONS, 2)
    expected = write(plugin, handle, 0) + write(plugin, handle, 1)
    assert numbers(read(plugin, handle)) == expected
    [first, second] = master.map_outputs(handle)
    stored = first.totals.bytes + second.totals.bytes
    assert stored == first.totals.raw_bytes + second.totals.raw_bytes
    statistics = plugin.statistics()
    assert (statistics.pushed_bytes, statistics.handed_over_bytes) == (0, stored)
    assert (statistics.pulled_bytes, statistics.located_bytes) == (0, stored)


def test_off_means_the_wire(server: ServerProcess) -> None:
    options = {"server": server.control, **BY_FILE, "hand_over": "off", "hand_over_codec": "shuffle"}
    with RemoteShuffle(options) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 1)
        expected = write(plugin, handle, 0)
        assert numbers(read(plugin, handle)) == expected
        [output] = master.map_outputs(handle)
        assert output.totals.bytes < output.totals.raw_bytes
        statistics = plugin.statistics()
    assert statistics == plugin.statistics()  # what closed connections moved counts too
    assert (statistics.pushed_bytes, statistics.pulled_bytes) == (output.totals.bytes,) * 2
    assert (statistics.handed_over_bytes, statistics.located_bytes) == (0, 0)


def test_what_is_handed_over_is_compressed_on_demand(server: ServerProcess) -> None:
    with RemoteShuffle({"server": server.control, **BY_FILE, "hand_over_codec": "shuffle"}) as plugin:
        with plugin.master("app") as master:
            handle = master.register_shuffle(PARTITIONS, 1)
            expected = write(plugin, handle, 0)
            assert numbers(read(plugin, handle)) == expected
            [output] = master.map_outputs(handle)
        assert plugin.statistics().handed_over_bytes == output.totals.bytes < output.totals.raw_bytes


def test_small_outputs_are_pushed_and_little_of_many_is_pulled(server: ServerProcess) -> None:
    with RemoteShuffle({"server": server.control, **BY_FILE, "hand_over_from": 1 * MIB}) as plugin:
        with plugin.master("app") as master:
            small = master.register_shuffle(PARTITIONS, 1)
            with plugin.writer(small, MapAttempt(0, 0)) as writer:
                writer.write_batch(rows(0, 100), HashPartitioner("n"))
                writer.commit()
            assert len(numbers(read(plugin, small))) == 100
            assert plugin.statistics().handed_over_bytes == plugin.statistics().located_bytes == 0
            # All of it is much, and a partition of 1,000 is little.
            large = master.register_shuffle(1000, 1)
            write(plugin, large, 0)
            assert plugin.statistics().handed_over_bytes > 4 * MIB
            before = plugin.statistics()
            read(plugin, large, range(7, 8))
            assert plugin.statistics().located_bytes == 0
            assert plugin.statistics().pulled_bytes > before.pulled_bytes
            read(plugin, large, range(1000))
            assert plugin.statistics().located_bytes == before.handed_over_bytes


def test_blocks_and_records_go_by_file_too(server: ServerProcess) -> None:
    options = {"server": server.control, **BY_FILE, "content": "records", "block_bytes": "4k"}
    with RemoteShuffle(options) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 1)
        buffer = bytearray(b"12345678" * 16384)
        expected = []
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for n in range(3000):
                writer.write(n % PARTITIONS, b"%d" % n * 20)
                expected.append((n % PARTITIONS, b"%d" % n * 20))
            for n in range(20):  # the buffer is the caller's again when the call returns
                buffer[8:12] = b"%04d" % n
                buffer[:8] = (len(buffer) - 4).to_bytes(4, "little") + b"...."
                writer.write_block(n % PARTITIONS, buffer, 1)
                expected.append((n % PARTITIONS, bytes(buffer[4:])))
            writer.commit()
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            assert sorted(reader) == sorted(expected)
        assert plugin.statistics().pushed_bytes == plugin.statistics().pulled_bytes == 0


# ------------------------------------------------------------------ what becomes of what is read


def test_batches_stay_what_they_are_when_their_shuffle_is_removed_and_its_files_are_written_over(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    handle = master.register_shuffle(PARTITIONS, 1)
    expected = write(plugin, handle, 0)
    held = read(plugin, handle)
    [path] = (server.data_dir / "worker/apps").rglob("*.out")
    inode = path.stat().st_ino
    master.unregister_shuffle(handle)
    again = master.register_shuffle(PARTITIONS, 1)
    write(plugin, again, 0, batches=2)
    [path] = (server.data_dir / "worker/apps").rglob("*.out")
    assert path.stat().st_ino == inode  # nobody has it open
    assert numbers(held) == expected
    for batch in held:
        batch.validate(full=True)


def test_a_file_that_nobody_reads_any_more_is_written_over(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    first = master.register_shuffle(PARTITIONS, 1)
    write(plugin, first, 0, batches=2)
    assert len(read(plugin, first)) > 1
    [path] = (server.data_dir / "worker/apps").rglob("*.out")
    inode = path.stat().st_ino
    master.unregister_shuffle(first)
    second = master.register_shuffle(PARTITIONS, 1)
    expected = write(plugin, second, 0)
    [path] = (server.data_dir / "worker/apps").rglob("*.out")
    assert path.stat().st_ino == inode
    assert numbers(read(plugin, second)) == expected


def test_a_flipped_bit_is_found_and_the_map_is_lost(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    handle = master.register_shuffle(PARTITIONS, 2)
    write(plugin, handle, 0)
    expected = write(plugin, handle, 1)
    path = next((server.data_dir / "worker/apps").rglob("0.0.out"))
    with path.open("r+b") as file:
        file.seek(2 * MIB)
        byte = file.read(1)[0]
        file.seek(2 * MIB)
        file.write(bytes([byte ^ 1]))
    with pytest.raises((BlockCorrupt, MapOutputLost)) as error:
        read(plugin, handle)
    assert error.value.output == MapAttempt(0, 0)
    wait_until(lambda: len(master.map_outputs(handle)) == 1, "the output is given up")
    with plugin.reader(handle, range(PARTITIONS), range(1, 2)) as reader:
        assert numbers([batch for _, batch in reader.read_batches()]) == expected


def test_a_file_that_is_gone_is_asked_for_over_the_wire_which_says_so(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    handle = master.register_shuffle(PARTITIONS, 1)
    write(plugin, handle, 0)
    next((server.data_dir / "worker/apps").rglob("0.0.out")).unlink()
    with pytest.raises(MapOutputLost):
        read(plugin, handle)


def test_another_applications_token_gets_no_file(tmp_path: Path) -> None:
    """This user may read the files; a foreign task cannot, as the worker does not return their paths to it."""
    party, secret = make_party(tmp_path / "tls"), make_secret(tmp_path / "secret")
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret)]
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret))
    secured: dict[str, OptionValue] = {**BY_FILE, "tls_ca": str(party.ca)}
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        own = secured | {"server": server.control, "secret_file": str(secret)}
        with RemoteShuffle(own) as plugin, plugin.master("mine") as master:
            handle = master.register_shuffle(PARTITIONS, 1)
            expected = write(plugin, handle, 0)
            assert numbers(read(plugin, handle)) == expected
            assert plugin.statistics().pulled_bytes == 0
            foreign = secured | {"token": keys.for_app("other").token}
            with RemoteShuffle(foreign) as stranger:
                with pytest.raises(Unauthenticated):
                    read(stranger, handle)
                assert stranger.statistics().located_bytes == 0
            # Nor does it help to know the file with the nonce.
            nonce = (server.data_dir / "worker" / "nonce").read_bytes()
            ticket = pb.GetTicket(shuffle=messages.key_of(handle.spec.id), end_partition=1)
            request = pb.LocateBlocksRequest(nonce=nonce, ticket=ticket)
            with closing(FlightClient(server.data, credentials=keys.for_app("other"))) as client:
                with pytest.raises(PermissionDenied):
                    LocalFileAccess("mine").act(client, "locate", request)
                assert locate_blocks(LocalFileAccess("mine"), server.worker, client, ticket) is None


# ------------------------------------------------------------------ what becomes of what is written


def _write_and_wait(handle: ShuffleHandle, commit: bool, pipe: Any) -> None:
    """A map task, to be killed. It says when it has written, or committed."""
    plugin = RemoteShuffle(BY_FILE)
    writer = plugin.writer(handle, MapAttempt(0, 0))
    writer.write_batch(rows(0), HashPartitioner("n"))
    writer.write_batch(rows(0), HashPartitioner("n"))
    if commit:
        writer.commit()
    pipe.send(plugin.statistics().handed_over_bytes)
    pipe.recv()


@pytest.mark.parametrize("commit", [False, True])
def test_a_writer_that_is_killed_leaves_all_or_nothing(
    commit: bool, plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    handle = master.register_shuffle(PARTITIONS, 1)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    task = context.Process(target=_write_and_wait, args=(handle, commit, theirs))
    task.start()
    try:
        assert ours.poll(DEADLINE)
        assert ours.recv() > MIB
        [partial] = output_files(server.data_dir)
        assert partial.suffix == (".out" if commit else ".partial")
    finally:
        assert task.pid is not None
        os.kill(task.pid, signal.SIGKILL)
        task.join(DEADLINE)
        ours.close()
    if commit:
        assert len(numbers(read(plugin, handle))) == 2 * len(rows(0))
        return
    with pytest.raises(MapOutputNotWritten):
        read(plugin, handle)
    wait_until(lambda: not output_files(server.data_dir), "the worker drops what nobody writes")
    with plugin.writer(handle, MapAttempt(0, 1)) as writer:  # the next attempt
        writer.write_batch(rows(0), HashPartitioner("n"))
        writer.commit()
    assert len(numbers(read(plugin, handle))) == len(rows(0))


def test_a_worker_that_is_killed_while_it_lends_gets_all_of_it_pushed(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    handle = master.register_shuffle(PARTITIONS, 2)
    expected = write(plugin, handle, 0)
    batch = rows(1)
    with plugin.writer(handle, MapAttempt(1, 0)) as writer:
        writer.write_batch(batch, HashPartitioner("n"))
        wait_until(lambda: plugin.statistics().handed_over_bytes > len(expected) * 100, "something is written")
        server.kill()
        server.restart()
        writer.write_batch(batch, HashPartitioner("n"))
        writer.commit()
    assert numbers(read(plugin, handle)) == sorted(expected + 2 * batch["n"].to_pylist())
    assert plugin.statistics().pushed_bytes > MIB
    assert not list((server.data_dir / "worker/apps").rglob("*.partial"))
    # With the new nonce it goes by file again: what is read, and the next map.
    before = plugin.statistics()
    again = master.register_shuffle(PARTITIONS, 1)
    assert write(plugin, again, 0) == numbers(read(plugin, again))
    assert plugin.statistics().pushed_bytes == before.pushed_bytes


def test_a_lent_file_that_somebody_spoils_is_pushed_instead(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    handle = master.register_shuffle(PARTITIONS, 1)
    batch = rows(0)
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        for _ in range(2):
            writer.write_batch(batch, HashPartitioner("n"))
        [partial] = output_files(server.data_dir)
        partial.rename(partial.with_suffix(".elsewhere"))
        writer.commit()
        partial.with_suffix(".elsewhere").unlink()
    assert numbers(read(plugin, handle)) == sorted(2 * batch["n"].to_pylist())
    assert plugin.statistics().pushed_bytes > MIB
    assert [path.suffix for path in output_files(server.data_dir)] == [".out"]


def test_an_aborted_writer_leaves_nothing(plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess) -> None:
    handle = master.register_shuffle(PARTITIONS, 1)
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        for _ in range(2):
            writer.write_batch(rows(0), HashPartitioner("n"))
        assert output_files(server.data_dir)
    wait_until(lambda: not output_files(server.data_dir), "the worker drops what was aborted")


def test_without_a_nonce_to_read_all_goes_over_the_wire(
    plugin: RemoteShuffle, master: ShuffleMaster, server: ServerProcess
) -> None:
    (server.data_dir / "worker" / "nonce").unlink()
    handle = master.register_shuffle(PARTITIONS, 1)
    expected = write(plugin, handle, 0)
    assert numbers(read(plugin, handle)) == expected
    statistics = plugin.statistics()
    assert statistics.handed_over_bytes == statistics.located_bytes == 0 < statistics.pushed_bytes
