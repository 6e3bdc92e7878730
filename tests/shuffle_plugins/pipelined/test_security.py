"""TLS and tokens between tasks: nothing in plain text, nobody without the token, no application in another's data."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from shuffle_api.errors import (
    ErrorCode,
    InvalidArgument,
    PermissionDenied,
    ServerUnreachable,
    Unauthenticated,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing import ShufflePluginTests
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined import PipelinedShuffle, PipelinedWriter, wire
from shuffle_plugins.pipelined.endpoint import DIRECTORY, OUTPUT, Endpoint
from shuffle_plugins.pipelined.producer_registry import ProducerLocation
from shuffle_transport import messages
from shuffle_transport.channels import Control, ExchangeClient
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials, Keyring
from shuffle_transport.tokens import app_token
from tests.certificates import Party, make_party, make_secret
from tests.shuffle_plugins.pipelined.scene import WAIT, data, write
from tests.shuffle_server.proxy import RecordingProxy

Options = dict[str, OptionValue]
MARK = b"nobody but the reader of this partition may see this, whatever wire it takes"
OTHER = b"another secret, which is none of this run's: it only has the length"


def tls(party: Party) -> Options:
    return {"tls_ca": str(party.ca), "tls_cert": str(party.cert), "tls_key": str(party.key)}


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_secret(tmp_path_factory.mktemp("secret") / "secret")


@pytest.fixture(scope="module")
def secured(party: Party, secret: Path) -> Options:
    """What a driver is given."""
    return {"local": False, "timeout": 60.0, "secret_file": str(secret), **tls(party)}


class TestSecuredPipelinedShuffle(ShufflePluginTests):
    plugin_class = PipelinedShuffle
    supports_blocks = True
    supports_batches = True

    @pytest.fixture
    def options(self, secured: Options) -> Options:
        return secured


@dataclass(frozen=True, slots=True)
class Run:
    """A driver that also writes: applications A and B have a shuffle each, in whose one partition are three records."""

    plugin: PipelinedShuffle
    handles: dict[str, ShuffleHandle]
    writers: dict[str, PipelinedWriter]
    keys: Keyring

    def __getitem__(self, app: str) -> ShuffleHandle:
        return self.handles[app]

    def token(self, app: str) -> str:
        return self.keys.for_app(app).token

    def task(self, token: str = "", **changes: OptionValue) -> Options:
        """Options of a task that has this token and nothing else of the cluster's secrets."""
        assert self.keys.tls is not None
        return {"local": False, "timeout": 60.0, "token": token, **changes}


@pytest.fixture(scope="module")
def run(secured: Options, secret: Path, party: Party) -> Iterator[Run]:
    with ExitStack() as stack:
        plugin = stack.enter_context(PipelinedShuffle({**secured, "linger": 0.0}))
        handles, writers = {}, {}
        for app in ("A", "B"):
            master = stack.enter_context(plugin.master(app))
            handles[app] = master.register_shuffle(1, 1)
            writers[app] = stack.enter_context(plugin.writer(handles[app], MapAttempt(0, 0)))
            write(writers[app], range(3))
            writers[app].flush()
        yield Run(plugin, handles, writers, load_keyring(tls_ca=str(party.ca), secret_file=str(secret)))


# -------------------------------------------------------------------------------- what the wire shows


