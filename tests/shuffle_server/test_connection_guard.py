"""What the connections of the data endpoint may take."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from bench.harness.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server import connection_guard
from shuffle_server.connection_guard import Bounds, ConnectionGuard
from shuffle_server.security import ServerSecurity
from shuffle_server.tokens import SecretTokens
from shuffle_transport import tcp_sockets
from shuffle_transport.control_client import ControlClient
from shuffle_transport.credential_files import load_keyring
from tests.certificates import make_secret
from tests.faults.fault_proxy import FaultProxy
from tests.shuffle_server.half_open import HalfOpenClient
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.master.served import Scene as Master

LONG = 60.0


class Scene:
    """A port whose connections are accepted, read to their ends and closed, as gRPC does it."""

    def __init__(self, ends: ExitStack) -> None:
        self._ends = ends
        self._server = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._server.getsockname()[1]

    def connect(self) -> tuple[socket.socket, str]:
        """The client's end, and the address that gRPC would show."""
        client = self._ends.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        client.settimeout(LONG)
        accepted = self._accepted = self._ends.enter_context(self._server.accept()[0])
        reader = threading.Thread(target=_read, args=(accepted,), daemon=True)
        reader.start()
        return client, f"ipv4:127.0.0.1:{client.getsockname()[1]}"

    def answer(self, data: bytes) -> None:
        """On the last connection."""
        self._accepted.sendall(data)


def _read(connection: socket.socket) -> None:
    with suppress(OSError), connection:
        while connection.recv(1 << 16):
            pass


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as ends:
        yield Scene(ends)


@contextmanager
def guarded(scene: Scene, bounds: Bounds) -> Iterator[ConnectionGuard]:
    guard = ConnectionGuard(bounds)
    guard.start(scene.port)
    try:
        yield guard
    finally:
        guard.close()


