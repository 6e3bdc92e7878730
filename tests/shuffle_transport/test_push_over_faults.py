"""A whole push over channels that break: gate, granter, resume, codecs and checksums at work together.

A small protocol of its own, with the rules of docs/protocol.md: a data message carries one block and its table row,
the receiver answers with `granted` and `blocks_held`, the last message states totals. The sender reconnects until
the receiver confirms the statement.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shuffle_api.errors import BlockCorrupt, DeadlineExceeded, InvalidArgument, ShuffleError, StreamBroken
from shuffle_transport.checksum import BLOCK_ROW, crc32c, digest
from shuffle_transport.codecs import get_codec
from shuffle_transport.gate import CreditGate
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.resume import HeldBlocks, SentBlocks
from tests.shuffle_transport.channel import Channel, Message
from tests.shuffle_transport.faults import Drop, Duplicate, Fault, FaultyChannel, Flip, Reset, Truncate
from tests.shuffle_transport.loopback import loopback

LONG = 60.0  # a deadline that only a failing test meets
MIB = 1 << 20
ROW, END = b"R", b"E"
NUMBERED_ROW = struct.Struct("<q32s")
STATEMENT = struct.Struct("<qI")
REPLY = struct.Struct("<qq?")


@dataclass(frozen=True)
class Stored:
    """A block as it is sent."""

    row: bytes
    payload: bytes


@dataclass
class Worker:
    """The receiving end's memory of one attempt, over all streams."""

    pool: BufferPool
    place: HeldBlocks = field(default_factory=HeldBlocks)
    blocks: list[Stored] = field(default_factory=list)
    complete: bool = False

    def serve(self, channel: Channel, first_block: int) -> None:
        """Take in one stream; cancels it on the first thing that is wrong."""
        try:
            self.place = self.place.open(first_block)
            with Granter(self.pool, LONG, maximum=2 * MIB) as granter:
                while not self.complete:
                    message = channel.receive(LONG)
                    if message is None:
                        raise StreamBroken("the stream ended without its statement")
                    self.take(message, channel, granter)
                channel.half_close()
        except ShuffleError as error:
            channel.cancel(str(error))

    def take(self, message: Message, channel: Channel, granter: Granter) -> None:
        granter.received(message.size)
        if message.control[:1] == ROW:
            self.keep(message)
        elif message.control[:1] == END and len(message.control) == 1 + STATEMENT.size:
            if STATEMENT.unpack(message.control[1:]) != (len(self.blocks), digest_of(self.blocks)):
                raise InvalidArgument("the statement is not what is held")
            self.complete = True
        else:
            raise InvalidArgument("not a message")
        granter.consumed(message.size)
        channel.send(Message(REPLY.pack(granter.granted, self.place.held, self.complete)), LONG)

    def keep(self, message: Message) -> None:
        number, row = NUMBERED_ROW.unpack(message.control[1:])
        _, checksum, length, _, _ = np.frombuffer(row, BLOCK_ROW)[0].tolist()
        if number != self.place.next or message.size != length or crc32c(message.payload) != checksum:
            raise BlockCorrupt(f"block {number} is not what its row says, or not block {self.place.next}")
        skip, self.place = self.place.receive(1)
        if not skip:
            self.blocks.append(Stored(row, bytes(message.payload)))


def digest_of(blocks: Sequence[Stored]) -> int:
    return digest(np.frombuffer(b"".join(block.row for block in blocks), BLOCK_ROW))


class Sender:
    """Pushes blocks, reconnecting with resume until the worker confirms the statement."""

    def __init__(self, blocks: list[Stored]) -> None:
        self.blocks, self.place = blocks, SentBlocks()
        self.heard, self.confirmed = 0, False

    def run(self, channel: Channel, timeout: float) -> None:
        """One stream: to its end, or until it breaks, or credit does not come within `timeout` seconds."""
        gate = CreditGate("the worker")
        with ThreadPoolExecutor(1) as threads:
            replies = threads.submit(self.read_replies, channel, gate)
            try:
                self.send_all(channel, gate, timeout)
            except (StreamBroken, DeadlineExceeded):
                channel.cancel("the sender gave up")
            finally:
                replies.result(2 * LONG)

    def send_all(self, channel: Channel, gate: CreditGate, timeout: float) -> None:
        for number in range(self.place.next, len(self.blocks)):
            block = self.blocks[number]
            gate.acquire(len(block.payload), timeout)
            self.place = self.place.send()
            channel.send(Message(ROW + NUMBERED_ROW.pack(number, block.row), block.payload), LONG)
        channel.send(Message(END + STATEMENT.pack(len(self.blocks), digest_of(self.blocks))), LONG)
        channel.half_close()

    def read_replies(self, channel: Channel, gate: CreditGate) -> None:
        try:
            while not self.confirmed:
                reply = channel.receive(LONG)
                if reply is None:
                    break
                granted, self.heard, self.confirmed = REPLY.unpack(reply.control)
                gate.granted(granted)
        except StreamBroken as error:
            gate.fail(error)


def stored(raw: bytes, spec: str) -> Stored:
    codec = get_codec(spec)
    payload = codec.compress(raw)
    data = raw if payload is None else bytes(payload)
    row = np.array([(0, crc32c(data), len(data), len(raw), 1)], BLOCK_ROW)
    return Stored(row.tobytes(), data)


FAULTS: st.SearchStrategy[Fault] = st.one_of(
    st.just(Drop()), st.just(Duplicate()), st.builds(Truncate, st.integers(0, 50)), st.builds(Flip), st.just(Reset())
)
SCRIPTS = st.lists(st.dictionaries(st.integers(0, 12), FAULTS, max_size=3), max_size=4)
BLOCKS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 200_000)),
    max_size=10,
)


BIG = [(b"x", MIB), (b"y", 3 * MIB), (b"z", MIB), (b"end", 5)]


@settings(max_examples=60, deadline=None)
@example(pieces=BIG, scripts=[{0: Drop()}, {1: Reset()}, {2: Duplicate()}, {2: Flip(MIB)}], spec="none")
@example(pieces=BIG * 3, scripts=[], spec="none")
@example(pieces=BIG * 3, scripts=[], spec="lz4")
@given(pieces=BLOCKS, scripts=SCRIPTS, spec=st.sampled_from(["none", "lz4", "zstd"]))
def test_a_push_comes_to_its_end_whatever_breaks_on_the_way(
    pieces: list[tuple[bytes, int]], scripts: list[dict[int, Fault]], spec: str
) -> None:
    raw = [piece * times for piece, times in pieces]
    worker = Worker(BufferPool(4 * MIB))
    sender = Sender([stored(data, spec) for data in raw])
    with ThreadPoolExecutor(1) as threads:
        for script in [*scripts, {}]:  # the last stream is sound
            if sender.confirmed:
                break
            near, far = loopback(capacity=4)
            sender.place = sender.place.acknowledge(sender.heard).reconnect()
            serving = threads.submit(worker.serve, far, sender.place.next)
            # A lost message may be one that credit waits for.
            sender.run(FaultyChannel(near, script), 0.1 if script else LONG)
            serving.result(2 * LONG)
    assert sender.confirmed
    assert worker.blocks == sender.blocks
    rows = [np.frombuffer(block.row, BLOCK_ROW)[0] for block in worker.blocks]
    codec = get_codec(spec)
    decoded = [codec.decompress(b.payload, int(row["raw_length"])) for b, row in zip(worker.blocks, rows, strict=True)]
    assert [bytes(data) for data in decoded] == raw
    assert worker.pool.statistics().used == 0
