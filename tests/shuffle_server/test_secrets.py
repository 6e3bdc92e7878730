"""Secrets that change while servers run, applications that are revoked, and workers with a token of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import wait_until
from shuffle_api.errors import InvalidArgument, PermissionDenied, ShuffleError, Unauthenticated
from shuffle_api.interfaces import Options
from shuffle_api.options import parse_options
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.client import Identity, RegistryClient
from shuffle_server.options import ServerOptions
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_server.security import load_security
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_server.tokens import SecretTokens
from shuffle_server.worker.actions import REPLICATE, VERIFY
from shuffle_transport.blocks import table_rows, totals_of
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as control_pb
from shuffle_transport.security import ANYBODY, Credentials, Principal
from shuffle_transport.tokens import app_token, cluster_token, worker_token
from tests.shuffle_server.helpers import block, read_all, write_map
from tests.shuffle_server.master.scene import SHUFFLE, commit

OLD, NEW = "old-" + "o" * 40, "new-" + "n" * 40


def put(path: Path, *lines: str, mode: int = 0o600) -> Path:
    """Have a file hold these lines, in one step."""
    new = path.with_name(path.name + ".new")
    new.write_text("".join(f"{line}\n" for line in lines))
    new.chmod(mode)
    return new.replace(path)


def show(tokens: SecretTokens, token: str, app: str = "") -> Principal:
    return tokens.authenticate([f"Bearer {token}"], [app] if app else [])


def test_a_secret_is_changed_in_three_steps_and_no_token_in_use_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path / "secret", OLD)
    with closing(SecretTokens(str(file))) as tokens:
        before = app_token(OLD.encode(), "app")
        for lines, first in (((OLD, NEW), OLD), ((NEW, OLD), NEW)):
            put(file, *lines)
            tokens.look()
            assert tokens.of_cluster() == cluster_token(first.encode())
            assert tokens.of_worker("w-1") == worker_token(first.encode(), "w-1")
            assert show(tokens, before, "app") == Principal("app")
            assert show(tokens, cluster_token(NEW.encode())) is ANYBODY
        put(file, NEW)
        tokens.look()
        with pytest.raises(Unauthenticated, match="not that of application 'app'"):
            show(tokens, before, "app")


def test_a_file_that_cannot_be_used_any_more_changes_nothing_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, revoked = put(tmp_path / "secret", OLD), put(tmp_path / "revoked", "bad")
    with closing(SecretTokens(str(file), str(revoked))) as tokens:
        for break_it in (
            lambda: put(file, "short"),
            lambda: put(file, NEW, mode=0o644),
            lambda: put(revoked, "no name/"),
            lambda: file.unlink() or revoked.unlink(),  # type: ignore[func-returns-value]
        ):
            break_it()
            caplog.clear()
            tokens.look()
            tokens.look()
            assert show(tokens, cluster_token(OLD.encode())) is ANYBODY
            with pytest.raises(Unauthenticated, match="revoked"):
                show(tokens, app_token(OLD.encode(), "bad"), "bad")
            said = [record.getMessage() for record in caplog.records]
            assert said
            assert all("What it said before holds" in text for text in said)
            assert len(said) == len(set(said))
            assert OLD not in caplog.text
            assert NEW not in caplog.text


@pytest.mark.parametrize(
    ("role", "given", "words"),
    [
        ("worker", {"secret_file": "SECRET", "token_file": "TOKEN"}, "both secret_file and token_file"),
        ("worker", {"token_file": "TOKEN", "revoked_file": "REVOKED"}, "revoked_file .* without secret_file"),
        ("master", {"token_file": "TOKEN"}, "no master to ask"),
        ("master", {"secret_file": "SECRET", "revoked_file": "LOOSE"}, "revoked_file .* written by other users"),
        ("worker", {"token_file": "NONE"}, "token_file .* cannot be read"),
    ],
)
def test_what_contradicts_itself_is_refused_at_the_start(
    tmp_path: Path, role: str, given: dict[str, str], words: str
) -> None:
    files = {
        "SECRET": put(tmp_path / "secret", OLD),
        "TOKEN": put(tmp_path / "token", "t"),
        "REVOKED": put(tmp_path / "revoked"),
        "LOOSE": put(tmp_path / "loose", mode=0o622),
        "NONE": tmp_path / "none",
    }
    options = {name: str(files[value]) for name, value in given.items()}
    options |= {"data_dir": str(tmp_path / "d")} | ({"master": "127.0.0.1:1"} if role == "worker" else {})
    with pytest.raises(InvalidArgument, match=words):
        load_security(parse_options(ServerOptions, options))


# ------------------------------------------------------------------------------- a cluster in this process


class Cluster:
    """A master with the secret and a revoked file, and a worker that has its own token only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.secret, self.revoked = put(root / "secret", OLD), put(root / "revoked")
        self.token = put(root / "token", cluster_token(OLD.encode()))
        options = ServerOptions(data_dir=str(root / "m"), listen="127.0.0.1:0")
        options = replace(options, secret_file=str(self.secret), revoked_file=str(self.revoked))
        self.master = MasterServer(options)
        try:
            put(self.token, worker_token(OLD.encode(), "w-1"))
            self.worker = self.start_worker("w-1", self.token)
        except BaseException:
            self.master.stop()
            raise

    def start_worker(self, id: str, token: Path) -> WorkerServer:
        (self.root / id).mkdir()
        (self.root / id / "worker-id").write_text(id)
        options = ServerOptions(data_dir=str(self.root / id), master=self.master.control_address)
        return WorkerServer(replace(options, data_listen="127.0.0.1:0", token_file=str(token)))

    def plugin(self, token: str, replicas: int = 1) -> RemoteShuffle:
        where: Options = {
            "server": self.master.control_address,
            "timeout": 30,
            "retry": 0,
            "replicas": replicas,
            "token": token,
        }
        return RemoteShuffle({**where, "hand_over": "off"})

    @contextmanager
    def registry(self, credentials: Credentials) -> Iterator[ControlClient]:
        client = ControlClient(
            self.master.control_address, client="t", credentials=credentials, stub=rpc.ShuffleRegistryStub
        )
        with closing(client):
            yield client

    def close(self) -> None:
        self.worker.stop()
        self.master.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with closing(Cluster(tmp_path_factory.mktemp("cluster"))) as running:
        yield running


