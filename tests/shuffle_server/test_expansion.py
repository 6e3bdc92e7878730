"""Bodies that Arrow has compressed, each of which could become as large as it says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import InvalidArgument
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server import expansion
from shuffle_server.expansion import BOUND, POOL, TIER_BOUND, bound_in_program, keep_apart
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.processes import run_apart
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.observe.helpers import Scrape

METRICS = ("--metrics-listen", "127.0.0.1:0")
DECLARED = 256 << 20
SLACK = 64 << 20
TIMEOUT = 120.0


def zeros(size: int) -> pa.RecordBatch:
    """One block."""
    offsets, payload = pa.array([0, size], pa.int64()).buffers()[1], pa.py_buffer(bytes(size))
    block = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, payload])
    numbers = [pa.array([0], field.type) for field in list(PUT_SCHEMA)[:-1]]
    return pa.record_batch([*numbers, block], schema=PUT_SCHEMA)


def push(address: str, key: pb.ShuffleKey, map: int, batch: pa.RecordBatch, codec: str) -> pb.PutReply:
    """The reply to a push whose only batch is compressed by Arrow."""
    options = fl.FlightCallOptions(timeout=TIMEOUT, write_options=pa.ipc.IpcWriteOptions(compression=codec))
    command = pb.PutCommand(protocol=1, shuffle=key, output=pb.MapAttempt(map=map), partitions=2, codec="none")
    descriptor = fl.FlightDescriptor.for_command(command.SerializeToString())
    with fl.connect(f"grpc://{address}") as client:
        writer, reader = client.do_put(descriptor, batch.schema, options)
        try:
            writer.write_batch(batch)
            writer.done_writing()
            return pb.PutReply.FromString(reader.read().to_pybytes())
        finally:
            writer.close()


def peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def check_refused(reply: pb.PutReply) -> None:
    assert reply.error.code == pb.INVALID_ARGUMENT
    assert "the body of a batch is compressed by Arrow" in reply.error.message
    assert "no compression in IpcWriteOptions" in reply.error.remedy


def test_a_push_that_is_refused_for_another_reason_is_not_expanded_either(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log", METRICS) as server:
        before = peak(server.pid)
        reply = push(server.data, pb.ShuffleKey(app="nobody", shuffle=1), 0, zeros(DECLARED), "zstd")
        assert "not registered" in reply.error.message
        assert peak(server.pid) - before < SLACK


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_body_that_declares_much_is_refused_before_it_is_expanded(codec: str, tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", METRICS) as server,
        RemoteShuffle({"server": server.control, "codec": "none"}) as plugin,
        plugin.master("app") as master,
    ):
        key, before = messages.key_of(master.register_shuffle(2, 9).spec.id), peak(server.pid)
        check_refused(push(server.data, key, 0, zeros(DECLARED), codec))
        assert peak(server.pid) - before < SLACK
        scrape = Scrape(server.metrics)
        assert (scrape("expansion_bounded"), scrape("compressed_bodies_refused_total")) == (1, 1)


def test_pushes_and_pulls_go_on_beside_many_compressed_bodies(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", METRICS) as server,
        RemoteShuffle({"server": server.control, "hand_over": "off", "codec": "none"}) as plugin,
        plugin.master("victim") as victim,
        plugin.master("tenant") as tenant,
    ):
        key = messages.key_of(tenant.register_shuffle(2, 99).spec.id)
        batch, before = zeros(DECLARED >> 2), peak(server.pid)
        failed: list[BaseException] = []

        def attack(map: int) -> None:
            for _ in range(8):
                check_refused(push(server.data, key, map, batch, "zstd"))

        threads = [threading.Thread(target=noting(failed, attack), args=(map,)) for map in range(8)]
        for thread in threads:
            thread.start()
        handle = victim.register_shuffle(8, 8)
        written = [block for map in range(8) for block in write_map(plugin, handle, map)]
        assert read_all(plugin, handle) == sorted(written)
        for thread in threads:
            thread.join()
        assert failed == []
        assert read_all(plugin, handle) == sorted(written)
        assert peak(server.pid) - before < SLACK
        assert Scrape(server.metrics)("compressed_bodies_refused_total") == 64


def test_a_batch_with_columns_of_its_own_is_not_expanded(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log", METRICS) as server:
        before = peak(server.pid)
        schema = pa.schema([(f"c{number}", pa.binary()) for number in range(256)])
        batch = pa.record_batch([pa.array([bytes(1 << 20)])] * len(schema), schema=schema)
        with RemoteShuffle({"server": server.control, "codec": "none"}) as plugin, plugin.master("app") as master:
            key = messages.key_of(master.register_shuffle(2, 9).spec.id)
            with pytest.raises(pa.ArrowException, match="has the columns c0:binary, c1:binary"):
                push(server.data, key, 0, batch, "zstd")
        assert peak(server.pid) - before < SLACK


def noting(failed: list[BaseException], call: Callable[[int], None]) -> Callable[[int], None]:
    def run(map: int) -> None:
        try:
            call(map)
        except (AssertionError, OSError, pa.ArrowException) as error:
            failed.append(error)

    return run


@pytest.mark.parametrize("variable", [f"{POOL}=system", "MIMALLOC_VERBOSE=0"])
def test_variables_that_are_set_hold_and_the_log_says_what_that_means(variable: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ServerProcess(tmp_path / "data", log, METRICS, prefix=("env", variable)) as server:
        assert Scrape(server.metrics)("expansion_bounded") == 0
        assert f"since {POOL} or a variable MIMALLOC_* is set" in log.read_text()


def test_nothing_is_set_beside_what_is_set() -> None:
    given = {"mimalloc_verbose": "1"}
    bound_in_program(False, given)
    assert given == {"mimalloc_verbose": "1"}
    given = {"HOME": "/"}
    bound_in_program(True, given)
    assert given == {"HOME": "/", **TIER_BOUND}


PROGRAM = """
from shuffle_server import expansion
expansion.bound_in_program({tier})
from shuffle_transport.channels.wire import MAX_MESSAGE
import pyarrow as pa
expansion.keep_apart()
assert expansion.is_bounded()
assert pa.default_memory_pool().backend_name in ("jemalloc", "system")
print(*(int(expansion._has_room(size)) for size in (MAX_MESSAGE + (64 << 10), 3 << 20, 10 << 20, 17 << 20)))
"""


@pytest.mark.parametrize(("tier", "granted"), [(False, "1 0 0 0"), (True, "1 1 1 0")])
def test_what_is_granted(tier: bool, granted: str) -> None:
    done = run_apart(PROGRAM.format(tier=tier), *TIER_BOUND)
    assert done.stdout.split() == granted.split(), done.stderr


def test_a_server_that_is_granted_no_memory_at_all_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "is_bounded", lambda: True)
    monkeypatch.setattr(expansion, "_has_room", lambda _: False)
    monkeypatch.setenv("MIMALLOC_RESERVE_OS_MEMORY", BOUND["MIMALLOC_RESERVE_OS_MEMORY"])
    with pytest.raises(InvalidArgument, match="does not reserve the 8GiB of addresses"):
        keep_apart()
