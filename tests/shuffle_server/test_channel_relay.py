"""A worker that joins channels: admission, errors when an end is missing, the memory it gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from shuffle_api.errors import (
    InvalidArgument,
    Overloaded,
    PermissionDenied,
    ShuffleError,
    StreamBroken,
    Unauthenticated,
)
from shuffle_transport import messages
from shuffle_transport.channels import (
    BlockChannel,
    ChannelOptions,
    Control,
    ExchangeClient,
    ExchangeService,
    Handler,
    RelayListener,
)
from shuffle_transport.channels.stream import FlightStream
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA, MAX_MESSAGE
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, NO_KEYS, Credentials, Keyring
from shuffle_transport.tokens import app_token
from tests.certificates import make_party, make_secret
from tests.relay_process import RelayProcess

WAIT = 30.0
SECRET = b"a secret that only the tasks have, and not the worker between them"
Task = Callable[..., RelayListener]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with RelayProcess(tmp_path_factory.mktemp("relay")) as process:
        yield process


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RelayProcess, Keyring]]:
    root = tmp_path_factory.mktemp("secured")
    party, secret = make_party(root / "tls"), make_secret(root / "secret")
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret))
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret)]
    with RelayProcess(root, arguments, credentials=keys.for_cluster()) as process:
        yield process, keys


def echo(name: str, metadata: bytes, channel: BlockChannel) -> None:
    """Says its name and who it acts for, then everything back."""
    channel.send_control(f"{name} for {channel.principal.app}".encode() + metadata, WAIT)
    while (item := channel.receive(WAIT)) is not None:
        if isinstance(item, Control):
            channel.send_control(item.message, WAIT)
        else:
            channel.send(item.rows, bytes(item.payload), WAIT)
            item.release()


@pytest.fixture
def task() -> Iterator[Task]:
    """Tasks that are reached through a relay."""
    with ExitStack() as stack:

        def listen(
            relay: RelayProcess, app: str = "A", keys: Keyring = NO_KEYS, handler: Handler = echo
        ) -> RelayListener:
            pool = BufferPool(64 << 20)
            stack.callback(pool.close)
            service = ExchangeService(handler, pool, timeout=WAIT)
            listener = RelayListener(relay.address, app, service, keys, timeout=WAIT, keepalive=5.0)
            stack.callback(listener.close)
            stack.callback(service.close)
            return listener

        yield listen


def client(address: str, credentials: Credentials = NO_CREDENTIALS, **options: Any) -> ExchangeClient:
    chosen = ChannelOptions(keepalive=5.0, **options)
    return ExchangeClient(address, BufferPool(64 << 20), timeout=WAIT, options=chosen, credentials=credentials)


def said(address: str, credentials: Credentials = NO_CREDENTIALS, **options: Any) -> str:
    """What a task says to who calls it."""
    with client(address, credentials, **options) as caller, caller.open("hello", metadata=b"!") as channel:
        item = channel.receive(WAIT)
        assert isinstance(item, Control)
        channel.half_close(WAIT)
        assert channel.receive(WAIT) is None
        return item.message.decode()


def test_blocks_and_messages_pass_both_ways_in_order(relay: RelayProcess, task: Task) -> None:
    with client(task(relay).address) as caller, caller.open("numbers") as channel:
        assert isinstance(channel.receive(WAIT), Control)
        got: list[bytes] = []

        def hear() -> None:
            while (item := channel.receive(WAIT)) is not None:
                got.append(item.message if isinstance(item, Control) else bytes(item.payload))
                if not isinstance(item, Control):
                    item.release()

        hearing = threading.Thread(target=hear)
        hearing.start()
        sent = []
        for number in range(200):
            payload = bytes([number]) * (1 if number % 3 else 300_000)  # within the metadata, and beside it
            rows = np.array([(0, crc32c(payload), len(payload), len(payload), 1)], BLOCK_ROW)
            channel.send(rows, payload, WAIT)
            channel.send_control(b"%d" % number, WAIT)
            sent += [payload, b"%d" % number]
        channel.half_close(WAIT)
        hearing.join(WAIT)
        assert got == sent


def test_the_largest_message_passes(relay: RelayProcess, task: Task) -> None:
    """Its header is the largest object that Flight takes from the allocator that `shuffle_server.expansion` bounds."""
    with client(task(relay).address) as caller, caller.open("hello") as channel:
        assert isinstance(channel.receive(WAIT), Control)
        for _ in range(3):
            channel.send_control(bytes(MAX_MESSAGE), WAIT)
            assert channel.receive(WAIT) == Control(bytes(MAX_MESSAGE))
        channel.half_close(WAIT)
        assert channel.receive(WAIT) is None


def test_nobody_under_that_name_is_an_error_that_names_it(relay: RelayProcess) -> None:
    with pytest.raises(StreamBroken, match="no task is reached as 00000000") as raised:
        said(f"{relay.address}/{bytes(16).hex()}")
    assert relay.address in raised.value.message
    assert raised.value.remedy


@pytest.mark.parametrize("name", ["/", "/xyz", "/00"])
def test_address_without_a_name_is_refused(relay: RelayProcess, name: str) -> None:
    with pytest.raises(InvalidArgument):
        said(relay.address + name)


def test_channel_for_no_task_is_refused(relay: RelayProcess) -> None:
    with pytest.raises(InvalidArgument, match="has none of its own"):
        said(relay.address)


def test_who_calls_may_wait_for_a_task_to_come(relay: RelayProcess, task: Task) -> None:
    listener = task(relay)
    listener.close()
    found: list[str] = []
    calling = threading.Thread(target=lambda: found.append(said(listener.address, relay_wait=WAIT)))
    calling.start()
    again = task(relay)
    rename(again, listener.address)
    calling.join(WAIT)
    assert found == ["hello for A!"]


def rename(listener: RelayListener, address: str) -> None:
    """Listen under another task's name: as the same task does after it has lost the worker."""
    listener._name = bytes.fromhex(address.partition("/")[2])
    listener._stream.abort()


