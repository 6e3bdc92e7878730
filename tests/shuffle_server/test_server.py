"""The server as a process: crashes, restarts, lost and damaged data, strangers, a clean end."""

from __future__ import annotations

import functools
import http.client
import json
import operator
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import (
    BlockCorrupt,
    InvalidArgument,
    MapOutputLost,
    ProtocolMismatch,
    ServerUnreachable,
    StorageFailed,
    StorageFull,
    UnknownCodec,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA, put_batch, table_rows
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block, fill, mounted_tmpfs, output_files, read_all, write_map


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shuffle_server", *arguments], capture_output=True, text=True, timeout=240, check=False
    )


def committed_file(server: ServerProcess, map_id: int) -> Path:
    [path] = server.data_dir.rglob(f"{map_id}.*.out")
    return path


def test_committed_data_survives_kill_9_and_uncommitted_data_does_not_show(
    server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 3)
        expected = write_map(plugin, handle, 0) + write_map(plugin, handle, 1)
        half = plugin.writer(handle, MapAttempt(2, 0))
        for _ in range(3):
            half.write(1, os.urandom(9 << 20))  # large enough to be on the server's disk
        server.kill()
        server.restart()
        assert not list(server.data_dir.rglob("*.partial"))
        assert [o.output.map for o in master.map_outputs(handle)] == [0, 1]
        assert read_all(plugin, handle, range(2)) == sorted(expected)
        half.abort()
        expected += write_map(plugin, handle, 2, attempt=1)
        assert read_all(plugin, handle) == sorted(expected)


def test_a_writer_whose_server_restarts_is_told_to_write_again(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(2, 1)
        writer = plugin.writer(handle, MapAttempt(0, 0))
        for _ in range(2):  # the second is pushed when the first has arrived
            writer.write(0, os.urandom(9 << 20))
        server.kill()
        server.restart()
        writer.write(0, b"more")
        with pytest.raises(MapOutputLost, match="restarted"):
            writer.commit()
        writer.abort()
        expected = write_map(plugin, handle, 0, attempt=1)
        assert read_all(plugin, handle) == expected


def test_rounds_of_kill_9_lose_nothing_that_was_acknowledged(server: ServerProcess, plugin: RemoteShuffle) -> None:
    """Writers commit in threads while the server is killed again and again; each acknowledged commit is kept."""
    rounds, maps = 5, 40
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, maps)
        expected: dict[int, list[tuple[int, bytes]]] = {}
        todo = list(range(maps))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    if not todo:
                        return
                    map_id = todo.pop()
                for attempt in range(20):
                    try:
                        written = write_map(plugin, handle, map_id, 400, attempt)
                    except MapOutputLost:
                        continue
                    winner = next(o for o in master.map_outputs(handle) if o.output.map == map_id)
                    assert winner.output.attempt == attempt
                    with lock:
                        expected[map_id] = written
                    break

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(rounds):
            server.kill()
            server.restart()
        for thread in threads:
            thread.join(400)
        server.kill()
        server.restart()
        assert sorted(expected) == list(range(maps))
        assert read_all(plugin, handle) == sorted(record for written in expected.values() for record in written)


