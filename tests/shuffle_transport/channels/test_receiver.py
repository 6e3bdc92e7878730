"""The receiving half of a channel: items that come twice count once, and batches taken are not kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shuffle_api.errors import InvalidArgument, StreamBroken
from shuffle_api.values import Totals
from shuffle_transport.channels.credit_account import CreditAccount
from shuffle_transport.channels.receiver import ChannelReceiver, ReceivedBatch
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA, INLINE_BYTES, batch_meta, parse_record_batch, record_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.codecs import get_codec
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool


def receiver(*, resume: bool) -> ChannelReceiver:
    account = CreditAccount("here", Granter(BufferPool(1 << 30), 1, announced=True))

    def give_back(n: int) -> None:
        account.consumed(n)

    return ChannelReceiver("here", account, get_codec("none"), give_back, resume=resume)


@pytest.fixture
def resuming() -> Iterator[ChannelReceiver]:
    box = receiver(resume=True)
    yield box
    box.close()


@pytest.fixture
def plain() -> Iterator[ChannelReceiver]:
    box = receiver(resume=False)
    yield box
    box.close()


def test_items_that_come_again_after_the_end_are_not_items_after_the_end(resuming: ChannelReceiver) -> None:
    resuming.put_control(b"a")
    resuming.put_end(Totals())
    resuming.begin(0)  # a new stream, whose sender does not know yet that all of it arrived
    resuming.put_control(b"a")
    resuming.put_end(Totals())
    assert resuming.held == 2
    assert resuming.items == 1


def test_a_new_item_after_the_end_is_refused(resuming: ChannelReceiver, plain: ChannelReceiver) -> None:
    for box in (resuming, plain):
        box.put_end(Totals())
        with pytest.raises(InvalidArgument, match="after the end"):
            box.put_control(b"late")


def test_a_batch_that_was_taken_and_released_is_not_kept(plain: ChannelReceiver) -> None:
    payload = np.zeros(INLINE_BYTES + 1, np.uint8)
    rows = np.zeros(1, BLOCK_ROW)
    rows["length"] = rows["raw_length"] = len(payload)
    message = record_batch(rows["length"], rows.tobytes(), pa.py_buffer(payload)).serialize()
    message = np.frombuffer(message, np.uint8).copy()  # as off the wire
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), EXCHANGE_SCHEMA)
    plain.put_batch(*parse_record_batch(batch))
    found = plain.take(0)
    assert found is not None
    item, _ = found
    assert isinstance(item, ReceivedBatch)
    item.release()
    seen = weakref.ref(message)
    del batch, message, item, found
    gc.collect()
    assert seen() is None
    assert plain.running_totals.totals.blocks == 1


def put_malformed(box: ChannelReceiver) -> None:
    rows = np.zeros(2, BLOCK_ROW)
    rows["length"], rows["raw_length"] = [-1, 4], 4
    box.put_batch(memoryview(b"abc"), batch_meta(rows.tobytes(), 3))


def test_who_looks_at_a_malformed_table_is_told(plain: ChannelReceiver) -> None:
    put_malformed(plain)
    found = plain.take(0)
    assert found is not None
    item, _ = found
    assert isinstance(item, ReceivedBatch)
    for look in (lambda: item.rows, lambda: list(item.payloads()), lambda: list(item.raw())):
        with pytest.raises(InvalidArgument, match="negative"):
            look()


def test_a_malformed_table_that_nobody_looks_at_is_found_at_the_end_whatever_the_totals_say(
    plain: ChannelReceiver,
) -> None:
    put_malformed(plain)
    with pytest.raises(InvalidArgument, match="negative"):
        plain.put_end(plain.running_totals.totals)
    assert not plain.ended


def test_an_end_with_other_totals_than_those_of_what_came_is_a_broken_stream(plain: ChannelReceiver) -> None:
    rows = np.zeros(1, BLOCK_ROW)
    rows["length"] = rows["raw_length"] = 3
    plain.put_batch(memoryview(b"abc"), batch_meta(rows.tobytes(), 3))
    with pytest.raises(StreamBroken, match="the sender says"):
        plain.put_end(replace(plain.running_totals.totals, blocks=2))
    assert not plain.ended


def test_items_that_nobody_took_before_the_close_are_not_an_end(plain: ChannelReceiver) -> None:
    plain.put_control(b"a")
    plain.put_control(b"b")
    plain.put_end(Totals())
    assert plain.take(0) is not None
    plain.close()  # by another thread than the consumer's
    with pytest.raises(StreamBroken, match="closed"):
        plain.take(0)


def test_the_end_that_was_next_is_the_end_after_the_close_too(plain: ChannelReceiver) -> None:
    plain.put_control(b"a")
    plain.put_end(Totals())
    assert plain.take(0) is not None
    plain.close()
    assert plain.take(0) == (None, None)