def test_task_that_has_closed_is_gone(relay: RelayProcess, task: Task) -> None:
    listener = task(relay)
    assert said(listener.address) == "hello for A!"
    listener.close()
    deadline = time.monotonic() + WAIT
    while True:  # the worker looks every second
        try:
            said(listener.address)
        except StreamBroken:
            return
        assert time.monotonic() < deadline


def test_other_end_that_breaks_off_is_an_error(relay: RelayProcess, task: Task) -> None:
    address = task(relay).address
    with client(address) as caller:
        channel = caller.open("hello")
        assert isinstance(channel.receive(WAIT), Control)
        with client(address) as second, second.open("hello") as other:  # which goes on
            assert isinstance(other.receive(WAIT), Control)
            channel.cancel("enough")
            other.send_control(b"still here", WAIT)
            item = other.receive(WAIT)
            assert isinstance(item, Control)
            assert item.message == b"still here"
            other.half_close(WAIT)
            assert other.receive(WAIT) is None


@pytest.mark.parametrize("resume", [False, True])
def test_channel_that_may_resume_outlives_the_relay(tmp_path: Path, task: Task, resume: bool) -> None:
    with RelayProcess(tmp_path) as relay:
        listener = task(relay)
        options = ChannelOptions(keepalive=5.0, resume=resume, relay_wait=WAIT)
        with client(listener.address) as caller, caller.open("hello", options=options) as channel:
            assert isinstance(channel.receive(WAIT), Control)
            relay.kill()
            relay.restart()
            if not resume:
                with pytest.raises(ShuffleError):
                    channel.receive(WAIT)
            else:
                channel.send_control(b"again", WAIT)
                item = channel.receive(WAIT)
                assert isinstance(item, Control)
                assert item.message == b"again"
                channel.half_close(WAIT)
                assert channel.receive(WAIT) is None
        assert said(listener.address, relay_wait=WAIT) == "hello for A!"


