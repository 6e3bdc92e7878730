"""The door of the control endpoint: what strangers, and others with a token, cannot take from an application."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import InvalidArgument, Overloaded, ShuffleError
from shuffle_server.master import door
from shuffle_server.master.serving import ServedTime
from shuffle_server.security import ServerSecurity
from shuffle_server.tokens import SecretTokens
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials
from shuffle_transport.tokens import app_token
from tests.certificates import make_secret
from tests.shuffle_server.half_open import CONTROL, HalfOpenClient, message
from tests.shuffle_server.master.scene import SHUFFLE
from tests.shuffle_server.master.served import Scene

SECRET = b"s" * 32
SECONDS = 60.0
KEY = messages.key_of(SHUFFLE)
CALLS = 64  # --control-calls: one of them may wait for its message


@pytest.fixture(params=["with a secret", "without"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    extra = ["--app-timeout", "3"]
    if request.param == "with a secret":
        (tmp_path / "secret").write_bytes(SECRET)
        (tmp_path / "secret").chmod(0o600)
        extra += ["--secret-file", str(tmp_path / "secret")]
    with ServerProcess(tmp_path / "data", tmp_path / "log", extra) as server:
        yield server


def credentials(app: str) -> Credentials:
    return Credentials(app, app_token(SECRET, app))


def headers(app: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in credentials(app).headers()]


def client_of(address: str, app: str = "victim") -> ControlClient:
    return ControlClient(address, client="test", timeout=SECONDS, credentials=credentials(app))


def beat(client: ControlClient) -> None:
    client.call("Heartbeat", pb.HeartbeatRequest(app="victim"))


def held(pid: int) -> tuple[int, int]:
    """How many threads and descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


# ------------------------------------------------------------------ calls whose message does not come


@pytest.mark.parametrize("with_token", [False, True])
def test_calls_without_their_message_cost_no_thread_and_end(server: ServerProcess, with_token: bool) -> None:
    with closing(client_of(server.control)) as victim:
        victim.call("RegisterApp", pb.RegisterAppRequest(app="victim", instance="i"))
        beat(victim)
        threads, files = held(server.pid)
        with closing(HalfOpenClient(server.control)) as hostile:
            calls = [hostile.begin(CONTROL + "Hello", headers("evil") if with_token else ()) for _ in range(60)]
            while not all(call.over for call in calls):
                beat(victim)
                hostile.read(0.05)
                assert held(server.pid)[0] <= threads + 4  # other lanes may have begun
            assert b"grpc-status" in calls[0].trailers  # the others refer to it by its number (HPACK)
            assert all(call.trailers for call in calls)
            beat(victim)
        wait_until(lambda: held(server.pid)[1] <= files, "the connection's descriptor is given back")


def test_a_call_that_is_refused_needs_no_message(tmp_path: Path) -> None:
    tokens = SecretTokens(str(make_secret(tmp_path / "secret")))
    with closing(Scene(ServerSecurity(tokens=tokens))) as scene, closing(HalfOpenClient(scene.address)) as hostile:
        for method in ("Hello", "RegisterApp", "Watch", "Nothing"):
            call = hostile.begin(CONTROL + method)
            hostile.wait_for(call)
            assert b"flight-shuffle-error-bin" in call.trailers
        call = hostile.begin("/flight_shuffle.registry.v1.ShuffleRegistry/Commits")
        hostile.wait_for(call)


def test_silence_does_not_count_while_strangers_flood_the_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Served(ServedTime):
        misses = 0

        def miss(self) -> None:
            self.misses += 1

    served = Served()
    tokens = SecretTokens(str(make_secret(tmp_path / "secret")))
    with closing(Scene(ServerSecurity(tokens=tokens), served=served)) as scene:
        with closing(HalfOpenClient(scene.address)) as hostile:
            hostile.wait_for(*(hostile.begin(CONTROL + "Hello") for _ in range(10)))
            assert served.misses == 0
            monkeypatch.setattr(door, "STRANGE_CALLS", 0)
            hostile.wait_for(hostile.begin(CONTROL + "Hello"))
            wait_until(lambda: served.misses == 1, "the time of the flood is left out")


def test_calls_that_have_waited_longest_make_room() -> None:
    with closing(Scene(calls=CALLS)) as scene, closing(HalfOpenClient(scene.address)) as hostile:
        first = hostile.begin(CONTROL + "Hello", data=b"\0")
        hostile.read(0.1)
        assert not first.over
        last = hostile.begin(CONTROL + "Hello")
        hostile.wait_for(first)
        assert b"wait for their message" in first.trailers
        assert not last.over


