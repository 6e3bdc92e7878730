"""The control client: addresses, deadlines, absences and strangers, each told apart."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NoReturn

import grpc
import pytest

from shuffle_api.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ProtocolMismatch,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    UnknownApp,
)
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.proto import flight_shuffle_pb2_grpc as rpc


def refuse(context: Any, error: ShuffleError) -> NoReturn:
    trailer = messages.error_message(error).SerializeToString()
    context.set_trailing_metadata([(messages.ERROR_METADATA, trailer)])
    context.abort(grpc.StatusCode.NOT_FOUND, error.message)
    raise AssertionError("abort raises")


class ScriptedMaster(rpc.ShuffleControlServicer):
    def __init__(self) -> None:
        self.protocol, self.only = messages.PROTOCOL, 0
        self.begun, self.release = threading.Event(), threading.Event()
        self.asked = 0

    def Hello(self, request: Any, context: Any) -> pb.HelloReply:
        if self.only and request.protocol != self.only:  # as a server of version 1 does
            refuse(context, ProtocolMismatch(f"the client speaks {request.protocol}, this side speaks {self.only}"))
        return pb.HelloReply(protocol=self.only or self.protocol)

    def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatReply:
        refuse(context, UnknownApp("no app 'x'", remedy="register it"))

    def Status(self, request: Any, context: Any) -> pb.StatusReply:
        self.asked += 1
        self.begun.set()
        self.release.wait(240)
        return pb.StatusReply()


@pytest.fixture
def master() -> Iterator[tuple[ScriptedMaster, str]]:
    servicer = ScriptedMaster()
    server = grpc.server(ThreadPoolExecutor(4))
    rpc.add_ShuffleControlServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    servicer.release.set()
    server.stop(5).wait()


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:port", "host:0", "host:65536", "host:-1"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(InvalidArgument, match="is not HOST:PORT"):
        ControlClient(address, client="test")


@pytest.mark.parametrize("only", [1, 2])
def test_client_and_server_agree_on_the_newest_version_that_both_speak(
    master: tuple[ScriptedMaster, str], only: int
) -> None:
    master[0].only = only
    with closing(ControlClient(master[1], client="test")) as client:
        assert client.hello().protocol == only


def test_server_that_shares_no_version_is_named_with_what_it_speaks(master: tuple[ScriptedMaster, str]) -> None:
    master[0].only = 9
    with closing(ControlClient(master[1], client="test")) as client, pytest.raises(ProtocolMismatch, match="speaks 9"):
        client.hello()


@pytest.mark.parametrize(("newest", "oldest", "agreed"), [(1, 1, 1), (2, 1, 2), (2, 2, 2), (9, 1, 2), (9, 2, 2)])
def test_newest_shared_version_is_chosen(newest: int, oldest: int, agreed: int) -> None:
    assert messages.negotiate(newest, oldest, "a client") == agreed


@pytest.mark.parametrize(("newest", "oldest"), [(0, 0), (9, 3)])
def test_peers_without_a_shared_version_are_refused_with_both_ranges(newest: int, oldest: int) -> None:
    with pytest.raises(ProtocolMismatch, match=rf"a client .* {oldest}.*this side speaks 1 to 2"):
        messages.negotiate(newest, oldest, "a client")


def test_a_typed_error_arrives_as_itself(master: tuple[ScriptedMaster, str]) -> None:
    with closing(ControlClient(master[1], client="test")) as client, pytest.raises(UnknownApp, match="register it"):
        client.call("Heartbeat", pb.HeartbeatRequest())


def test_a_call_has_a_deadline(master: tuple[ScriptedMaster, str]) -> None:
    with closing(ControlClient(master[1], client="test", timeout=2)) as client:
        with pytest.raises(DeadlineExceeded, match=r"did not answer Status within 2 s"):
            client.call("Status", pb.StatusRequest())


def test_another_version_is_refused_at_the_greeting(master: tuple[ScriptedMaster, str]) -> None:
    master[0].protocol = 9
    with closing(ControlClient(master[1], client="test")) as client, pytest.raises(ProtocolMismatch, match="version 9"):
        client.hello()


def test_a_server_that_is_away_is_waited_for_as_long_as_asked() -> None:
    address = refusing()
    with closing(ControlClient(address, client="test")) as client, pytest.raises(ServerUnreachable, match=address):
        client.hello()
    patient = ControlClient(address, client="test", retry=60)
    with closing(patient), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(patient.hello)
        server = grpc.server(ThreadPoolExecutor(1))
        rpc.add_ShuffleControlServicer_to_server(ScriptedMaster(), server)
        server.add_insecure_port(address)
        server.start()
        assert answer.result(120).protocol == messages.PROTOCOL
        server.stop(5).wait()


def refusing() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        return f"127.0.0.1:{reserved.getsockname()[1]}"


def test_of_several_addresses_the_one_that_answers_is_used(master: tuple[ScriptedMaster, str]) -> None:
    addresses = f"{refusing()},{master[1]},{refusing()}"
    with closing(ControlClient(addresses, client="test")) as client:
        assert client.address == addresses
        assert client.hello().protocol == messages.PROTOCOL
        with pytest.raises(UnknownApp):
            client.call("Heartbeat", pb.HeartbeatRequest())


def test_clients_of_a_process_share_which_address_they_use(master: tuple[ScriptedMaster, str]) -> None:
    addresses = f"{refusing()},{master[1]}"
    with (
        closing(ControlClient(addresses, client="a")) as first,
        closing(ControlClient(addresses, client="b")) as second,
    ):
        first.hello()
        with pytest.raises(ProtocolMismatch, match=master[1]):  # streams are not tried again
            list(second.stream("Watch", pb.WatchRequest()))


def test_when_no_address_answers_the_last_one_is_named() -> None:
    first, last = refusing(), refusing()
    with closing(ControlClient(f"{first},{last}", client="test")) as client:
        with pytest.raises(ServerUnreachable, match=last):
            client.hello()


def test_a_master_that_stops_or_is_stuck_is_left_for_the_next(master: tuple[ScriptedMaster, str]) -> None:
    class Stopping(ScriptedMaster):
        def Hello(self, request: Any, context: Any) -> pb.HelloReply:
            error = messages.error_message(ShuttingDown("it does not lead"))
            context.set_trailing_metadata([(messages.ERROR_METADATA, error.SerializeToString())])
            context.abort(grpc.StatusCode.UNAVAILABLE, "it does not lead")
            raise AssertionError("abort raises")

    servicer = Stopping()
    server = grpc.server(ThreadPoolExecutor(4))
    rpc.add_ShuffleControlServicer_to_server(servicer, server)
    other = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with closing(ControlClient(f"{other},{master[1]}", client="test", timeout=2)) as client:
            assert client.hello().protocol == messages.PROTOCOL
        master[0].release.set()
        addresses = f"{other},{master[1]},{refusing()}"  # a list that no other client has
        with closing(ControlClient(addresses, client="test", timeout=2)) as client:
            with pytest.raises(DeadlineExceeded):  # it may have happened
                client.call("Status", pb.StatusRequest())
            client.call("Status", pb.StatusRequest())
        with closing(ControlClient(other, client="test")) as client, pytest.raises(ShuttingDown, match="lead"):
            client.hello()
    finally:
        servicer.release.set()
        server.stop(5).wait()


def test_call_that_a_stopping_server_cancels_is_made_again() -> None:
    address = refusing()

    def serving(servicer: ScriptedMaster) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(1))
        rpc.add_ShuffleControlServicer_to_server(servicer, server)
        server.add_insecure_port(address)
        server.start()
        return server

    first, second = ScriptedMaster(), ScriptedMaster()
    second.release.set()
    with closing(ControlClient(address, client="test", retry=60)) as client, ThreadPoolExecutor(1) as pool:
        server = serving(first)
        answer = pool.submit(client.call, "Status", pb.StatusRequest())
        assert first.begun.wait(60)
        stopped = server.stop(0)
        first.release.set()
        stopped.wait()
        server = serving(second)
        assert answer.result(120) == pb.StatusReply()
        server.stop(5).wait()


CALLER = """
import sys
from shuffle_transport.grpc_polling import poll_in_program
poll_in_program()
from shuffle_transport.control_client import ControlClient
client = ControlClient(sys.argv[1], client="test", retry=6)
for line in sys.stdin:
    client.hello()
    print("well", flush=True)