# ------------------------------------------------------------------------------------------------ who may


def test_application_reaches_its_own_tasks_with_its_token(secured: tuple[RelayProcess, Keyring], task: Task) -> None:
    relay, keys = secured
    own = Keyring(tls=keys.tls, token=keys.for_app("A").token)
    assert said(task(relay, "A", own).address, own.for_app("A")) == "hello for A!"
    assert said(task(relay, "A", keys).address, keys.for_app("A")) == "hello for A!"


@pytest.mark.parametrize("resume", [False, True], ids=["", "resumable"])
def test_application_cannot_reach_anothers_task(
    secured: tuple[RelayProcess, Keyring], task: Task, resume: bool
) -> None:
    """And hears so at once: it makes no sense to come back."""
    relay, keys = secured
    address = task(relay, "B", keys).address
    with pytest.raises(PermissionDenied, match="'B' with the token of application 'A'"):
        said(address, keys.for_app("A"), resume=resume)
    with pytest.raises(Unauthenticated):
        said(address, Credentials(tls=keys.tls), resume=resume, resume_timeout=10 * WAIT)
    with pytest.raises(Unauthenticated):
        said(address, Credentials("B", app_token(SECRET, "B"), keys.tls), resume=resume, resume_timeout=10 * WAIT)


def test_application_cannot_listen_for_another(secured: tuple[RelayProcess, Keyring], task: Task) -> None:
    relay, keys = secured
    taken = bytes.fromhex(task(relay, "B", keys).address.partition("/")[2])
    own = keys.for_app("A")
    for route in (pb.RelayRoute(listen=bytes(16), app="B"), pb.RelayRoute(listen=taken, app="A")):
        with pytest.raises(PermissionDenied):
            raise answer(relay, own, route)
    assert said(f"{relay.address}/{taken.hex()}", keys.for_app("B")) == "hello for B!"


def test_application_cannot_answer_anothers_call(secured: tuple[RelayProcess, Keyring]) -> None:
    relay, keys = secured
    name = bytes(range(16))
    listening = open_stream(relay, keys.for_app("B"), pb.RelayRoute(listen=name, app="B"))
    assert listening.read() is not None
    refusals: list[ShuffleError] = []

    def call() -> None:
        with pytest.raises(ShuffleError) as raised:
            said(f"{relay.address}/{name.hex()}", keys.for_app("B"))
        refusals.append(raised.value)

    calling = threading.Thread(target=call)
    calling.start()
    called = pb.RelayCall()
    while not called.call:
        message = listening.read()
        assert message is not None
        called = pb.RelayCall.FromString(pb.ExchangeControl.FromString(message[1] or b"").message)
    with pytest.raises(PermissionDenied):
        raise answer(relay, keys.for_app("A"), pb.RelayRoute(answer=called.call, app="A"))
    assert not refusals
    listening.abort()  # the task leaves, and its caller hears so
    calling.join(WAIT)
    assert "has left" in refusals[0].message


def test_task_admits_nobody_without_its_token_whatever_the_relay_does(relay: RelayProcess, task: Task) -> None:
    """The worker wants no tokens: then it is the task that asks for one."""
    keys = Keyring(secrets=(SECRET,))
    address = task(relay, "A", keys).address
    assert said(address, keys.for_app("A")) == "hello for A!"
    for credentials in (Credentials(), Credentials("A", "x" * 44), Credentials("A", app_token(SECRET, "B"))):
        with pytest.raises(Unauthenticated):
            said(address, credentials)


# -------------------------------------------------------------------------------------------------- rules


def test_task_behind_a_relay_acts_for_the_application_of_its_run(relay: RelayProcess, task: Task) -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        channel.principal.check("A~1")  # its own run
        with pytest.raises(PermissionDenied):
            channel.principal.check("B~1")
        echo(name, metadata, channel)

    assert said(task(relay, "A~1", handler=handler).address) == "hello for A!"


