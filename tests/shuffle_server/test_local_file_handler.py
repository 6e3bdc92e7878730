"""Hand-over by file, as a client on the worker's host speaks it: a real server, real files, real crashes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.flight as fl
import pytest

from bench.harness.cluster import wait_until
from bench.harness.files import files_below
from bench.harness.server import ServerProcess
from shuffle_api.errors import ErrorCode
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store.format import INDEX_ROW
from shuffle_transport import messages
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block, output_files
from tests.shuffle_server.secured import Secured

TIMEOUT_S = 120.0
PAYLOADS = [os.urandom(1 << 20) for _ in range(6)]


class Client:
    """A client on the worker's host."""

    def __init__(self, server: ServerProcess, app: str) -> None:
        self._flight = fl.connect(f"grpc://{server.data}")
        self._app = app
        self.nonce = b""

    def close(self) -> None:
        self._flight.close()

    def act(self, action: str, body: bytes) -> list[bytes]:
        options = fl.FlightCallOptions(timeout=TIMEOUT_S)
        results = self._flight.do_action((f"hand-over.{action}", body), options)
        return [result.body.to_pybytes() for result in results]

    def probe(self) -> Path:
        [reply] = self.act("probe", pb.ProbeRequest(protocol=1, app=self._app).SerializeToString())
        path = Path(pb.ProbeReply.FromString(reply).nonce_file)
        self.nonce = path.read_bytes()
        return path

    def create_file(self, command: pb.PutCommand) -> pb.LendReply:
        request = pb.LendRequest(nonce=self.nonce, command=command)
        return pb.LendReply.FromString(self.act("lend", request.SerializeToString())[0])

    def finalize(self, command: pb.PutCommand, blocks: list[Block], **changes: object) -> pb.Committed:
        rows = table_rows(blocks)
        fields = {"end": messages.totals_message(totals_of(rows)), "table": rows.tobytes()} | changes
        request = pb.AdoptRequest(nonce=self.nonce, command=command, **fields)  # type: ignore[arg-type]
        return pb.Committed.FromString(self.act("adopt", request.SerializeToString())[0])

    def tell_reads(self, *reads: pb.FileReads) -> None:
        assert self.act("tell-reads", pb.TellReadsRequest(nonce=self.nonce, reads=reads).SerializeToString()) == []

    def locate(self, handle: ShuffleHandle, *maps: int) -> list[pb.LocatedBlocks]:
        ticket = pb.GetTicket(shuffle=messages.key_of(handle.spec.id), end_partition=handle.spec.partitions)
        ticket.maps.extend(pb.MapAttempt(map=m) for m in maps)
        request = pb.LocateBlocksRequest(nonce=self.nonce, ticket=ticket)
        return [pb.LocatedBlocks.FromString(r) for r in self.act("locate", request.SerializeToString())]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all tests here; each removes what it wrote."""
    root = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "server.log") as process:
        yield process


@pytest.fixture
def handle(plugin: RemoteShuffle) -> Iterator[ShuffleHandle]:
    with plugin.master("app") as master:
        yield master.register_shuffle(8, 2)


@pytest.fixture
def client(server: ServerProcess, handle: ShuffleHandle) -> Iterator[Client]:
    with closing(Client(server, handle.spec.id.app)) as connected:
        connected.probe()
        yield connected


def command(handle: ShuffleHandle, map_id: int = 0, attempt: int = 0) -> pb.PutCommand:
    return pb.PutCommand(
        protocol=1,
        shuffle=messages.key_of(handle.spec.id),
        output=pb.MapAttempt(map=map_id, attempt=attempt),
        partitions=handle.spec.partitions,
        codec=handle.spec.codec.partition(":")[0],
    )


def records(payload: bytes) -> bytes:
    """One record in the format of the content `records`."""
    return len(payload).to_bytes(4, "little") + payload


def blocks_of(payloads: list[bytes]) -> list[Block]:
    """A block per payload; the partitions in no order."""
    return [block((5 * i) % 8, records(payload)) for i, payload in enumerate(payloads)]


def write(path: str, blocks: list[Block]) -> None:
    with open(path, "r+b") as file:
        for each in blocks:
            file.write(each.payload)


def code_of(error: pytest.ExceptionInfo[fl.FlightError]) -> ErrorCode:
    return ErrorCode(pb.Error.FromString(error.value.extra_info).code)


def hand_over(client: Client, request: pb.PutCommand, payloads: list[bytes]) -> list[tuple[int, bytes]]:
    """Write and commit one map; its (partition, record) pairs, sorted."""
    blocks = blocks_of(payloads)
    write(client.create_file(request).path, blocks)
    committed = client.finalize(request, blocks)
    assert messages.totals(committed.totals) == totals_of(table_rows(blocks))
    return sorted((b.partition, bytes(memoryview(b.payload)[4:])) for b in blocks)


def test_a_copy_is_not_handed_over(client: Client, handle: ShuffleHandle) -> None:
    """Nobody reads what is handed over, and a copy must be what was committed elsewhere."""
    request, blocks = command(handle), blocks_of([b"x"])
    hand_over(client, request, [b"x"])
    request.copy = True
    for act in (lambda: client.create_file(request), lambda: client.finalize(request, blocks)):
        with pytest.raises(fl.FlightError, match="a copy of a map output") as error:
            act()
        assert code_of(error) is ErrorCode.INVALID_ARGUMENT


def test_adopted_file_is_read_like_a_push_and_located_blocks_are_its_bytes(
    client: Client, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    before = server.status().bytes_pushed
    expected = hand_over(client, command(handle, 0), PAYLOADS) + hand_over(client, command(handle, 1), [b"x"])
    with plugin.reader(handle, range(8)) as reader:
        assert sorted(reader) == sorted(expected)

    found = []
    for located in client.locate(handle, 1, 0):
        data = Path(located.path).read_bytes()
        for row in np.frombuffer(located.index, INDEX_ROW):
            payload = data[row["offset"] : row["offset"] + row["length"]]
            assert crc32c(payload) == row["crc32c"]
            found.append((int(row["partition"]), payload[4:]))
    assert sorted(found) == sorted(expected)
    assert server.status().bytes_pushed - before == sum(len(payload) + 4 for _, payload in expected)


def test_adopted_output_survives_kill_9_and_a_lent_file_does_not(
    client: Client, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    expected = hand_over(client, command(handle, 0), PAYLOADS)
    write(client.create_file(command(handle, 1)).path, blocks_of(PAYLOADS))
    server.kill()
    server.restart()
    with closing(Client(server, "app")) as again:
        again.nonce = client.nonce
        with pytest.raises(fl.FlightError) as error:
            again.finalize(command(handle, 1), blocks_of(PAYLOADS))
        assert code_of(error) == ErrorCode.PERMISSION_DENIED  # the nonce is that of the killed process
        again.probe()
        with pytest.raises(fl.FlightError) as error:
            again.finalize(command(handle, 1), blocks_of(PAYLOADS))
        assert code_of(error) == ErrorCode.MAP_OUTPUT_LOST
        # An answer that got lost is asked for again.
        assert again.finalize(command(handle, 0), blocks_of(PAYLOADS)).output.attempt == 0
        assert again.create_file(command(handle, 0)).HasField("committed")
        with plugin.reader(handle, range(8), range(1)) as reader:
            assert sorted(reader) == expected
        assert not list((server.data_dir / "worker" / "apps").rglob("*.partial"))


def test_file_put_there_by_a_rename_is_adopted(
    client: Client, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    spill = server.data_dir.parent / "spill"
    blocks = blocks_of(PAYLOADS)
    spill.write_bytes(b"".join(bytes(memoryview(b.payload)) for b in blocks))
    inode = spill.stat().st_ino
    spill.rename(client.create_file(command(handle)).path)
    client.finalize(command(handle), blocks)
    [path] = (server.data_dir / "worker" / "apps").rglob("0.0.out")
    assert path.stat().st_ino == inode
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert sorted(len(record) for _, record in reader) == [1 << 20] * len(PAYLOADS)


def test_removed_files_are_lent_again_and_nothing_old_is_read(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master, closing(Client(server, "app")) as client:
        client.probe()
        first = master.register_shuffle(8, 1)
        hand_over(client, command(first), PAYLOADS)
        [located] = client.locate(first, 0)
        inode = Path(located.path).stat().st_ino
        master.unregister_shuffle(first)
        file_pool = server.data_dir / "worker" / "spares"
        wait_until(lambda: len(files_below(file_pool)) == 1, "the file is kept to be written over")
        assert not Path(located.path).exists()  # what a reader looks at after it has read

        second = master.register_shuffle(8, 1)
        expected = hand_over(client, command(second), [b"short"])
        [path] = (server.data_dir / "worker" / "apps").rglob("0.0.out")
        assert path.stat().st_ino == inode
        with plugin.reader(second, range(8)) as reader:
            assert list(reader) == expected


def cut(path: str) -> None:
    os.truncate(path, 100)


def give_it_another_name(path: str) -> None:
    os.link(path, f"{path}.other")


def make_it_a_link(path: str) -> None:
    os.rename(path, f"{path}.other")
    os.symlink(f"{path}.other", path)


@pytest.mark.parametrize("damage", [cut, give_it_another_name, make_it_a_link, os.unlink])
def test_file_that_is_not_what_was_lent_is_refused(
    damage: Callable[[str], None], client: Client, handle: ShuffleHandle
) -> None:
    blocks = blocks_of(PAYLOADS)
    path = client.create_file(command(handle)).path
    write(path, blocks)
    damage(path)
    with pytest.raises(fl.FlightError) as error:
        client.finalize(command(handle), blocks)
    assert code_of(error) == ErrorCode.INVALID_ARGUMENT
    wait_until(lambda: not os.path.lexists(path), "its file is deleted")
    with pytest.raises(fl.FlightError) as error:
        client.locate(handle)
    assert code_of(error) == ErrorCode.MAP_OUTPUT_NOT_WRITTEN


def test_file_that_somebody_still_writes_is_refused(client: Client, handle: ShuffleHandle) -> None:
    blocks = blocks_of(PAYLOADS)
    path = client.create_file(command(handle)).path
    write(path, blocks)
    with open(path, "r+b") as writing:
        fcntl.lockf(writing, fcntl.LOCK_EX)  # as Java's FileChannel.lock
        with pytest.raises(fl.FlightError, match="still being written") as error:
            client.finalize(command(handle), blocks)
    assert code_of(error) == ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"end": pb.Totals(blocks=1)}, ErrorCode.COMMIT_MISMATCH),
        ({"table": b"1" * 33}, ErrorCode.INVALID_ARGUMENT),
        ({"table": table_rows([Block(8, 0, 1, 1, b"x")]).tobytes()}, ErrorCode.INVALID_ARGUMENT),
        ({"table": table_rows([Block(-1, 0, 1, 1, b"x")]).tobytes()}, ErrorCode.INVALID_ARGUMENT),
        ({"table": b"\xff" * 64}, ErrorCode.INVALID_ARGUMENT),
        ({"nonce": b"0" * 32}, ErrorCode.PERMISSION_DENIED),
        ({"nonce": b""}, ErrorCode.PERMISSION_DENIED),
    ],
)
def test_statement_that_contradicts_itself_is_refused(
    changes: dict[str, object], code: ErrorCode, client: Client, handle: ShuffleHandle
) -> None:
    client.nonce = changes.pop("nonce", client.nonce)  # type: ignore[assignment]
    if client.nonce:
        nonce, client.nonce = client.nonce, client.probe().read_bytes()
        path = client.create_file(command(handle)).path
        write(path, blocks_of(PAYLOADS))
        client.nonce = nonce
    with pytest.raises(fl.FlightError) as error:
        client.finalize(command(handle), blocks_of(PAYLOADS), **changes)
    assert code_of(error) == code


def test_first_attempt_wins_whichever_way_it_came(
    client: Client, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    late = command(handle, 0, attempt=1)
    path = client.create_file(late).path
    write(path, blocks_of(PAYLOADS))
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        writer.write(3, b"pushed")
        writer.commit()
    assert client.finalize(late, blocks_of(PAYLOADS)).output.attempt == 0
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert list(reader) == [(3, b"pushed")]
    client.act("drop", pb.LendRequest(nonce=client.nonce, command=late).SerializeToString())
    wait_until(lambda: not os.path.lexists(path), "its file is deleted")


def test_dropped_attempt_leaves_no_file_and_can_be_pushed(
    client: Client, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    path = client.create_file(command(handle)).path
    client.act("drop", pb.LendRequest(nonce=client.nonce, command=command(handle)).SerializeToString())
    wait_until(lambda: Path(path) not in output_files(server.data_dir), "its file is deleted")
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        writer.write(3, b"pushed")
        writer.commit()
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert list(reader) == [(3, b"pushed")]


def test_lost_output_is_named_in_its_place_and_others_are_located(client: Client, handle: ShuffleHandle) -> None:
    for map_id in (0, 1):
        hand_over(client, command(handle, map_id), [b"x"])
    os.unlink(client.locate(handle, 0)[0].path)
    lost, whole = client.locate(handle, 0, 1)
    assert (int(lost.error.code), lost.error.output.map) == (ErrorCode.MAP_OUTPUT_LOST, 0)
    assert not lost.path
    assert Path(whole.path).exists()


def test_what_is_located_or_told_to_be_read_counts_as_pulled(
    server: ServerProcess, client: Client, handle: ShuffleHandle
) -> None:
    hand_over(client, command(handle, 0), PAYLOADS)
    before = server.status().bytes_pulled
    ticket = pb.GetTicket(shuffle=messages.key_of(handle.spec.id), end_partition=1, maps=[pb.MapAttempt(map=0)])
    request = pb.LocateBlocksRequest(nonce=client.nonce, ticket=ticket, whole_below=1 << 20)
    [reply] = client.act("locate", request.SerializeToString())
    index = np.frombuffer(pb.LocatedBlocks.FromString(reply).index, INDEX_ROW)
    asked = int(index["length"][index["partition"] == 0].sum())
    assert 0 < asked < index["length"].sum()
    assert server.status().bytes_pulled - before == asked  # and not all that the index tells of
    client.tell_reads(
        pb.FileReads(shuffle=messages.key_of(handle.spec.id), blocks=2, bytes=11),
        pb.FileReads(shuffle=pb.ShuffleKey(app=handle.spec.id.app, shuffle=4711), blocks=1, bytes=5),  # it is over
    )
    assert server.status().bytes_pulled - before == asked + 16


def test_reads_that_cannot_be_are_refused(server: ServerProcess, client: Client, handle: ShuffleHandle) -> None:
    before = server.status().bytes_pulled
    client.probe()
    one = pb.FileReads(shuffle=messages.key_of(handle.spec.id), blocks=1, bytes=1)
    with pytest.raises(fl.FlightError) as error:
        client.tell_reads(one, pb.FileReads(shuffle=one.shuffle, bytes=1 << 60))
    assert code_of(error) == ErrorCode.INVALID_ARGUMENT
    client.nonce = b"of before the restart"
    with pytest.raises(fl.FlightUnauthorizedError):
        client.tell_reads(one)
    assert server.status().bytes_pulled == before


def test_only_the_applications_own_token_opens_its_files(secured: Secured) -> None:
    address, shuffle = secured.server.data, pb.ShuffleKey(app="A", shuffle=1)
    locate = pb.LocateBlocksRequest(ticket=pb.GetTicket(shuffle=shuffle, end_partition=2))
    requests = {
        "probe": pb.ProbeRequest(protocol=1, app="A"),
        "lend": pb.LendRequest(command=pb.PutCommand(shuffle=shuffle)),
        "drop": pb.LendRequest(command=pb.PutCommand(shuffle=shuffle)),
        "adopt": pb.AdoptRequest(command=pb.PutCommand(shuffle=shuffle)),
        "locate": locate,
        "tell-reads": pb.TellReadsRequest(reads=[pb.FileReads(shuffle=shuffle)]),
    }
    nonce = (secured.server.data_dir / "worker" / "nonce").read_bytes()
    for app, others in (("B", "the token of application"), ("A", "")):
        credentials = secured.keys.for_app(app)
        options = flight_options(credentials, TIMEOUT_S)
        with closing(flight_connection(address, credentials.tls)) as connected:
            for action, request in requests.items():
                if action != "probe":
                    request.nonce = nonce  # type: ignore[attr-defined]
                if app == "B":
                    with pytest.raises(fl.FlightUnauthorizedError, match=others):
                        list(connected.do_action((f"hand-over.{action}", request.SerializeToString()), options))
            if app == "A":
                [result] = connected.do_action(("hand-over.locate", locate.SerializeToString()), options)
                assert Path(pb.LocatedBlocks.FromString(result.body.to_pybytes()).path).exists()


def test_unknown_action_is_refused_by_name(client: Client) -> None:
    with pytest.raises(fl.FlightError, match="hand-over.nothing") as error:
        client.act("nothing", b"")
    assert code_of(error) == ErrorCode.INVALID_ARGUMENT