def test_the_application_leaves_no_file_behind(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        write_map(plugin, handle, 0)
        plugin.writer(handle, MapAttempt(1, 0)).write(0, os.urandom(9 << 20))
        assert output_files(server.data_dir)
    server.stop()
    assert output_files(server.data_dir) == []


def test_a_deleted_output_is_lost_by_name_the_rest_is_read_and_a_new_attempt_mends_it(
    server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 3)
        written = [write_map(plugin, handle, m) for m in range(3)]
        committed_file(server, 1).unlink()
        with pytest.raises(MapOutputLost) as lost:
            read_all(plugin, handle)
        assert lost.value.output == MapAttempt(1, 0)
        assert [o.output.map for o in master.map_outputs(handle)] == [0, 2]
        with pytest.raises(MapOutputLost, match="maps 1 "):
            read_all(plugin, handle)
        written[1] = write_map(plugin, handle, 1, attempt=1)
        assert read_all(plugin, handle) == sorted(record for records in written for record in records)


def test_an_output_that_is_gone_when_the_server_starts_is_lost_not_unwritten(
    server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 1)
        write_map(plugin, handle, 0)
        server.kill()
        committed_file(server, 0).unlink()
        server.restart()
        with pytest.raises(MapOutputLost):
            read_all(plugin, handle)


def test_a_flipped_bit_never_reaches_the_reader_and_the_output_is_recorded_as_lost(
    server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        kept = write_map(plugin, handle, 0)
        write_map(plugin, handle, 1)
        path = committed_file(server, 1)
        data = bytearray(path.read_bytes())
        data[10] ^= 1
        path.write_bytes(data)
        with pytest.raises((BlockCorrupt, MapOutputLost)):
            read_all(plugin, handle)
        assert [o.output.map for o in master.map_outputs(handle)] == [0]
        assert read_all(plugin, handle, range(1)) == kept


def test_a_reader_that_started_before_kill_9_ends_with_every_record_once(
    server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(4, 6)
        expected: list[tuple[int, bytes]] = functools.reduce(
            operator.iadd, (write_map(plugin, handle, m, 6000) for m in range(6)), []
        )
        got = []
        with plugin.reader(handle, range(4)) as reader:
            for i, record in enumerate(reader):
                got.append(record)
                if i == 9000:
                    server.kill()
                    server.restart()
        assert sorted(got) == sorted(expected)


def test_sigterm_ends_the_server_with_a_push_and_a_pull_open(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(4, 2)
        write_map(plugin, handle, 0, 6000)
        writer = plugin.writer(handle, MapAttempt(1, 0))
        writer.write(0, os.urandom(9 << 20))
        reader = plugin.reader(handle, range(4), range(1))
        next(iter(reader))
        server.stop()
        server.restart()
        assert len(read_all(plugin, handle, range(1))) == 6000


def test_sigterm_does_not_wait_for_a_sender_that_has_gone_silent(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        key = messages.key_of(master.register_shuffle(4, 1).spec.id)
        command = pb.PutCommand(protocol=1, shuffle=key, output=pb.MapAttempt(), partitions=4, codec="lz4")
        client = fl.connect(f"grpc://{server.data}")
        descriptor = fl.FlightDescriptor.for_command(command.SerializeToString())
        writer, _ = client.do_put(descriptor, PUT_SCHEMA)
        writer.write(put_batch(table_rows([block(0, b"x")]), b"x"))
        server.stop()
        with pytest.raises(pa.ArrowException):
            writer.close()
        client.close()
        server.restart()


def test_a_full_disk_refuses_new_data_by_name_harms_nothing_and_recovers(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 24 << 20) as root, ServerProcess(root / "data", tmp_path / "log") as server:
        with RemoteShuffle({"server": server.control, "codec": "none"}) as plugin, plugin.master("app") as master:
            handle = master.register_shuffle(8, 3)
            kept = write_map(plugin, handle, 0)
            with plugin.writer(handle, MapAttempt(1, 0)) as writer, pytest.raises(StorageFull, match=str(root)):
                for _ in range(10):
                    writer.write(0, os.urandom(9 << 20))
            assert read_all(plugin, handle, range(1)) == kept
            written = write_map(plugin, handle, 2)  # the refused attempt has given its space back
            assert read_all(plugin, handle, range(2, 3)) == written
            ballast = fill(root)
            with pytest.raises((StorageFull, StorageFailed), match="No space left"):
                write_map(plugin, handle, 1, attempt=1)
            ballast.unlink()
            again = write_map(plugin, handle, 1, attempt=2)
            assert read_all(plugin, handle) == sorted(kept + written + again)


def test_a_stock_flight_client_can_look_in(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app-a") as master:
        handle = master.register_shuffle(3, 1, shuffle=7)
        written = write_map(plugin, handle, 0)
        with fl.connect(f"grpc://{server.data}") as client:
            [info] = list(client.list_flights())
            assert info.descriptor.path == [handle.spec.id.app.encode(), b"7"]
            assert info.total_records == len(written)
            described = client.get_flight_info(info.descriptor)
            tables = [client.do_get(endpoint.ticket).read_all() for endpoint in described.endpoints]
        assert sum(sum(t["records"].to_pylist()) for t in tables) == len(written)
        assert {p for t in tables for p in t["partition"].to_pylist()} == {p for p, _ in written}


def test_a_flight_path_that_names_no_shuffle_is_refused_by_name(server: ServerProcess) -> None:
    with fl.connect(f"grpc://{server.data}") as client:
        for path in (["x"], ["app", "../etc"], ["..", "1"], ["nobody", "1"]):
            with pytest.raises(fl.FlightError, match=r"flight path|not valid|not registered"):
                client.get_flight_info(fl.FlightDescriptor.for_path(*path))


def test_strangers_on_either_port_are_refused_and_others_are_served(
    server: ServerProcess, plugin: RemoteShuffle
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 1)
        for address in (server.control, server.data):
            host, port = address.split(":")
            for noise in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(4096), b""):
                with socket.create_connection((host, int(port)), timeout=10) as stranger:
                    stranger.sendall(noise)
            with pytest.raises((OSError, http.client.HTTPException)):
                urllib.request.urlopen(f"http://{address}/", timeout=5)
        with fl.connect(f"grpc://{server.control}") as client, pytest.raises(pa.ArrowException):
            list(client.list_flights())
        written = write_map(plugin, handle, 0)
        assert read_all(plugin, handle) == written


def test_the_data_address_given_as_control_address_is_named(server: ServerProcess) -> None:
    with (
        RemoteShuffle({"server": server.data, "retry": 0}) as plugin,
        pytest.raises(ProtocolMismatch, match=server.data),
    ):
        plugin.master("app")


def test_a_listener_of_another_protocol_is_named() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    options: dict[str, OptionValue] = {"server": f"127.0.0.1:{port}", "retry": 0, "timeout": 60}
    refused = pytest.raises((ProtocolMismatch, ServerUnreachable), match=str(port))
    with RemoteShuffle(options) as plugin, refused:
        plugin.master("app")
    thread.join(60)
    listener.close()


def test_an_unreachable_server_is_named() -> None:
    with socket.socket() as taken:  # and not listening: nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        refused = pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port}")
        with RemoteShuffle({"server": f"127.0.0.1:{port}", "retry": 0.2}) as plugin, refused:
            plugin.master("app")


def test_an_unknown_codec_lists_the_known_ones(server: ServerProcess) -> None:
    with pytest.raises(UnknownCodec, match="lz4, none, zstd"):
        RemoteShuffle({"server": server.control, "codec": "snappy"})
    client = ControlClient(server.control, client="test")
    client.call("RegisterApp", pb.RegisterAppRequest(app="a", instance="i"))
    key = pb.ShuffleKey(app="a", shuffle=1)
    request = pb.RegisterShuffleRequest(shuffle=key, partitions=1, maps=1, codec="snappy", content="spark")
    with pytest.raises(InvalidArgument, match="lz4, none, zstd"):
        client.call("RegisterShuffle", request)
    client.close()


def test_a_client_of_another_protocol_version_is_refused(server: ServerProcess) -> None:
    client = ControlClient(server.control, client="test")
    with pytest.raises(ProtocolMismatch, match="version 99"):
        client.call("Hello", pb.HelloRequest(protocol=99, client="future/2"))
    client.close()


def test_a_data_directory_that_is_not_usable_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run_cli("server", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file"))
    assert result.returncode == 1
    assert str(tmp_path / "file") in result.stderr
    assert "--data-dir" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_second_server_on_the_same_directory_or_address_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    same_directory = run_cli("server", "--listen", "127.0.0.1:0", "--data-dir", str(server.data_dir))
    assert same_directory.returncode == 1
    assert "another server" in same_directory.stderr
    same_address = run_cli("server", "--listen", server.control, "--data-dir", str(tmp_path / "other"))
    assert same_address.returncode == 1
    assert server.control in same_address.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--memory", "lots"], ["memory", "lots", "size"]),
        (["--listen", "nowhere:x"], ["nowhere:x", "HOST:PORT"]),
        (["--durability", "eternal"], ["eternal", "'written', 'fsynced'"]),
    ],
)
def test_a_wrong_option_value_is_named_with_what_would_be_right(
    tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    result = run_cli("server", "--data-dir", str(tmp_path), *arguments)
    assert result.returncode == 2
    assert all(word in result.stderr for word in words)
    assert "Traceback" not in result.stderr


def test_status_prints_a_table_and_json(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        written = write_map(plugin, handle, 0)
        table = run_cli("status", "--server", server.control)
        assert table.returncode == 0
        assert str(handle.spec.id) in table.stdout
        status = json.loads(run_cli("status", "--server", server.control, "--json").stdout)
        [shuffle] = status["shuffles"]
        assert (shuffle["committed"], shuffle["maps"]) == (1, 2)
        assert int(shuffle["totals"]["records"]) == len(written)
        assert int(status["bytes_pushed"]) > 0
