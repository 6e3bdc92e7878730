"""What one application's pushes leave to another's."""

from __future__ import annotations

from pathlib import Path

import pyarrow.flight as fl

from bench.harness.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.observe.helpers import Scrape


def test_pushes_that_send_nothing_leave_memory_to_another_application(tmp_path: Path) -> None:
    arguments = ["--memory", "16m", "--overload-timeout", "5", "--metrics-listen", "127.0.0.1:0"]
    options = fl.FlightCallOptions(timeout=600)
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server,
        RemoteShuffle({"server": server.control, "codec": "none", "hand_over": "off"}) as plugin,
        plugin.master("idle") as idle,
        plugin.master("busy") as busy,
        fl.connect(f"grpc://{server.data}") as client,
    ):
        key = messages.key_of(idle.register_shuffle(2, 64).spec.id)
        pushes = [client.do_put(_push(key, number), PUT_SCHEMA, options) for number in range(32)]
        handle = busy.register_shuffle(8, 2)
        written = [pair for number in range(2) for pair in write_map(plugin, handle, number, records=20_000)]
        assert read_all(plugin, handle) == sorted(written)
        scrape = Scrape(server.metrics)
        assert scrape("pool_largest_share_bytes") <= 14 << 20
        for writer, _ in pushes:
            writer.close()


def _push(key: pb.ShuffleKey, number: int) -> fl.FlightDescriptor:
    command = pb.PutCommand(protocol=1, shuffle=key, output=pb.MapAttempt(map=number), partitions=2, codec="none")
    return fl.FlightDescriptor.for_command(command.SerializeToString())