def test_channels_are_as_many_as_the_memory_is_for(tmp_path: Path, task: Task) -> None:
    with RelayProcess(tmp_path, ["--memory", "16m", "--overload-timeout", "1"]) as relay, ExitStack() as stack:
        address = task(relay).address
        caller = stack.enter_context(client(address))
        channels = [caller.open("hello") for _ in range(16)]
        for channel in channels:
            assert isinstance(channel.receive(WAIT), Control)
        with pytest.raises(Overloaded, match="16777216 of 16777216 are in use"):
            said(address)
        for channel in channels:
            channel.close()
        deadline = time.monotonic() + WAIT
        while True:  # until it is given back
            try:
                assert said(address) == "hello for A!"
                return
            except Overloaded:
                assert time.monotonic() < deadline


def beyond_its_buffer() -> pa.RecordBatch:
    """A payload that says to be a gigabyte long, and is not."""
    offsets = np.array([0, 5], np.int64)
    payload = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(b"short")])
    batch = pa.RecordBatch.from_arrays([pa.array([bytes(32)], pa.binary(32)), payload], schema=EXCHANGE_SCHEMA)
    offsets[1] = 1 << 30  # the array has a view of it: made so at once, Arrow would have refused
    return batch


@pytest.mark.parametrize(
    "batch", [pa.record_batch({"strange": [1, 2, 3]}), beyond_its_buffer()], ids=["other", "short"]
)
def test_malformed_batch_ends_its_channel_only(relay: RelayProcess, task: Task, batch: pa.RecordBatch) -> None:
    address = task(relay).address
    stream = write_batch(relay, address, batch)
    assert isinstance(refusal_of(stream), InvalidArgument)
    assert said(address) == "hello for A!"


def test_call_of_a_refused_sender_goes_on_until_the_sender_ends_it(relay: RelayProcess, task: Task) -> None:
    stream = write_batch(relay, task(relay).address, pa.record_batch({"strange": [1, 2, 3]}))
    assert isinstance(error_on(stream), InvalidArgument)
    ended = threading.Event()

    def read_on() -> None:
        while stream.read() is not None:
            pass
        ended.set()

    threading.Thread(target=read_on, daemon=True).start()
    assert not ended.wait(0.5)  # what a call loses that ends under its sender is the refusal
    stream.half_close()
    assert ended.wait(WAIT)


def write_batch(relay: RelayProcess, address: str, batch: pa.RecordBatch) -> FlightStream:
    """Open a channel to the task at `address`, and write `batch` as it is."""
    route = pb.RelayRoute(to=bytes.fromhex(address.partition("/")[2]))
    stream = open_stream(relay, NO_CREDENTIALS, route, batch.schema)
    stream.write((batch, None))
    return stream


def open_stream(
    relay: RelayProcess, credentials: Credentials, route: pb.RelayRoute, schema: pa.Schema = EXCHANGE_SCHEMA
) -> FlightStream:
    command = pb.ExchangeCommand(protocol=messages.PROTOCOL, relay=route)
    connection = flight_connection(relay.address, credentials.tls)
    writer, reader = connection.do_exchange(
        fl.FlightDescriptor.for_command(command.SerializeToString()), flight_options(credentials, WAIT)
    )
    writer.begin(schema)
    return FlightStream(relay.address, reader, writer, reader.cancel)


def answer(relay: RelayProcess, credentials: Credentials, route: pb.RelayRoute) -> ShuffleError:
    """How a stream of that route is refused."""
    return refusal_of(open_stream(relay, credentials, route))


def refusal_of(stream: FlightStream) -> ShuffleError:
    error = error_on(stream)
    stream.half_close()
    return error


def error_on(stream: FlightStream) -> ShuffleError:
    while (message := stream.read()) is not None:
        control = pb.ExchangeControl.FromString(message[1] or b"")
        if control.HasField("error"):
            return messages.typed_error(control.error)
    raise AssertionError("it was not refused")