def test_a_worker_with_its_own_token_serves_applications_and_nobody_without_a_token(cluster: Cluster) -> None:
    with cluster.plugin(app_token(OLD.encode(), "job")) as plugin, plugin.master("job") as job:
        handle = job.register_shuffle(4, 1)
        written = write_map(plugin, handle, 0)
        assert read_all(plugin, handle) == written
    address = cluster.worker.worker.info.address
    for credentials in (
        Credentials(),
        Credentials("job", "wrong"),
        Credentials("other", app_token(OLD.encode(), "job")),
        Credentials("", worker_token(NEW.encode(), "w-1")),
    ):
        with closing(FlightClient(address, timeout=30, credentials=credentials)) as client:
            with pytest.raises(Unauthenticated):
                client.act(VERIFY, b"")


WHOSE = {
    "an application's": Credentials("job", app_token(OLD.encode(), "job")),
    "another worker's": Credentials("", worker_token(OLD.encode(), "w-2")),
}
IDENTITY = pb.Identity(worker="w-1", incarnation=1)
AS_A_WORKER: dict[str, Any] = {
    "Join": pb.JoinRequest(worker=control_pb.Worker(id="w-1", host="evil", port=1), incarnation=9, protocol=2),
    "Beat": pb.BeatRequest(identity=IDENTITY),
    "Held": pb.HeldRequest(worker="w-1"),
    "Lose": pb.LoseRequest(identity=IDENTITY),
    "Release": pb.ReleaseRequest(identity=IDENTITY),
    "Drain": pb.DrainRequest(worker="w-1"),
    "Leave": pb.LeaveRequest(identity=IDENTITY),
}


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("method", AS_A_WORKER)
def test_nobody_else_acts_as_a_worker(cluster: Cluster, method: str, whose: str) -> None:
    with cluster.registry(WHOSE[whose]) as client:
        with pytest.raises(PermissionDenied):
            client.call(method, AS_A_WORKER[method])
    members = [member.info.host for member in cluster.master._control.membership.records()]
    assert members == [cluster.worker.worker.info.host]


def test_the_calls_of_workers_are_all_the_calls_there_are() -> None:
    [service] = pb.DESCRIPTOR.services_by_name.values()
    assert sorted([*AS_A_WORKER, "Commits"]) == sorted(method.name for method in service.methods)


@pytest.mark.parametrize("whose", [*WHOSE, "its own, for an output elsewhere"])
def test_nobody_else_commits_as_a_worker(cluster: Cluster, whose: str) -> None:
    own = Credentials("", worker_token(OLD.encode(), "w-1"))
    credentials = WHOSE.get(whose, own)
    identity = Identity(0, "w-1", cluster.worker._registries.all[0].session.identity.incarnation)
    where = cluster.master.control_address
    for who in (identity, Identity()):
        registry = RegistryClient(where, timeout=30, credentials=credentials)
        with closing(registry), pytest.raises(PermissionDenied):
            registry.commit(SHUFFLE, commit(0).output.at("w-9"), who)


