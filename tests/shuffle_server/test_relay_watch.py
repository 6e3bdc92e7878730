"""Relayed shuffles whose streams all wait for a peer: somebody else has to see that it takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.errors import DeadlineExceeded, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions
from shuffle_server.store.directories import Claims
from shuffle_server.worker.incoming import put_messages
from shuffle_server.worker.push_handler import PushHandler, PutOptions
from shuffle_server.worker.relay.relay import Relay, RelaySink
from shuffle_server.worker.runtime import WorkerRuntime
from shuffle_transport import messages
from shuffle_transport.blocks import put_batch, table_rows
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, block
from tests.shuffle_server.test_streaming_shuffle import Sender

DEADLINE = 120.0
TIMEOUT = 10.0
WINDOW = 8 << 20


def test_housekeeping_fails_a_relay_whose_writer_is_silent_and_has_no_reader(tmp_path: Path) -> None:
    claims = Claims([tmp_path], DEADLINE)
    part = WorkerRuntime(ServerOptions(data_dir=str(tmp_path), relay_timeout=TIMEOUT), Instruments(), claims)
    sender = Sender()
    part.relay.shuffle(SPEC).open_writer(MapAttempt(0, 0), sender, time.monotonic() - TIMEOUT - 1)
    part.maintain()
    assert [type(error) for error in sender.errors] == [DeadlineExceeded]
    part.close()
    claims.close()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_push_that_failed_holds_no_memory_while_it_waits_for_its_peer(goes_on: bool) -> None:
    pool, relay = BufferPool(64 << 20), Relay(TIMEOUT)
    worker: Any = SimpleNamespace(pool=pool, instruments=Instruments(), stopping=False)
    waits, peer = threading.Event(), threading.Event()
    payload = bytes(1000)
    message = SimpleNamespace(data=put_batch(table_rows([block(0, payload)]), payload), app_metadata=pa.py_buffer(b""))

    def chunks() -> Iterator[Any]:
        yield message
        waits.set()
        assert peer.wait(DEADLINE)
        if goes_on:
            yield message

    replies: list[pb.PutReply] = []
    raised: list[ShuffleError] = []
    command = pb.PutCommand(shuffle=messages.key_of(SPEC.id), output=pb.MapAttempt(map=0), relay=True)
    handler = PushHandler(worker, PutOptions(WINDOW, DEADLINE), None)

    def run() -> None:
        try:
            sink = RelaySink(worker, command, relay.shuffle(SPEC), lambda: False)
            handler.stream(command, sink, put_messages(worker, chunks()), replies.append)
        except ShuffleError as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="push")
    thread.start()
    try:
        assert waits.wait(DEADLINE)
        assert pool.statistics().used > 0
        shuffle = relay.shuffle(SPEC)
        shuffle.watch(shuffle.clock() + TIMEOUT + 1)
        assert replies[-1].error.code == pb.DEADLINE
        assert pool.statistics().used == 0
    finally:
        peer.set()
        thread.join(DEADLINE)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert isinstance(raised[0], DeadlineExceeded) == goes_on  # else the stream ended, which is the peer's fault
