"""Relayed shuffles through a real server process: order, credit, and the errors when one side is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import (
    AttemptSuperseded,
    CommitMismatch,
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    PermissionDenied,
    ShuffleError,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.observe.helpers import Scrape
from tests.shuffle_server.relay_ends import (
    Received,
    Writer,
    arrivals,
    command,
    open_reader,
    read_partition,
)
from tests.shuffle_server.secured import Secured

WINDOW = 2 << 20
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("relay")
    arguments = ["--metrics-listen", "127.0.0.1:0", "--window", str(WINDOW), "--relay-timeout", "120"]
    with ServerProcess(root / "data", root / "log", arguments) as process:
        yield process


@pytest.fixture(scope="module")
def control(server: ServerProcess) -> Iterator[ControlClient]:
    with closing(ControlClient(server.control, client="test", timeout=60)) as client:
        client.call("RegisterApp", pb.RegisterAppRequest(app="app", instance="one"))
        yield client


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Any]:
    with fl.connect(f"grpc://{server.data}") as flight:
        yield flight


NUMBERS = iter(range(1000))


@pytest.fixture
def spec(control: ControlClient) -> ShuffleSpec:
    """A shuffle of two maps and two partitions."""
    return register(control, maps=2, partitions=2)


def register(control: ControlClient, maps: int, partitions: int) -> ShuffleSpec:
    spec = ShuffleSpec(ShuffleId("app", next(NUMBERS)), partitions, maps, codec="none", content="spark")
    control.call("RegisterShuffle", messages.spec_message(spec))
    return spec


def write_map(client: Any, spec: ShuffleSpec, map_id: int, batches: int) -> dict[int, list[bytes]]:
    """Write a whole map; its payloads per partition, in order."""
    rng = np.random.default_rng(map_id)
    written: dict[int, list[bytes]] = {p: [] for p in range(spec.partitions)}
    with Writer(client, command(spec, MapAttempt(map_id, 10 + map_id))) as writer:
        for i in range(batches):
            blocks = [
                (int(p), b"%d.%d.%d " % (map_id, i, j) + rng.bytes(int(n)))
                for j, (p, n) in enumerate(
                    zip(rng.integers(0, spec.partitions, 5), rng.integers(0, 9000, 5), strict=True)
                )
            ]
            for partition, payload in blocks:
                written[partition].append(payload)
            writer.send(*blocks)
        assert writer.end().output == pb.MapAttempt(map=map_id, attempt=10 + map_id)
    return written


@pytest.mark.parametrize("first", ["readers", "writers"])
def test_every_block_arrives_once_and_in_order_whoever_is_first(
    control: ControlClient, client: Any, first: str
) -> None:
    spec = register(control, maps=3, partitions=4)
    with ThreadPoolExecutor(7) as pool:

        def start_readers() -> list[Any]:
            return [pool.submit(read_partition, client, spec.id, p) for p in range(spec.partitions)]

        readers = start_readers() if first == "readers" else []
        writers = [pool.submit(write_map, client, spec, m, 40) for m in range(spec.maps)]
        readers = readers or start_readers()
        written = [writer.result() for writer in writers]
        for partition, reader in enumerate(readers):
            received: Received = reader.result()
            assert {o.map: payloads for o, payloads in received.payloads.items()} == {
                m: written[m][partition] for m in range(spec.maps)
            }
            assert sorted(o.map for o in received.ended) == [0, 1, 2]


def test_maps_without_blocks_end_as_well(client: Any, spec: ShuffleSpec) -> None:
    for map_id in range(spec.maps):
        with Writer(client, command(spec, MapAttempt(map_id, 0))) as writer:
            writer.end()
    assert read_partition(client, spec.id, 1).ended == [MapAttempt(0, 0), MapAttempt(1, 0)]


def test_a_slow_reader_holds_its_writer_back_and_memory_stays_in_bounds(
    server: ServerProcess, control: ControlClient, client: Any
) -> None:
    spec = register(control, maps=1, partitions=1)
    before = Scrape(server.metrics)
    payload, batches = bytes(256 << 10), 160

    def write() -> None:
        with Writer(client, command(spec, MapAttempt(0, 0))) as writer:
            for _ in range(batches):
                writer.send((0, payload))
            writer.end()

    queued: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        received = Received()
        for i, _ in enumerate(arrivals(open_reader(client, spec.id, 0), received)):
            if i % 5 == 0:
                queued.append(Scrape(server.metrics)("relay_queued_bytes"))
        writing.result()
    assert sum(map(len, received.payloads[MapAttempt(0, 0)])) == batches * len(payload)
    assert max(queued) <= WINDOW
    after = Scrape(server.metrics)
    assert after("pool_peak_bytes") <= 8 * WINDOW  # seven streams at once in the other tests, and one here
    assert after("relay_queued_bytes") == 0
    assert after("pulled_bytes_total") - before("pulled_bytes_total") == batches * len(payload)


def test_a_writer_that_is_killed_is_named_to_readers_and_other_writers(
    server: ServerProcess, client: Any, spec: ShuffleSpec
) -> None:
    script = [sys.executable, "-m", "tests.shuffle_server.relay_ends", server.data, spec.id.app, str(spec.id.shuffle)]
    roots = [str(ROOT / name) for name in (".", "shuffle_api", "transport", "plugins", "remote_service")]
    victim = subprocess.Popen(script, stdin=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": ":".join(roots)})
    try:
        stream, received = open_reader(client, spec.id, 0), Received()
        reading = arrivals(stream, received)
        while not received.payloads:
            next(reading)
        with Writer(client, command(spec, MapAttempt(1, 4))) as other:
            victim.kill()
            with pytest.raises(MapOutputLost, match="the writer .* before all its blocks were handed on") as failure:
                list(reading)
            assert failure.value.output == MapAttempt(0, 3)
            assert isinstance(other.error(), MapOutputLost)
            with pytest.raises(MapOutputLost):
                other.send((0, b"more"))
    finally:
        victim.kill()
        victim.communicate(timeout=60)


def test_a_reader_that_leaves_is_named_to_writers_and_other_readers(client: Any, spec: ShuffleSpec) -> None:
    with Writer(client, command(spec, MapAttempt(0, 0))) as writer:
        writer.send((0, b"x"), (1, b"y"))
        leaving, other = open_reader(client, spec.id, 0, attempt=6), open_reader(client, spec.id, 1)
        received = Received()
        reading = arrivals(leaving, received)
        while not received.payloads:
            next(reading)
        leaving.cancel()
        assert "reader of partition 0 (attempt 6) left" in str(writer.error())
        with pytest.raises(MapOutputLost, match="attempt 6"):
            list(arrivals(other, Received()))
        with pytest.raises(MapOutputLost):
            writer.end()


def test_a_statement_that_differs_is_refused_and_readers_hear_of_it(client: Any, spec: ShuffleSpec) -> None:
    with Writer(client, command(spec, MapAttempt(0, 0))) as writer:
        writer.send((0, b"x"))
        received = Received()
        reading = arrivals(open_reader(client, spec.id, 0), received)
        while not received.payloads:
            next(reading)
        wrong = replace(writer.totals, records=2)
        with pytest.raises(CommitMismatch, match="the sender states"):
            writer.end(end=messages.totals_message(wrong))
    with pytest.raises(MapOutputLost, match="was refused"):
        list(reading)


def test_a_push_that_ends_without_its_end_message_is_a_failure(client: Any, spec: ShuffleSpec) -> None:
    with Writer(client, command(spec, MapAttempt(0, 0))) as writer:
        writer.send((0, b"x"))
        received = Received()
        reading = arrivals(open_reader(client, spec.id, 0), received)
        while not received.payloads:
            next(reading)
    assert "without its end message" in str(writer.error())
    with pytest.raises(MapOutputLost, match="without its end message"):
        list(reading)


def test_what_cannot_be_relayed_is_refused_by_name(client: Any, spec: ShuffleSpec) -> None:
    taken = MapAttempt(0, 5)
    with Writer(client, command(spec, taken)):
        for output, changes, kind in (
            (MapAttempt(2, 0), {}, InvalidArgument),
            (MapAttempt(0, 6), {"first_block": 1}, InvalidArgument),
            (MapAttempt(0, 6), {"partitions": 3}, InvalidArgument),
            (MapAttempt(0, 6), {"codec": "lz4"}, InvalidArgument),
            (MapAttempt(0, 6), {"shuffle": pb.ShuffleKey(app="app", shuffle=999_999)}, UnknownShuffle),
            (taken, {}, AttemptSuperseded),
            (MapAttempt(0, 4), {}, AttemptSuperseded),
        ):
            with Writer(client, command(spec, output, **changes)) as refused:
                assert type(refused.error()) is kind
    with Writer(client, command(spec, MapAttempt(1, 0))) as outside:
        outside.send((2, b"x"))
        assert isinstance(outside.error(), InvalidArgument)


def test_tickets_that_do_not_fit_a_relay_are_refused(client: Any, spec: ShuffleSpec) -> None:
    for changes, words in (
        ({"end_partition": 2}, "one partition per stream"),
        ({"maps": [pb.MapAttempt()]}, "one partition per stream"),
        ({"first_partition": 2, "end_partition": 3}, "partition 2 is not in"),
        ({"relay": pb.RelayReader(attempt=-1)}, "reader attempt -1"),
    ):
        with pytest.raises(fl.FlightError, match=words):
            open_reader(client, spec.id, 0, **changes).read_chunk()
    with pytest.raises(fl.FlightError, match="not registered"):
        open_reader(client, ShuffleId("app", 999_999), 0).read_chunk()


def test_an_unregistered_shuffle_ends_for_both_sides(control: ControlClient, client: Any, spec: ShuffleSpec) -> None:
    with Writer(client, command(spec, MapAttempt(0, 0))) as writer:
        writer.send((1, b"x"))
        stream = open_reader(client, spec.id, 0)
        control.call("UnregisterShuffle", pb.UnregisterShuffleRequest(shuffle=messages.key_of(spec.id)))
        assert isinstance(writer.error(), UnknownShuffle)
        with pytest.raises(UnknownShuffle):
            list(arrivals(stream, Received()))


def test_a_missing_writer_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", ["--relay-timeout", "1"]) as server,
        closing(ControlClient(server.control, client="test", timeout=60)) as control,
        fl.connect(f"grpc://{server.data}") as client,
    ):
        control.call("RegisterApp", pb.RegisterAppRequest(app="app", instance="one"))
        spec = register(control, maps=2, partitions=1)
        with pytest.raises(DeadlineExceeded, match="no writer of maps 0-1 for 1 s"):
            read_partition(client, spec.id, 0)


def test_a_server_that_stops_tells_both_sides(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log") as server,
        closing(ControlClient(server.control, client="test", timeout=60)) as control,
        fl.connect(f"grpc://{server.data}") as client,
    ):
        control.call("RegisterApp", pb.RegisterAppRequest(app="app", instance="one"))
        spec = register(control, maps=1, partitions=1)
        with Writer(client, command(spec, MapAttempt(0, 0))) as writer:
            received = Received()
            reading = arrivals(open_reader(client, spec.id, 0), received)
            writer.send((0, b"x"))
            while not received.payloads:
                next(reading)
            with ThreadPoolExecutor(1) as pool:
                stopping = pool.submit(server.stop)
                with pytest.raises(ShuffleError, match="stopping"):
                    list(reading)
                assert "stopping" in str(writer.error())
                writer.half_close()
                stopping.result()


def test_the_token_of_another_application_neither_writes_nor_reads(secured: Secured) -> None:
    spec = ShuffleSpec(ShuffleId("A", 1), 1, 2)
    credentials = secured.keys.for_app("B")
    options = flight_options(credentials, 60.0)
    with flight_connection(secured.server.data, credentials.tls) as client:
        put = command(spec, MapAttempt(1, 0), codec="lz4").SerializeToString()
        writer, replies = client.do_put(fl.FlightDescriptor.for_command(put), PUT_SCHEMA, options)
        writer.done_writing()
        reply = pb.PutReply.FromString(replies.read().to_pybytes())
        assert isinstance(messages.typed_error(reply.error), PermissionDenied)
        writer.close()
        ticket = pb.GetTicket(shuffle=messages.key_of(spec.id), end_partition=1, relay=pb.RelayReader())
        with pytest.raises(fl.FlightUnauthorizedError, match="token of application 'B'"):
            client.do_get(fl.Ticket(ticket.SerializeToString()), options).read_chunk()
