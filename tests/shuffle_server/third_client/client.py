"""A client written from docs/protocol.md alone: gRPC, bytes, and pyarrow for the Arrow messages. For tests."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import lz4.block

from tests.shuffle_server.third_client.blocks import Block, Incoming, Sums, control, crc32c, put_batch, put_schema
from tests.shuffle_server.third_client.protobuf import decode, encode, last

RAW: Any = None
INITIAL_CREDIT = 1 << 20
TIMEOUT = 120.0
MOST = 256 << 20  # raw bytes of a block that this reader is ready to hold
LIMITS = [("grpc.max_receive_message_length", 64 << 20)]
FLIGHT = "/arrow.flight.protocol.FlightService/"
CONTROL = "/flight_shuffle.v1.ShuffleControl/"


class Refused(Exception):
    """The `Error` of a refusal: its code and its message."""

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        self.code, self.message = last(fields, 1), last(fields, 2, b"").decode()
        super().__init__(f"{self.code}: {self.message}")


class Control:
    """The calls of the control endpoint that a job needs."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, LIMITS)

    def call(self, method: str, request: Mapping[int, Any]) -> dict[int, list[Any]]:
        try:
            return decode(self._channel.unary_unary(CONTROL + method, RAW, RAW)(encode(request), timeout=TIMEOUT))
        except grpc.RpcError as error:
            raise _refusal(error, "flight-shuffle-error-bin") from None

    def begin(self, app: str, number: int, partitions: int, maps: int, codec: str) -> str:
        """Greet, register the application and a shuffle of `records`; the address of a worker."""
        assert last(self.call("Hello", {1: 1, 2: "third-client"}), 1) == 1
        self.call("RegisterApp", {1: app, 2: "one", 3: "third client"})
        shuffle = {1: app, 2: number}
        reply = self.call("RegisterShuffle", {1: shuffle, 2: partitions, 3: maps, 4: codec, 5: "records"})
        worker = decode(last(reply, 2))
        return f"{last(worker, 2).decode()}:{last(worker, 3)}"

    def locate(self, app: str, number: int) -> list[tuple[int, int, Sums]]:
        """(map, attempt, totals) of all committed map outputs, page by page."""
        found, first, more = [], 0, 1
        while more:
            reply = self.call("Locate", {1: {1: app, 2: number}, 2: first, 4: 2})
            for output in map(decode, reply.get(1, [])):
                attempt = decode(last(output, 1, b""))
                found.append((last(attempt, 1), last(attempt, 2), Sums.of(last(output, 3, b""))))
            first, more = last(reply, 2), last(reply, 3)
        return found

    def close(self) -> None:
        self._channel.close()


class Data:
    """Push and pull at one worker."""

    def __init__(self, address: str, app: str, number: int) -> None:
        self._channel = grpc.insecure_channel(address, LIMITS)
        self._shuffle = {1: app, 2: number}

    def push(
        self, attempt: tuple[int, int], partitions: int, codec: str, batches: Sequence[Sequence[Block]],
        *, before: Sequence[Block] = (), end: bool = True,
    ) -> Pushed:  # fmt: skip
        """Send `batches`, after the blocks `before` that the worker holds already, and commit them; or break off."""
        output = {1: attempt[0], 2: attempt[1]}
        command = {1: 1, 2: self._shuffle, 3: output, 4: partitions, 5: codec, 6: len(before)}
        sent: queue.Queue[bytes | None] = queue.Queue()
        call: Any = self._channel.stream_stream(FLIGHT + "DoPut", RAW, RAW)
        replies = call(iter(sent.get, None), timeout=TIMEOUT)
        pushed = Pushed(replies)
        sent.put(put_schema(encode(command)))
        try:
            for batch in batches:
                pushed.wait_for(sum(len(block.payload) for block in batch))
                sent.put(put_batch(batch))
            if end:
                totals = Sums().plus([*before, *(block for batch in batches for block in batch)])
                sent.put(control(encode({2: totals.message(), 3: 1})))
        finally:
            sent.put(None)
        pushed.finish()
        return pushed

    def pull(self, ranges: Sequence[tuple[int, int, int, int]]) -> Iterator[Block]:
        """The blocks of (map, attempt, first partition, end partition), verified, decompressed."""
        fields = [dict(enumerate(wanted, start=1)) for wanted in ranges]
        ticket = encode({1: encode({1: self._shuffle, 5: fields})})
        call: Any = self._channel.unary_stream(FLIGHT + "DoGet", RAW, RAW)
        stream = call(ticket, timeout=TIMEOUT)
        incoming, sums, at = Incoming(), Sums(), 0
        try:
            for message in stream:
                blocks, said = incoming.read(message)
                sums = sums.plus(blocks)
                for block in blocks:
                    assert crc32c(block.payload) == block.checksum
                    while not _wanted(block, ranges[at]):
                        at += 1  # IndexError: out of turn, or not asked for
                    yield _decompressed(block, incoming.codec)
                control_fields = decode(said)
                if 2 in control_fields:
                    raise Refused(last(control_fields, 2))
                if 1 in control_fields:
                    assert Sums.of(last(control_fields, 1)) == sums
                    return
        except grpc.RpcError as error:
            raise _refusal(error, "grpc-status-details-bin") from None
        finally:
            stream.cancel()
        raise ConnectionError("the pull ended without its end")

    def close(self) -> None:
        self._channel.close()


class Pushed:
    """The sender's credit, and the fields of the worker's replies."""

    def __init__(self, replies: Iterator[bytes]) -> None:
        self._replies = replies
        self._granted = self._window = INITIAL_CREDIT
        self._sent = 0
        self.waits = self.held = 0
        self.committed: dict[int, list[Any]] | None = None

    def wait_for(self, size: int) -> None:
        """Return when a batch of this size may go out."""
        while size > self._granted - self._sent and not (size > self._window <= self._granted - self._sent):
            self.waits += 1
            self._read(next(self._replies))
        self._sent += size

    def finish(self) -> None:
        """Read the replies to their end."""
        for reply in self._replies:
            self._read(reply)

    def _read(self, reply: bytes) -> None:
        fields = decode(last(decode(reply), 1, b""))
        if 4 in fields:
            raise Refused(last(fields, 4))
        self._granted = max(self._granted, last(fields, 1))
        self._window = max(self._window, self._granted - self._sent)
        self.held = last(fields, 2)
        if 3 in fields:
            self.committed = decode(last(fields, 3))


def _wanted(block: Block, wanted: tuple[int, int, int, int]) -> bool:
    map_id, attempt, first, end = wanted
    return (block.map, block.attempt) == (map_id, attempt) and first <= block.partition < end


def _decompressed(block: Block, codec: str) -> Block:
    length = len(block.payload)
    if length == block.raw_length:
        return block
    assert codec == "lz4", codec
    assert length < block.raw_length <= min(MOST, 255 * length)
    raw = lz4.block.decompress(block.payload, uncompressed_size=block.raw_length)
    assert len(raw) == block.raw_length
    return Block(block.partition, raw, len(raw), block.records, crc32c(raw), block.map, block.attempt)


def _refusal(error: Any, key: str) -> Exception:
    for name, value in error.trailing_metadata() or ():
        if name == key:
            return Refused(value)
    return ConnectionError(f"{error.code().name}: {error.details()}")