def test_large_requests_are_counted_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "EACH_BYTES", 1 << 20)
    with closing(Scene()) as scene, closing(client_of(scene.address)) as client:
        name = "x" * (1 << 20)
        with pytest.raises(Overloaded, match="bytes of requests wait, the limit is 1048576"):
            client.call("RegisterApp", pb.RegisterAppRequest(app="victim", instance="i", name=name))
        client.hello()
        with pytest.raises(InvalidArgument, match="name has 1000000 characters"):
            client.call("RegisterApp", pb.RegisterAppRequest(app="victim", instance="i", name=name[:1_000_000]))


def test_a_message_that_stops_in_the_middle_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MESSAGE_SECONDS", 0.2)
    with closing(Scene()) as scene, closing(HalfOpenClient(scene.address)) as hostile:
        call = hostile.begin(CONTROL + "Hello", data=message(b"x" * 1000)[:500])
        hostile.wait_for(call)
        assert b"did not come within" in call.trailers


# ------------------------------------------------------------------ strange calls


@pytest.mark.parametrize("path", [b"/\xff\xfe", b"/a\nb", b"", b"/" + b"x" * 5000, b"/\0"])
def test_no_path_of_a_call_stops_the_endpoint_or_fills_its_log(path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with closing(Scene()) as scene:
        with closing(HalfOpenClient(scene.address)) as hostile:
            hostile.begin(path, [(b"authorization", b"\xff\xfe"), (b"flight-shuffle-app", b"a\nb")], message(b""))
            hostile.read(0.3)
        with closing(client_of(scene.address)) as client:
            assert client.hello().epoch == scene.master.epoch
    assert not caplog.records


def test_a_message_above_the_limit_is_refused_before_it_has_come() -> None:
    with closing(Scene()) as scene, closing(HalfOpenClient(scene.address)) as hostile:
        call = hostile.begin(CONTROL + "Hello", data=b"\0" + (100 << 20).to_bytes(4, "big") + b"x")
        hostile.wait_for(call)
        with closing(client_of(scene.address)) as client:
            client.hello()


def test_a_compressed_message_is_not_expanded() -> None:
    with closing(Scene()) as scene, grpc.insecure_channel(scene.address) as channel:
        call = channel.unary_unary(f"{CONTROL}Hello", bytes, bytes)
        with pytest.raises(grpc.RpcError):
            call(bytes(15 << 20), timeout=SECONDS, compression=grpc.Compression.Gzip)
        with closing(client_of(scene.address)) as client:
            client.hello()


# ------------------------------------------------------------------ bounds with a right token


def test_watches_of_one_application_leave_those_of_another() -> None:
    with closing(Scene(watches=20)) as scene, ExitStack() as stack:
        client = stack.enter_context(closing(client_of(scene.address)))
        other = pb.ShuffleKey(app="other", shuffle=1)
        client.call("RegisterApp", pb.RegisterAppRequest(app="other", instance="i"))
        client.call(
            "RegisterShuffle",
            pb.RegisterShuffleRequest(shuffle=other, partitions=1, maps=1, codec="none", content="opaque"),
        )
        streams = [client.stream("Watch", pb.WatchRequest(shuffle=KEY)) for _ in range(20)]
        for stream in streams:
            stack.callback(stream.cancel)
            next(iter(stream))
        with pytest.raises(Overloaded, match="20 watches are open.*limit is 20.*--app-max-watches"):
            next(iter(client.stream("Watch", pb.WatchRequest(shuffle=KEY))))
        assert scene.server.streams()["watches"] == 20
        watch = client.stream("Watch", pb.WatchRequest(shuffle=other))
        stack.callback(watch.cancel)
        assert next(iter(watch)).epoch == scene.master.epoch


def test_a_flood_of_changes_stops_neither_signs_of_life_nor_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with closing(Scene(threads=4)) as scene, closing(client_of(scene.address)) as client:
        step = scene.directory.step
        monkeypatch.setattr(scene.directory, "step", lambda *part: (go.wait(SECONDS), step(*part)))
        with ThreadPoolExecutor(30) as pool:
            running = [pool.submit(register, client, number) for number in range(30)]
            try:
                wait_until(lambda: any(each.done() for each in running), "those without a turn are refused")
                for _ in range(20):
                    client.call("Heartbeat", pb.HeartbeatRequest(app=SHUFFLE.app))
                    client.call("Locate", pb.LocateRequest(shuffle=KEY))
            finally:
                go.set()
            outcomes = [each.result(SECONDS) for each in running]
        assert {type(outcome) for outcome in outcomes} == {Overloaded, type(None)}
        assert any("4 changes wait for the registry's log" in str(outcome) for outcome in outcomes)


def register(client: ControlClient, number: int) -> ShuffleError | None:
    key = pb.ShuffleKey(app=SHUFFLE.app, shuffle=100 + number)
    request = pb.RegisterShuffleRequest(shuffle=key, partitions=1, maps=1, codec="none", content="opaque")
    try:
        client.call("RegisterShuffle", request)
    except ShuffleError as error:
        return error
    return None