def test_a_worker_that_does_not_have_the_token_of_its_id_does_not_join(cluster: Cluster) -> None:
    with pytest.raises(PermissionDenied, match="worker 'w-3' with the token of worker 'w-1'"):
        cluster.start_worker("w-3", cluster.token).stop()


def test_workers_with_tokens_of_their_own_make_copies_and_drain(cluster: Cluster) -> None:
    other = cluster.start_worker("w-2", put(cluster.root / "token-2", worker_token(OLD.encode(), "w-2")))
    try:
        with cluster.plugin(app_token(OLD.encode(), "job"), replicas=2) as plugin, plugin.master("job") as job:
            handle = job.register_shuffle(4, 1)
            written = write_map(plugin, handle, 0)
            [output] = job.map_outputs(handle)
            assert sorted(output.workers) == ["w-1", "w-2"]
            left = threading.Event()
            other.when_left(left.set)
            other.begin_drain()
            assert left.wait(60)
            assert read_all(plugin, handle) == written
    finally:
        other.stop()


def test_a_worker_may_send_copies_to_another_and_an_application_may_not(cluster: Cluster) -> None:
    address = cluster.worker.worker.info.address
    target = PushTarget(SHUFFLE, commit(0).output.output, 8, "none", copy=True)

    def answer(credentials: Credentials) -> ShuffleError:
        with closing(FlightClient(address, timeout=30, credentials=credentials)) as client:
            blocks = [block(0, b"x")]
            with pytest.raises(ShuffleError) as refused:
                client.push(target, blocks, first_block=0, end=totals_of(table_rows(blocks)), commit=False)
            with pytest.raises(ShuffleError) as asked:
                client.act(REPLICATE, b"")
        assert type(refused.value) is type(asked.value) or not isinstance(asked.value, PermissionDenied)
        return refused.value

    assert isinstance(answer(Credentials(SHUFFLE.app, app_token(OLD.encode(), SHUFFLE.app))), PermissionDenied)
    # It is let in, and there is no such shuffle.
    assert not isinstance(
        answer(Credentials("", worker_token(OLD.encode(), "w-2"))), PermissionDenied | Unauthenticated
    )


def test_a_revoked_application_is_refused_while_it_runs_and_others_are_not(cluster: Cluster) -> None:
    bad, good = (cluster.plugin(app_token(OLD.encode(), name)) for name in ("bad", "good"))
    with bad, good, good.master("good") as job:
        handle = job.register_shuffle(4, 1)
        master = bad.master("bad")
        master.register_shuffle(4, 1)
        put(cluster.revoked, "bad")

        def refused() -> bool:
            try:
                master.register_shuffle(4, 1)
            except Unauthenticated as error:
                return "'bad' is revoked" in str(error)
            return False

        wait_until(refused, "bad is refused")
        written = write_map(good, handle, 0)
        assert read_all(good, handle) == written
        put(cluster.revoked)
        wait_until(lambda: not refused(), "bad is let in again")
        master.close()


def test_the_secret_is_changed_while_a_job_runs(cluster: Cluster) -> None:
    """Runs last in this module: it leaves the new secret behind."""
    master: Any = cluster.master._security.tokens
    worker: Any = cluster.worker._security.tokens
    with cluster.plugin(app_token(OLD.encode(), "long")) as running, running.master("long") as job:
        handle = job.register_shuffle(4, 2)
        written = write_map(running, handle, 0)
        put(cluster.secret, OLD, NEW)
        credentials = Credentials("", cluster_token(NEW.encode()))

        def taken() -> bool:
            with closing(ControlClient(cluster.master.control_address, client="t", credentials=credentials)) as client:
                try:
                    return bool(client.hello().workers)
                except Unauthenticated:
                    return False

        wait_until(taken, "the new secret is taken")
        put(cluster.secret, NEW, OLD)
        put(cluster.token, worker_token(NEW.encode(), "w-1"))
        wait_until(lambda: worker.of_cluster() == worker_token(NEW.encode(), "w-1"), "the worker shows its new token")
        written += write_map(running, handle, 1)
        assert read_all(running, handle) == sorted(written)
    put(cluster.secret, NEW)
    wait_until(lambda: len(master._admission.secrets) == 1, "the old secret is gone")
    cluster.worker._registries.all[0].session._task.wake()
    with cluster.registry(cluster.worker._security.for_worker("w-1")) as client:
        client.call("Held", pb.HeldRequest(worker="w-1"))
    assert cluster.worker._registries.all[0].session.absent() == ""
    with cluster.plugin(app_token(OLD.encode(), "late")) as late, pytest.raises(Unauthenticated):
        late.master("late")
    with cluster.plugin(app_token(NEW.encode(), "late")) as late, late.master("late") as job:
        handle = job.register_shuffle(4, 1)
        written = write_map(late, handle, 0)
        assert read_all(late, handle) == written
