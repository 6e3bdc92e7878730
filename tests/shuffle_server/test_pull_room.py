"""What pulls hold for readers that take nothing, and who waits for that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import Overloaded
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.fetch_handler import serve
from shuffle_server.worker.pull_room import PullRoom
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, GET_SCHEMA
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, batch, block
from tests.shuffle_server.observe.helpers import Scrape

RANGES = [OutputRange(MapAttempt(0, 0), 0, 8)]
LONG = 60.0


def written(root: Path, size: int) -> Store:
    store = Store(root)
    store.add_shuffle(SPEC.id)
    attempt_writer = store.stage(SPEC, MapAttempt(0, 0), "none")
    turn = attempt_writer.new_fencing_token()
    for partition in range(3):
        attempt_writer.append(turn, batch([block(partition, bytes(size))]))
    assert store.publish(attempt_writer, turn) is not None
    return store


def test_a_message_is_reserved_until_the_next_one_is_asked_for(tmp_path: Path) -> None:
    pool = BufferPool(1 << 30)
    with closing(written(tmp_path, BATCH_BYTES)) as store:
        room = PullRoom(pool, 0.0, "app", lambda: None)
        reading = serve(store, "w", GET_SCHEMA, SPEC.id, RANGES, lambda _, __: None, lambda _: None, room)
        for _ in range(3):
            next(reading)
            assert (pool.statistics().outgoing, pool.statistics().largest_share) == (BATCH_BYTES, BATCH_BYTES)
        assert list(reading) == []
        assert pool.statistics().used == 0


def test_a_pull_that_is_dropped_gives_its_memory_back(tmp_path: Path) -> None:
    pool = BufferPool(1 << 30)
    with closing(written(tmp_path, 100)) as store:
        room = PullRoom(pool, 0.0, "app", lambda: None)
        reading = serve(store, "w", GET_SCHEMA, SPEC.id, RANGES, lambda _, __: None, lambda _: None, room)
        next(reading)
        assert pool.statistics().outgoing == 300
        reading.close()
        assert pool.statistics().used == 0


def test_a_pull_waits_for_memory_and_is_refused_at_its_deadline(tmp_path: Path) -> None:
    pool = BufferPool(4 * BATCH_BYTES)
    with closing(written(tmp_path, BATCH_BYTES)) as store:
        room = PullRoom(pool, 0.01, "app", lambda: None)
        reading = serve(store, "w", GET_SCHEMA, SPEC.id, RANGES, lambda _, __: None, lambda _: None, room)
        with PullRoom(pool, 0.0, "other", lambda: None) as other:
            other.begin(1)
            with pytest.raises(Overloaded, match=f"no room for {BATCH_BYTES} bytes"):
                next(reading)


def test_pulls_that_nobody_reads_are_bounded_and_their_refusals_are_typed(tmp_path: Path) -> None:
    arguments = ["--memory", "16m", "--overload-timeout", "0.5", "--metrics-listen", "127.0.0.1:0"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server,
        RemoteShuffle({"server": server.control, "codec": "none", "hand_over": "off", "retry": 60}) as plugin,
        plugin.master("app") as master,
    ):
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for _ in range(64):
                writer.write(0, bytes(2 << 20))
            writer.commit()
        ticket = pb.GetTicket(shuffle=messages.key_of(handle.spec.id), first_partition=0, end_partition=1)
        clients = [fl.connect(f"grpc://{server.data}") for _ in range(8)]
        readers = [client.do_get(fl.Ticket(ticket.SerializeToString())) for client in clients]

        def scrape() -> Scrape:
            return Scrape(server.metrics)

        until(lambda: scrape()("refusals_total", endpoint="data", code="OVERLOADED") > 0)
        assert scrape()("pool_outgoing_bytes") <= 4 << 20
        codes = set()
        for reader in readers:
            try:
                for _ in reader:
                    pass
            except fl.FlightError as error:
                codes.add(pb.Error.FromString(error.extra_info).code)
        assert codes == {pb.OVERLOADED}
        for client in clients:
            client.close()
        until(lambda: scrape()("pool_outgoing_bytes") == 0)
        with plugin.reader(handle, range(1)) as blocks:
            assert sum(len(record) for _, record in blocks) == 128 << 20


def until(condition: Callable[[], bool]) -> None:
    """Wait for the server to get somewhere; the test's own timeout is the deadline."""
    waiting = threading.Event()
    while not condition():
        waiting.wait(0.05)