"""


def test_client_of_a_server_comes_back_soon_to_a_master_that_was_away() -> None:
    address = refusing()

    def serving() -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(1))
        rpc.add_ShuffleControlServicer_to_server(ScriptedMaster(), server)
        server.add_insecure_port(address)
        server.start()
        return server

    server = serving()
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "well\n"
        server.stop(0).wait()
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(0.5)
        server = serving()
        assert process.stdout.readline() == "well\n"
        process.stdin.close()
    server.stop(5).wait()


def test_call_that_the_client_itself_has_closed_is_not_made_again(master: tuple[ScriptedMaster, str]) -> None:
    client = ControlClient(master[1], client="test", retry=60)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.call, "Status", pb.StatusRequest())
        assert master[0].begun.wait(60)
        client.close()
        with pytest.raises(ShuttingDown, match="is closed"):
            answer.result(120)
    assert master[0].asked == 1
    with pytest.raises(ShuttingDown, match="is closed"):
        client.call("Status", pb.StatusRequest())


def test_a_stranger_that_answers_http_is_not_an_absence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        stranger = threading.Thread(target=answer)
        stranger.start()
        client = ControlClient(f"127.0.0.1:{listener.getsockname()[1]}", client="test")
        with closing(client), pytest.raises(ProtocolMismatch, match="does not answer as a Flight Shuffle"):
            client.hello()
        stranger.join()
