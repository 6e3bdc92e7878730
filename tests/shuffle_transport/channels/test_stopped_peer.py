"""Peers that are there and do nothing any more (SIGSTOP): every wait ends, at its deadline or by keep-alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shuffle_api.errors import DeadlineExceeded, ServerUnreachable, ShuffleError, StreamBroken
from shuffle_transport.channels import BlockChannel, ChannelOptions, Control, ExchangeClient, ExchangeEndpoint
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channels.helpers import (
    ANY,
    MIB,
    TIMEOUT,
    number_of,
    numbered,
    receive_batch,
)

ROOT = Path(__file__).parents[3]
NEVER = ChannelOptions(keepalive=0)


@pytest.fixture(autouse=True)
def _leaves_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.channels.session.LEAVE_WITHIN", 0.5)


@contextmanager
def peer(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A child process and the first line it says."""
    command = [sys.executable, str(Path(__file__).with_name("peer.py")), *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", "shuffle_api", "transport"])}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
        process.wait(TIMEOUT)
        process.stdout.close()


@contextmanager
def stopped_server(options: ChannelOptions) -> Iterator[BlockChannel]:
    """A channel to a server that stopped after it had echoed a block."""
    with peer("serve") as (port, process):
        with ExchangeClient(f"127.0.0.1:{port}", BufferPool(256 * MIB), timeout=TIMEOUT, options=options) as client:
            with client.open("echo") as channel:
                channel.send(*numbered(1, 8), TIMEOUT)
                receive_batch(channel).release()
                process.send_signal(signal.SIGSTOP)
                yield channel


def test_a_stopped_server_is_noticed_by_keep_alive() -> None:
    with stopped_server(ChannelOptions(keepalive=1.0)) as channel:
        with pytest.raises((StreamBroken, ServerUnreachable), match="'echo'"):
            channel.receive(10 * TIMEOUT)
        with pytest.raises((StreamBroken, ServerUnreachable), match="'echo'"):
            channel.send(*numbered(2, 8), TIMEOUT)


def test_without_keep_alive_a_wait_for_a_stopped_server_ends_at_its_deadline() -> None:
    with stopped_server(NEVER) as channel:
        with pytest.raises(DeadlineExceeded):
            channel.receive(0.3)
        with pytest.raises(DeadlineExceeded):
            channel.receive(0.1)


def test_a_consumer_that_reads_for_itself_leaves_a_stopped_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.channels.session.LEAD_FROM", 0.0)
    monkeypatch.setattr("shuffle_transport.channels.session.ANSWER_WITHIN", 0.2)
    with stopped_server(NEVER) as channel:
        with pytest.raises((DeadlineExceeded, StreamBroken)):
            channel.receive(0.3)
        with pytest.raises(StreamBroken, match="'echo'"):
            channel.receive(TIMEOUT)


def test_sending_to_a_stopped_server_ends_at_the_deadline() -> None:
    with stopped_server(NEVER) as channel:
        with pytest.raises(DeadlineExceeded):
            for number in range(100):
                channel.send(*numbered(number, 900_000), 0.3)


def test_a_write_that_a_stopped_server_does_not_take_ends_at_the_deadline() -> None:
    # Larger than all buffers on the way, and the first credit is not spent: it is the transport that waits.
    with peer("serve") as (port, process):
        with ExchangeClient(f"127.0.0.1:{port}", BufferPool(256 * MIB), timeout=TIMEOUT, options=NEVER) as client:
            with client.open("echo") as channel:
                channel.send_control(b"up?", TIMEOUT)
                assert channel.receive(TIMEOUT) == Control(b"up?")
                process.send_signal(signal.SIGSTOP)
                with pytest.raises(DeadlineExceeded, match="the transport took nothing"):
                    channel.send(*numbered(2, 64 * MIB), 0.5)
                with pytest.raises(ShuffleError, match="'echo'"):
                    channel.send(*numbered(3, 8), 0.5)


def test_a_server_that_only_slept_goes_on() -> None:
    with peer("serve") as (port, process):
        options = ChannelOptions(keepalive=0.3, resume=True, resume_timeout=TIMEOUT)
        with ExchangeClient(f"127.0.0.1:{port}", BufferPool(256 * MIB), timeout=TIMEOUT, options=options) as client:
            with client.open("echo") as channel:
                process.send_signal(signal.SIGSTOP)
                sent = 0
                with pytest.raises(DeadlineExceeded):
                    while True:
                        channel.send(*numbered(sent, 100_000), 2.0)
                        sent += 1
                process.send_signal(signal.SIGCONT)
                for number in range(sent):
                    item = receive_batch(channel)
                    assert number_of(item) == number
                    item.release()
                channel.half_close(TIMEOUT)
                assert channel.receive(TIMEOUT) is None


@contextmanager
def serving_a_child(keepalive: float) -> Iterator[tuple[subprocess.Popen[str], list[ShuffleError], threading.Event]]:
    """An endpoint that sends to a child as much as it takes; what the handler ended with, and when."""
    errors: list[ShuffleError] = []
    began, ended = threading.Event(), threading.Event()

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        receive_batch(channel).release()
        began.set()
        try:
            if keepalive:
                channel.receive(10 * TIMEOUT)
            while True:
                channel.send(*numbered(0, 32 * MIB), 1.0)
        except ShuffleError as error:
            errors.append(error)
        finally:
            ended.set()

    with ExchangeEndpoint(ANY, handler, BufferPool(256 * MIB), timeout=TIMEOUT) as endpoint:
        with peer("stream", f"127.0.0.1:{endpoint.port}", str(keepalive)) as (line, process):
            assert line == "up"
            assert began.wait(TIMEOUT)
            yield process, errors, ended


def test_a_stopped_client_is_noticed_by_keep_alive() -> None:
    with serving_a_child(1.0) as (process, errors, ended):
        process.send_signal(signal.SIGSTOP)
        assert ended.wait(TIMEOUT)
    assert isinstance(errors[0], StreamBroken)
    assert "silent for 3 s" in str(errors[0])


def test_a_write_that_a_stopped_client_does_not_take_ends_at_the_deadline() -> None:
    with serving_a_child(0) as (process, errors, ended):
        process.send_signal(signal.SIGSTOP)
        assert ended.wait(TIMEOUT)
    assert isinstance(errors[0], DeadlineExceeded)


def test_an_idle_channel_stays_open_by_keep_alive() -> None:
    with peer("serve") as (port, _):
        options = ChannelOptions(keepalive=0.5)
        with ExchangeClient(f"127.0.0.1:{port}", BufferPool(256 * MIB), timeout=TIMEOUT, options=options) as client:
            with client.open("idle") as channel:
                time.sleep(4.0)  # more than twice what a silent peer is given; gRPC refuses pings that come too often
                channel.send(*numbered(5, 8), TIMEOUT)
                assert number_of(receive_batch(channel)) == 5
