"""The streams on which commits travel: their beginning, their end, and the calls that they must not hold up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import grpc
import pytest

from shuffle_api.errors import DeadlineExceeded, Overloaded, ServerUnreachable, ShuttingDown, StaleEpoch
from shuffle_server.master.client import Identity, RegistryClient
from shuffle_server.master.commit_streams import CommitStreams
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from tests.shuffle_server.master.scene import SHUFFLE, commit
from tests.shuffle_server.master.served import Scene

TIMEOUT = 60.0


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene(threads=1)) as scene:
        yield scene


def client_of(scene: Scene, timeout: float = TIMEOUT, retry: float = 0.0) -> closing[RegistryClient]:
    return closing(RegistryClient(scene.address, timeout=timeout, retry=retry))


def message(map_id: int) -> pb.Commit:
    output = messages.output_message(commit(map_id).output)
    return pb.Commit(shuffle=messages.key_of(SHUFFLE), output=output)


def until(happened: Callable[[], bool]) -> None:
    give_up = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_open_streams_leave_the_threads_of_calls_alone(scene: Scene) -> None:
    with ExitStack() as stack:
        for number in range(5):
            client = stack.enter_context(client_of(scene))
            client.commit(SHUFFLE, commit(number).output)
        with closing(ControlClient(scene.address, client="test", timeout=TIMEOUT)) as control:
            assert control.hello().epoch == scene.master.epoch
    assert [each.output.map for each in scene.durable()] == list(range(5))


def test_a_client_opens_another_stream_when_the_master_has_been_away(scene: Scene) -> None:
    with client_of(scene, retry=TIMEOUT) as client:
        client.commit(SHUFFLE, commit(0).output)
        scene.serve_again()
        assert client.commit(SHUFFLE, commit(1).output) == commit(1).output
    assert [each.output.map for each in scene.durable()] == [0, 1]


def test_a_stream_that_is_refused_is_followed_by_another(scene: Scene) -> None:
    epoch = scene.master.epoch
    with client_of(scene) as client:
        client.commit(SHUFFLE, commit(0).output, Identity(epoch))
        with pytest.raises(StaleEpoch):
            client.commit(SHUFFLE, commit(1).output, Identity(77))
        client.commit(SHUFFLE, commit(2).output, Identity(epoch))
    assert [each.output.map for each in scene.durable()] == [0, 2]


def test_a_master_that_stops_waits_for_replies_and_not_for_streams(scene: Scene) -> None:
    with client_of(scene) as idle, client_of(scene) as busy, ThreadPoolExecutor(1) as pool:
        idle.commit(SHUFFLE, commit(0).output)
        busy.commit(SHUFFLE, commit(1).output)
        with scene.master.lock:
            under_way = pool.submit(busy.commit, SHUFFLE, commit(2).output)
            time.sleep(0.2)  # so that it has reached the master, most likely; if not, it is refused
            stopped = scene.server.stop(10 * TIMEOUT)
        assert stopped.wait(TIMEOUT)
        try:
            under_way.result(TIMEOUT)
        except ServerUnreachable:
            assert len(scene.durable()) == 2
        else:
            assert len(scene.durable()) == 3


def test_who_waits_too_long_is_told_so_and_never_gets_a_late_reply(scene: Scene) -> None:
    with client_of(scene, timeout=3.0) as client:
        client.commit(SHUFFLE, commit(0, attempt=1).output)
        with scene.master.lock:
            with pytest.raises(DeadlineExceeded, match="did not answer Commits within"):
                client.commit(SHUFFLE, commit(0, attempt=2).output)
        assert client.commit(SHUFFLE, commit(1).output) == commit(1).output
    assert scene.durable() == [commit(0, attempt=1).output, commit(1).output]


def test_who_waits_when_the_client_is_closed_is_told_so(scene: Scene) -> None:
    with client_of(scene) as client, ThreadPoolExecutor(1) as pool:
        client.commit(SHUFFLE, commit(0).output)
        with scene.master.lock:
            waiting = pool.submit(client.commit, SHUFFLE, commit(1).output)
            until(lambda: client._stream._stream is not None and client._stream._stream.give_up < float("inf"))
            client.close()
            with pytest.raises(ShuttingDown):
                waiting.result(TIMEOUT)
    with pytest.raises(ShuttingDown):
        client.commit(SHUFFLE, commit(2).output)


def test_the_streams_of_a_server_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitStreams.__init__, "__defaults__", (2,))
    with closing(Scene()) as scene, ExitStack() as stack:
        clients = [stack.enter_context(client_of(scene)) for _ in range(3)]
        for number in (0, 1):
            clients[number].commit(SHUFFLE, commit(number).output)
        with pytest.raises(Overloaded, match="2 streams are open"):
            clients[2].commit(SHUFFLE, commit(2).output)
        clients[0].close()
        give_up = time.monotonic() + TIMEOUT
        while True:  # the server sees the end a little later
            try:
                clients[2].commit(SHUFFLE, commit(2).output)
                break
            except Overloaded:
                assert time.monotonic() < give_up
                time.sleep(0.02)


def test_replies_come_in_the_order_of_the_requests(scene: Scene) -> None:
    with grpc.insecure_channel(scene.address) as channel:
        requests = [pb.CommitRequest(commits=map(message, range(count))) for count in (3, 0, 2)]
        stub = rpc.ShuffleRegistryStub(channel)
        replies = list(stub.Commits(iter(requests), timeout=TIMEOUT))
    assert [len(reply.results) for reply in replies] == [3, 0, 2]
