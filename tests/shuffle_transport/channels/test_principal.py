"""Whom a channel's client acts for: what its token says, and nobody else resumes it."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from shuffle_api.errors import Unauthenticated
from shuffle_transport.channels import BlockChannel, ChannelOptions, Control, ExchangeClient, ExchangeEndpoint
from shuffle_transport.channels import client as clients
from shuffle_transport.channels.options import DEFAULT_OPTIONS
from shuffle_transport.flight_auth import MIDDLEWARE, TokenMiddlewareFactory
from shuffle_transport.pool import BufferPool
from shuffle_transport.security import ANYBODY, NO_CREDENTIALS, Credentials, Keyring, Principal
from tests.shuffle_transport.channels.helpers import ANY, MIB, TIMEOUT, connected, echo

KEYS = Keyring(secrets=(bytes(range(32)),))
RESUME = ChannelOptions(resume=True, resume_timeout=TIMEOUT)


class Guarded:
    """An endpoint that wants tokens; `seen` are the principals of the channels it served."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.seen: queue.SimpleQueue[Principal] = queue.SimpleQueue()
        auth_middleware = TokenMiddlewareFactory(KEYS.admit, lambda error: None)
        self._endpoint = stack.enter_context(
            ExchangeEndpoint(
                ANY,
                self._serve,
                BufferPool(64 * MIB),
                timeout=TIMEOUT,
                options=RESUME,
                middleware={MIDDLEWARE: auth_middleware},
            )
        )

    def client(self, credentials: Credentials, options: ChannelOptions = DEFAULT_OPTIONS) -> ExchangeClient:
        address = f"127.0.0.1:{self._endpoint.port}"
        return self._stack.enter_context(
            ExchangeClient(address, BufferPool(64 * MIB), timeout=TIMEOUT, options=options, credentials=credentials)
        )

    def _serve(self, name: str, metadata: bytes, channel: BlockChannel) -> None:
        self.seen.put(channel.principal)
        echo(name, metadata, channel)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with ExitStack() as stack:
        yield Guarded(stack)


def echoed(channel: BlockChannel) -> bytes:
    channel.send_control(b"say it again", TIMEOUT)
    item = channel.receive(TIMEOUT)
    assert isinstance(item, Control)
    return item.message


@pytest.mark.parametrize(
    ("credentials", "principal"), [(KEYS.for_app("A"), Principal("A")), (KEYS.for_cluster(), ANYBODY)]
)
def test_handler_knows_whom_the_channel_is_for(
    guarded: Guarded, credentials: Credentials, principal: Principal
) -> None:
    with guarded.client(credentials).open("numbers") as channel:
        assert echoed(channel) == b"say it again"
        assert guarded.seen.get(timeout=TIMEOUT) == principal
        assert channel.principal == ANYBODY  # who serves it is known by its address and certificate


def test_endpoint_that_wants_no_tokens_serves_anybody() -> None:
    seen: queue.SimpleQueue[Principal] = queue.SimpleQueue()

    def serve(name: str, metadata: bytes, channel: BlockChannel) -> None:
        seen.put(channel.principal)

    with connected(serve) as (client, _), client.open("numbers") as channel:
        assert channel.receive(TIMEOUT) is None
    assert seen.get(timeout=TIMEOUT) == ANYBODY


@pytest.mark.parametrize("credentials", [NO_CREDENTIALS, Credentials("A", "x" * 44), Credentials("A")])
def test_no_handler_hears_of_a_client_without_the_token(guarded: Guarded, credentials: Credentials) -> None:
    with pytest.raises(Unauthenticated), guarded.client(credentials).open("numbers") as channel:
        channel.receive(TIMEOUT)
    assert guarded.seen.empty()


def test_channel_is_resumed_by_whom_it_is_for_and_nobody_else(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a session is a secret of its client's; it is given away here."""
    monkeypatch.setattr(clients, "token_bytes", lambda size: b"a known name....")
    with guarded.client(KEYS.for_app("A"), RESUME).open("numbers") as channel:
        assert echoed(channel) == b"say it again"
        with guarded.client(KEYS.for_app("B"), RESUME).open("numbers") as other:
            assert echoed(other) == b"say it again"
        assert echoed(channel) == b"say it again"
        assert [guarded.seen.get(timeout=TIMEOUT) for _ in range(2)] == [Principal("A"), Principal("B")]