@pytest.mark.parametrize("encrypted", [True, False])
def test_payload_and_token_cross_the_wire_in_plain_text_only_without_tls(
    party: Party, secret: Path, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS too, so that the search is known to find what it looks for."""
    options: Options = {"local": False, "timeout": 60.0, "secret_file": str(secret)}
    options |= tls(party) if encrypted else {}
    connect = Endpoint.connect
    with PipelinedShuffle(options) as driver, driver.master("app") as master, PipelinedShuffle(options) as task:
        handle = master.register_shuffle(1, 1)
        with RecordingProxy(handle.endpoint) as proxy:

            def by_proxy(self: Endpoint, shuffle: Any, bound: Any, *wanted: Any) -> Any:
                return connect(self, shuffle, dataclasses.replace(bound, address=proxy.address), *wanted)

            monkeypatch.setattr(Endpoint, "connect", by_proxy)
            with driver.writer(handle, MapAttempt(0, 0)) as writer:
                writer.write(0, MARK)
                writer.commit()
                with task.reader(dataclasses.replace(handle, endpoint=proxy.address), range(1)) as reader:
                    assert list(reader) == [(0, MARK)]
            seen = proxy.seen()
    assert len(seen) > 1000
    assert (MARK in seen) == (not encrypted)
    assert (app_token(load_keyring(secret_file=str(secret)).secrets[0], "app").encode() in seen) == (not encrypted)


def test_task_without_tls_is_refused_and_told_of_it(run: Run) -> None:
    with PipelinedShuffle(run.task(run.token("A"))) as task, pytest.raises(ServerUnreachable, match="set tls_ca"):
        task.reader(run["A"], range(1))


def test_task_that_trusts_somebody_else_refuses_the_driver(run: Run, tmp_path: Path) -> None:
    other = make_party(tmp_path / "other")
    with PipelinedShuffle(run.task(run.token("A"), tls_ca=str(other.ca))) as task:
        with pytest.raises(Unauthenticated, match="is not trusted"):
            task.reader(run["A"], range(1))


def test_nothing_is_served_in_plain_text_where_connections_use_tls(party: Party) -> None:
    with PipelinedShuffle({"tls_ca": str(party.ca)}) as plugin, pytest.raises(InvalidArgument, match="plain text"):
        plugin.master("app")


def test_certificates_of_clients_are_asked_for(party: Party, tmp_path: Path) -> None:
    base: Options = {"local": False, "timeout": 60.0}
    asking = {**base, **tls(party), "tls_client_ca": str(party.ca)}
    with PipelinedShuffle(asking) as driver, driver.master("app") as master:
        handle = master.register_shuffle(1, 1)
        with driver.writer(handle, MapAttempt(0, 0)) as writer:
            write(writer, range(3))
            writer.commit()
            with PipelinedShuffle(asking) as task, task.reader(handle, range(1)) as reader:
                assert [record for _, record in reader] == data(0, 1, 2)
        stranger = make_party(tmp_path / "stranger")
        for wrong in ({"tls_ca": str(party.ca)}, {**tls(stranger), "tls_ca": str(party.ca)}):
            with PipelinedShuffle({**base, **wrong}) as task, pytest.raises(ServerUnreachable, match="tls_cert"):
                task.reader(handle, range(1))
    with pytest.raises(InvalidArgument, match="tls_client_ca .* without tls_ca"):
        PipelinedShuffle({"tls_client_ca": str(party.ca)})


# ---------------------------------------------------------------------------------------------- tokens


def test_task_with_the_applications_token_writes_and_reads(secured: Options, party: Party, secret: Path) -> None:
    """Tasks serve each other too, and have one token where the driver has the secret."""
    token = load_keyring(secret_file=str(secret)).for_app("app").token
    own: Options = {"local": False, "timeout": 60.0, "token": token, **tls(party)}
    with PipelinedShuffle(secured) as driver, driver.master("app") as master:
        handle = master.register_shuffle(1, 1)
        with PipelinedShuffle(own) as one, PipelinedShuffle(own) as other:
            with one.writer(handle, MapAttempt(0, 0)) as writer, other.reader(handle, range(1)) as reader:
                write(writer, range(3))
                writer.commit()
                assert [record for _, record in reader] == data(0, 1, 2)
        assert [found.output for found in master.map_outputs(handle)] == [MapAttempt(0, 0)]


@pytest.mark.parametrize("whose", ["nobody's", "a wrong one", "another application's", "the cluster's of others"])
def test_task_without_the_right_token_is_refused(run: Run, party: Party, whose: str) -> None:
    token = {
        "nobody's": "",
        "a wrong one": "x" * 44,
        "another application's": run.token("B"),
        "the cluster's of others": Keyring(secrets=(OTHER,)).for_cluster().token,
    }[whose]
    with PipelinedShuffle(run.task(token, **tls(party))) as task:
        with pytest.raises(Unauthenticated) as raised:
            task.reader(run["A"], range(1))
        assert raised.value.code is ErrorCode.UNAUTHENTICATED
        with pytest.raises(Unauthenticated):
            task.writer(run["A"], MapAttempt(0, 9))
    assert not token or token not in str(raised.value)


def test_writer_with_a_token_of_its_own_admits_no_other(secured: Options, party: Party, secret: Path) -> None:
    """What a task has written is asked for directly, past the driver."""
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret))
    own: Options = {"local": False, "timeout": 60.0, "token": keys.for_app("app").token, **tls(party)}
    with PipelinedShuffle(secured) as driver, driver.master("app") as master, PipelinedShuffle(own) as task:
        handle = master.register_shuffle(1, 1)
        with task.writer(handle, MapAttempt(0, 0)) as writer:
            write(writer, range(3))
            address = task._endpoint.address("app")
            right = keys.for_app("app")
            assert "hello" in ask(address, right, OUTPUT, wanted(handle))
            wrong = [
                dataclasses.replace(right, token=""),
                dataclasses.replace(right, token=keys.for_app("B").token),
                dataclasses.replace(right, app=""),
                keys.for_app("B"),
                keys.for_cluster(),  # it cannot know that one
            ]
            for credentials in wrong:
                with pytest.raises(Unauthenticated):
                    ask(address, credentials, OUTPUT, wanted(handle))


@pytest.mark.parametrize("channel", [OUTPUT, DIRECTORY])
def test_application_cannot_read_anothers_channel(run: Run, channel: str) -> None:
    """With its own right token, asking for the other's shuffle."""
    address = run["B"].endpoint
    question = wanted(run["B"]) if channel == OUTPUT else b""
    call = wire.encode(id=1, call="terms", shuffle=wire.shuffle_fields(run["B"].spec.id))
    with pytest.raises(PermissionDenied, match="'B~.*' with the token of application 'A'"):
        ask(address, run.keys.for_app("A"), channel, question, call)
    ask(address, run.keys.for_app("B"), channel, question, call)
    ask(address, run.keys.for_cluster(), channel, question, call)


@pytest.mark.parametrize("call", ["watch", "bind", "fail", "commit"])
def test_application_cannot_use_anothers_directory(run: Run, call: str) -> None:
    message = wire.encode(
        id=1,
        call=call,
        shuffle=wire.shuffle_fields(run["B"].spec.id),
        output=[0, 7],
        address="127.0.0.1:1",
        reason="",
        worker="w",
        totals=[0, 0, 0, 0, 0],
    )
    with pytest.raises(PermissionDenied):
        ask(run["B"].endpoint, run.keys.for_app("A"), DIRECTORY, b"", message)
    driver_registry = run.plugin._endpoint.driver_registry
    assert driver_registry.map_outputs(run["B"].spec.id) == []
    [place] = driver_registry._locations[run["B"].spec.id].values()
    assert place == ProducerLocation(MapAttempt(0, 0), run["B"].endpoint)


Verb = Callable[[Any, Any], object]
VERBS: dict[str, Verb] = {
    "DoGet": lambda client, options: client.do_get(fl.Ticket(b""), options).read_all(),
    "GetFlightInfo": lambda client, options: client.get_flight_info(fl.FlightDescriptor.for_path("A"), options),
    "ListFlights": lambda client, options: list(client.list_flights(b"", options)),
    "DoAction": lambda client, options: list(client.do_action(fl.Action("x", b""), options)),
    "ListActions": lambda client, options: list(client.list_actions(options)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_wants_the_token(run: Run, verb: str) -> None:
    wrong = dataclasses.replace(run.keys.for_app("A"), token="x" * 44)
    with flight_connection(run["A"].endpoint, run.keys.tls) as client:
        with pytest.raises((pa.ArrowException, NotImplementedError)) as refused:
            VERBS[verb](client, flight_options(wrong, 60))
        # the auth middleware, and nobody behind him
        with pytest.raises((pa.ArrowException, NotImplementedError)) as passed:
            VERBS[verb](client, flight_options(run.keys.for_app("A"), 60))
    assert "Unauthenticated" in str(refused.value) or isinstance(refused.value, fl.FlightUnauthenticatedError)
    assert not isinstance(passed.value, fl.FlightUnauthenticatedError)
    assert "Unauthenticated" not in str(passed.value)


def test_no_token_is_shown_by_what_carries_it(run: Run) -> None:
    plugin = PipelinedShuffle(run.task(run.token("A")))
    with plugin:
        shown = repr(plugin._options) + repr(plugin._endpoint._security) + repr(run.keys)
    assert run.token("A") not in shown


def wanted(handle: ShuffleHandle) -> bytes:
    """What a reader of everything opens a channel with."""
    spec = handle.spec
    return wire.encode(
        shuffle=wire.shuffle_fields(spec.id), output=[0, 0], partitions=[0, 1], reader="r", epoch=0, position=None
    )


def ask(address: str, credentials: Credentials, name: str, metadata: bytes, message: bytes = b"") -> str:
    """The first answer on a channel. Raises what is said instead."""
    pool = BufferPool(8 << 20)
    try:
        with ExchangeClient(address, pool, timeout=60, credentials=credentials) as client:
            with client.open(name, metadata=metadata) as channel:
                if message and name == DIRECTORY:
                    channel.send_control(message, WAIT)
                item = channel.receive(WAIT)
                assert isinstance(item, Control), item
                fields = wire.decode(item.message)
                if "error" in fields:
                    raise messages.typed_error(messages.parse(pb.Error, base64.b64decode(fields["error"])))
                return item.message.decode()
    finally:
        pool.close()
