"""Commits of workers that are other processes, over real gRPC."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from shuffle_api.errors import (
    CommitMismatch,
    MapOutputLost,
    PermissionDenied,
    ServerUnreachable,
    StaleEpoch,
    StorageFailed,
    Unauthenticated,
    UnknownShuffle,
)
from shuffle_api.ids import ShuffleId
from shuffle_api.values import MapOutput
from shuffle_server.master.client import Identity, RegistryClient
from shuffle_server.master.commit_control import MAX_COMMITS
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.security import ServerSecurity
from shuffle_server.tokens import SecretTokens
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.credential_files import read_secrets
from shuffle_transport.proto import flight_shuffle_pb2 as control_pb
from shuffle_transport.security import Credentials
from shuffle_transport.tokens import app_token, cluster_token
from tests.certificates import make_secret
from tests.shuffle_server.master.scene import SHUFFLE, commit
from tests.shuffle_server.master.served import Scene

TIMEOUT = 60.0
METHOD = "/flight_shuffle.registry.v1.ShuffleRegistry/Commits"


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene()) as scene:
        yield scene


@pytest.fixture
def client(scene: Scene) -> Iterator[RegistryClient]:
    with closing(RegistryClient(scene.address, timeout=TIMEOUT)) as client:
        yield client


def test_an_acknowledged_commit_is_durable(scene: Scene, client: RegistryClient) -> None:
    output = commit(5).output
    assert client.commit(SHUFFLE, output) == output
    assert scene.durable() == [output]


def test_commits_of_many_threads_and_clients_are_all_there(scene: Scene) -> None:
    clients = [RegistryClient(scene.address, timeout=TIMEOUT) for _ in range(4)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: clients[n % 4].commit(SHUFFLE, commit(n).output), range(600)))
    assert scene.durable() == [commit(n).output for n in range(600)]
    for client in clients:
        client.close()


def test_a_worker_tells_all_that_it_holds_in_few_requests(scene: Scene, client: RegistryClient) -> None:
    client.commit(SHUFFLE, commit(7).output)
    outputs = [commit(n, attempt=1).output for n in range(2500)]
    outcomes = client.commit_all(SHUFFLE, outputs)
    assert outcomes == [*outputs[:7], commit(7).output, *outputs[8:]]
    assert scene.durable() == outcomes


def test_each_commit_has_an_outcome_of_its_own(scene: Scene, client: RegistryClient) -> None:
    first, other = commit(0).output, commit(0, attempt=1).output
    assert client.commit(SHUFFLE, first) == first
    assert client.commit(SHUFFLE, first) == first
    assert client.commit(SHUFFLE, other) == first
    with pytest.raises(CommitMismatch, match="map 0 attempt 0 has committed before"):
        client.commit(SHUFFLE, commit(0, records=77).output)
    with pytest.raises(UnknownShuffle) as caught:
        client.commit(ShuffleId("app", 99), first)
    assert caught.value.shuffle == ShuffleId("app", 99)
    scene.master.lose(SHUFFLE, first.output, "burnt")
    with pytest.raises(MapOutputLost, match="burnt"):
        client.commit(SHUFFLE, first)
    assert client.commit(SHUFFLE, other) == other


def test_one_refused_commit_does_not_harm_those_beside_it(scene: Scene) -> None:
    outputs = [replace(commit(n).output, worker=worker) for n, worker in enumerate(["w", "stranger", "w"])]
    request = pb.CommitRequest(commits=map(message, outputs))
    reply = pb.CommitReply.FromString(raw_call(scene.address, request.SerializeToString()))
    assert [each.HasField("error") for each in reply.results] == [False, True, False]
    with pytest.raises(StaleEpoch, match="'stranger' is not registered"):
        raise messages.typed_error(reply.results[1].error)
    assert [each.output.map for each in scene.durable()] == [0, 2]


def message(output: MapOutput) -> pb.Commit:
    return pb.Commit(shuffle=messages.key_of(SHUFFLE), output=messages.output_message(output))


def raw_call(address: str, data: bytes) -> bytes:
    with grpc.insecure_channel(address) as channel:
        (reply,) = channel.stream_stream(METHOD, None, None)(iter([data]), timeout=TIMEOUT)
        assert isinstance(reply, bytes)
        return reply


def check_refusal(error: Any) -> None:
    """By gRPC's status and by the typed error beside it."""
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ABORTED)
    assert messages.ERROR_METADATA in [key for key, _ in error.trailing_metadata()]