def ended(client: socket.socket) -> bool:
    """Wait for the end of a connection that nothing is sent on."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def lost(client: HalfOpenClient) -> bool:
    client.read(0.05)
    return client.lost


def send(client: socket.socket, size: int) -> None:
    with suppress(OSError):  # it was cut meanwhile
        client.sendall(bytes(size))


def until(condition: object) -> None:
    give_up = time.monotonic() + LONG
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_connection_without_a_valid_token_is_cut_after_a_while(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_guard, "STRANGER_SECONDS", 0.3)
    with guarded(scene, Bounds(tokens=True)) as guard:
        known, address = scene.connect()
        guard.called(address)
        stranger, _ = scene.connect()
        assert ended(stranger)
        until(lambda: guard.statistics().known == 1)
        assert guard.statistics().cut["token"] == 1
        known.settimeout(0.01)
        with pytest.raises(TimeoutError):
            known.recv(1)
    assert "no call with a valid token came within 0.3 s" in caplog.text


def test_where_no_token_is_wanted_nobody_is_a_stranger(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "STRANGER_SECONDS", 0.0)
    monkeypatch.setattr(connection_guard, "STRANGER_BYTES", 0)
    with guarded(scene, Bounds()) as guard:
        client, _ = scene.connect()
        send(client, 1 << 20)
        until(lambda: guard.statistics().unread >= 1 << 20)
        assert sum(guard.statistics().cut.values()) == 0


def test_what_strangers_send_is_bounded_each_and_together(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "STRANGER_BYTES", 1 << 20)
    monkeypatch.setattr(connection_guard, "STRANGERS_BYTES", 3 << 19)
    with guarded(scene, Bounds(tokens=True)) as guard:
        first, _ = scene.connect()
        send(first, 2 << 20)
        assert ended(first)
        second, _ = scene.connect()
        send(second, 1 << 20)
        third, _ = scene.connect()
        send(third, 3 << 18)
        assert ended(second)  # the one that has sent most
        assert guard.statistics().cut["token"] == 2


def test_strangers_of_one_host_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "STRANGERS_PER_HOST", 1)
    with guarded(scene, Bounds(tokens=True)) as guard:
        first, _ = scene.connect()
        until(lambda: guard.statistics().strangers == 1)
        scene.connect()
        assert ended(first)


def test_what_no_request_takes_up_is_bounded(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with guarded(scene, Bounds(unread=1 << 20)) as guard:
        honest, address = scene.connect()
        peer = guard.called(address)
        for _ in range(8):
            send(honest, 1 << 19)
            peer.took(1 << 19)
        other, address = scene.connect()
        guard.called(address)
        send(other, 2 << 20)
        assert ended(other)
        assert guard.statistics().cut["unread"] == 1
        until(lambda: guard.statistics().known == 2 or guard.statistics().unread == 0)
    assert "more than --peer-max-unread" in caplog.text


def test_connections_of_one_host_are_bounded(scene: Scene) -> None:
    with guarded(scene, Bounds(per_host=2)) as guard:
        for _ in range(2):
            scene.connect()
        until(lambda: guard.statistics().strangers == 2)
        third, _ = scene.connect()
        assert ended(third)
        assert guard.statistics().cut["connections"] == 1


def test_connections_of_one_host_to_the_control_endpoint_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with closing(Master(per_host=2)) as master, ExitStack() as ends:
        first = [ends.enter_context(closing(HalfOpenClient(master.address))) for _ in range(2)]
        until(lambda: master.server.connections().strangers == 2)
        third = ends.enter_context(closing(HalfOpenClient(master.address)))
        until(lambda: lost(third))
        assert not any(map(lost, first))
        assert master.server.connections().cut["connections"] == 1
    assert "control connection of ipv4:127.0.0.1:" in caplog.text
    assert "its host has 2 already, --peer-max-connections" in caplog.text


def test_a_stranger_keeps_no_connection_to_the_control_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_guard, "STRANGER_SECONDS", 0.5)
    secret = make_secret(tmp_path / "secret")
    tokens = SecretTokens(str(secret))
    credentials = load_keyring(secret_file=str(secret)).for_cluster()
    with closing(Master(ServerSecurity(tokens=tokens))) as master, ExitStack() as ends:
        known = ends.enter_context(
            closing(ControlClient(master.address, client="test", timeout=LONG, credentials=credentials))
        )
        known.hello()
        stranger = ends.enter_context(closing(HalfOpenClient(master.address)))
        until(lambda: lost(stranger))
        assert master.server.connections().cut["token"] == 1
        assert master.server.connections().known == 1


def test_what_no_request_takes_up_is_bounded_for_all_connections_together(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with guarded(scene, Bounds(unread=8 << 20, together=3 << 20)) as guard:
        clients = []
        for size in (1, 2, 1):
            client, address = scene.connect()
            guard.called(address)
            send(client, size << 20)
            clients.append(client)
        assert ended(clients[1])  # the one that has sent most
        assert guard.statistics().cut["unread"] == 1
    assert "of all more than --memory" in caplog.text


def test_a_stranger_is_refused_so_often_and_then_cut(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_guard, "STRANGER_ANSWERS", 4096)
    with guarded(scene, Bounds(tokens=True)) as guard:
        stranger, _ = scene.connect()
        send(stranger, 1)
        until(lambda: guard.statistics().strangers == 1)
        scene.answer(bytes(8192))
        until(lambda: guard.statistics().cut["token"] == 1)
    assert "bytes of refusals went out" in caplog.text


def test_strangers_are_cut_when_the_process_grows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_guard, "STRANGERS_GROWTH", 64 << 20)
    with guarded(scene, Bounds(tokens=True)) as guard:
        silent, _ = scene.connect()
        stranger, _ = scene.connect()
        send(stranger, 2 * connection_guard.STRANGER_LITTLE)
        until(lambda: guard.statistics().strangers == 2)
        block = b"x" * (128 << 20)
        assert ended(stranger)
        assert block
        assert guard.statistics().cut["token"] == 1
        silent.settimeout(0.01)
        with pytest.raises(TimeoutError):
            silent.recv(1)
    assert "the process grew by" in caplog.text


def test_a_process_that_grows_is_looked_at_at_once() -> None:
    memory = connection_guard.Memory()
    assert not memory.grown(16 << 20)
    block = b"x" * (32 << 20)
    assert memory.grown(16 << 20)
    assert not memory.grown(16 << 20)
    assert block


def test_a_connection_that_has_ended_is_forgotten(scene: Scene) -> None:
    guard = ConnectionGuard(Bounds())
    with ExitStack() as ends:
        local = Scene(ends)
        guard.start(local.port)
        _, address = local.connect()
        guard.called(address)
        until(lambda: guard.statistics().known == 1)
    until(lambda: guard.statistics().known == 0)
    guard.close()
    assert guard.called(address).taken == connection_guard.CALL_COST  # its peer is another one


def test_a_peer_that_answers_nothing_is_asked_and_given_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tcp_sockets.tcp_info
    gone = threading.Event()

    def info(accepted: tcp_sockets.Accepted) -> tcp_sockets.TcpInfo | None:
        found = real(accepted)
        return found._replace(unacknowledged=1, last_answer=61.0) if found and gone.is_set() else found

    monkeypatch.setattr(connection_guard, "tcp_info", info)
    with guarded(scene, Bounds()) as guard:
        client, _ = scene.connect()
        until(lambda: guard.statistics().strangers == 1)
        (accepted,) = tcp_sockets.served_sockets(scene.port, {}).accepted
        with tcp_sockets._borrowed(accepted.fd) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle, interval, count = (connection.getsockopt(socket.IPPROTO_TCP, name) for name in names)
            assert 10 <= idle + interval * count <= 60
        gone.set()
        assert ended(client)
        assert guard.statistics().cut["silent"] == 1


def test_a_strangers_message_is_cut_before_it_is_whole(tmp_path: Path) -> None:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    secret = make_secret(tmp_path / "secret")
    keys = load_keyring(secret_file=str(secret))
    arguments = ["--secret-file", str(secret), "--metrics-listen", "127.0.0.1:0"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        # A network of 25 MB/s: between two looks at a connection comes what the network carries in that time.
        with FaultProxy(server.data, delay=0.01) as proxy, grpc.insecure_channel(proxy.address, options) as channel:
            put = channel.unary_stream("/arrow.flight.protocol.FlightService/DoAction", None, None)
            body = b"\x0a\x03put\x12\x80\x80\x80\x80\x01" + bytes(256 << 20)
            with pytest.raises(grpc.RpcError) as refused:
                list(put(body, timeout=LONG))
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        with RemoteShuffle({"server": server.control, "secret_file": str(secret)}) as plugin:
            with plugin.master("app") as master:
                handle = master.register_shuffle(8, 1)
                written = write_map(plugin, handle, 0)
                assert read_all(plugin, handle) == written
        log = (tmp_path / "log").read_text()
    assert "bytes came before a call with a valid token" in log