def test_garbage_is_refused_and_the_master_goes_on(scene: Scene, client: RegistryClient) -> None:
    rng = random.Random(3)
    whole = pb.CommitRequest(identity=pb.Identity(epoch=1), commits=[message(commit(1).output)]).SerializeToString()
    for _ in range(300):
        data = bytearray(whole if rng.random() < 0.7 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(3)):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            raw_call(scene.address, bytes(data))
        except grpc.RpcError as error:
            check_refusal(error)
    assert client.commit(SHUFFLE, commit(1000).output) == commit(1000).output


def test_a_client_of_another_epoch_is_fenced() -> None:
    with closing(Scene()) as scene:
        epoch = scene.master.epoch
        with closing(RegistryClient(scene.address, timeout=TIMEOUT)) as client:
            client.commit(SHUFFLE, commit(0).output, Identity(epoch))
            with pytest.raises(StaleEpoch, match="is for epoch 2 of the master, this is epoch 1"):
                client.commit(SHUFFLE, commit(1).output, Identity(epoch + 1))
        assert [each.output.map for each in scene.durable()] == [0]


def test_too_many_commits_at_once_are_refused(scene: Scene) -> None:
    request = pb.CommitRequest(commits=[pb.Commit()] * (MAX_COMMITS + 1))
    with pytest.raises(grpc.RpcError, match=f"send at most {MAX_COMMITS} at a time"):
        raw_call(scene.address, request.SerializeToString())


def test_what_could_not_be_made_durable_is_not_acknowledged(scene: Scene, client: RegistryClient) -> None:
    scene.directory.room = 0
    with pytest.raises(StorageFailed, match="No space left"):
        client.commit(SHUFFLE, commit(0).output)
    scene.directory.room = 1 << 20
    assert client.commit(SHUFFLE, commit(0).output) == commit(0).output
    assert scene.durable() == [commit(0).output]


def test_a_master_that_is_away_is_named() -> None:
    scene = Scene()
    scene.close()
    with closing(RegistryClient(scene.address, timeout=TIMEOUT)) as client:
        with pytest.raises(ServerUnreachable, match=scene.address):
            client.commit(SHUFFLE, commit(0).output)


def test_commits_are_for_the_clusters_token_only(tmp_path: Path) -> None:
    secret_file = make_secret(tmp_path / "secret")
    secret = read_secrets(str(secret_file))[0]
    with closing(Scene(ServerSecurity(tokens=SecretTokens(str(secret_file))))) as scene:
        for credentials, error in (
            (Credentials(), Unauthenticated),
            (Credentials(token=app_token(secret, "app"), app="app"), PermissionDenied),
        ):
            with closing(RegistryClient(scene.address, timeout=TIMEOUT, credentials=credentials)) as client:
                with pytest.raises(error):
                    client.commit(SHUFFLE, commit(0).output)
        cluster = Credentials(token=cluster_token(secret))
        with closing(RegistryClient(scene.address, timeout=TIMEOUT, credentials=cluster)) as client:
            client.commit(SHUFFLE, commit(0).output)
        assert scene.durable() == [commit(0).output]


def test_lookups_tell_of_nothing_that_a_crash_would_undo(scene: Scene) -> None:
    with closing(ControlClient(scene.address, client="test", timeout=TIMEOUT)) as control:
        with ThreadPoolExecutor(2) as pool:
            committing = pool.submit(lambda: [scene.master.apply(commit(n)) for n in range(300)])
            while not committing.done():
                reply = control.call("Locate", control_pb.LocateRequest(shuffle=messages.key_of(SHUFFLE)))
                assert len(scene.durable()) >= len(reply.outputs)
            committing.result()
