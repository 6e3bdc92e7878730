"""Push streams whose Arrow IPC messages are damaged or lie: flatbuffers, lengths, bodies, compression, dictionaries."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import ClassVar

import pyarrow as pa

from shuffle_transport.blocks import put_batch
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.malformed.attack import PARTITIONS, FlightAttack, Untyped
from tests.shuffle_server.malformed.frames import (
    Encapsulated,
    batch_messages,
    command,
    flight_data,
    with_buffers,
    with_nodes,
    with_rows,
)
from tests.shuffle_server.malformed.mutate import damaged, number
from tests.shuffle_server.malformed.put_attack import BYTES, END, GOOD, ROWS, SCHEMA

COMPRESSED = [batch_messages(put_batch(ROWS, BYTES), codec)[0] for codec in ("lz4", "zstd")]
VARIANTS = [GOOD, *COMPRESSED]
DICTIONARY = batch_messages(pa.record_batch({"d": pa.array(["p", "q"] * 50).dictionary_encode()}))
INT64 = (-(2**63), 2**63 - 1)
N = len(ROWS)

Damage = Callable[[Random], list[bytes]]


class IpcAttack(FlightAttack):
    """Each seed is one stream: its opening, messages, a commit."""

    name: ClassVar[str] = "ipc"

    def send(self, seed: int) -> int:
        rng = Random(f"{self.name} {seed}")
        valid = pb.PutCommand(
            protocol=1,
            shuffle=self.victims.next(),
            output=pb.MapAttempt(map=seed),
            partitions=PARTITIONS,
            codec="none",
        ).SerializeToString()
        kind = rng.choice(KINDS)
        schema = damaged(SCHEMA.header, rng) if kind is damaged_schema else SCHEMA.header
        sent = [flight_data(schema, descriptor=command(valid)), *kind(rng), flight_data(metadata=END)]
        try:
            self.put(sent)
        except Untyped as error:
            raise Untyped(f"{kind.__name__}: {error}") from None
        return len(sent)


def damaged_schema(rng: Random) -> list[bytes]:
    return [GOOD.data()]


def damaged_header(rng: Random) -> list[bytes]:
    message = rng.choice(VARIANTS)
    return [flight_data(damaged(message.header, rng), message.body)]


def damaged_body(rng: Random) -> list[bytes]:
    message = rng.choice(VARIANTS)
    return [flight_data(message.header, damaged(message.body, rng))]


def damaged_both(rng: Random) -> list[bytes]:
    return [damaged(rng.choice(VARIANTS).data(), rng) for _ in range(2)]


def lying_nodes(rng: Random) -> list[bytes]:
    """Columns that say they have other lengths or numbers of nulls than their buffers can hold."""
    columns = rng.sample(range(5), rng.choice((1, 5)))
    nodes = {c: (rng.choice((N, number(rng, *INT64))), rng.choice((-1, 0, 1, number(rng, *INT64)))) for c in columns}
    header = with_nodes(GOOD.header, N, nodes)
    return [flight_data(with_rows(header, N, number(rng, *INT64)) if rng.random() < 0.5 else header, GOOD.body)]


def lying_validity(rng: Random) -> list[bytes]:
    """Far more rows than the bitmaps of nulls cover, and numbers of nulls that are yet to be counted."""
    return [uncounted_nulls(rng.choice((2**20, 2**34, 2**40, 2**62)), rng.choice((-1, 1)))]


def uncounted_nulls(rows: int, nulls: int = -1) -> bytes:
    """A batch that ended the process which counted its nulls before it had looked at the sizes of its buffers."""
    header = with_buffers(GOOD.header, N, dict.fromkeys((0, 2, 4, 6, 8), (0, 64)))
    header = with_nodes(header, N, dict.fromkeys(range(5), (rows, nulls)))
    return flight_data(with_rows(header, N, rows), GOOD.body)


def lying_buffers(rng: Random) -> list[bytes]:
    buffers = {rng.randrange(11): (number(rng, *INT64), number(rng, *INT64)) for _ in range(rng.choice((1, 2)))}
    return [flight_data(with_buffers(GOOD.header, N, buffers), GOOD.body)]


def short_body(rng: Random) -> list[bytes]:
    message = rng.choice(VARIANTS)
    return [flight_data(message.header, message.body[: rng.randrange(len(message.body))])]


def lying_compression(rng: Random) -> list[bytes]:
    """A compressed body whose buffers say they expand to another size (the first 8 bytes of each)."""
    message = rng.choice(COMPRESSED)
    body = bytearray(message.body)
    at = rng.randrange(0, len(body) - 8, 8)
    body[at : at + 8] = struct.pack("<q", number(rng, *INT64))
    return [flight_data(message.header, bytes(body))]


def dictionaries(rng: Random) -> list[bytes]:
    return [rng.choice(DICTIONARY).data() for _ in range(rng.choice((1, 4)))]


def other_messages(rng: Random) -> list[bytes]:
    """IPC messages that have no place in a stream of batches."""
    tensor = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(ROWS["records"].copy()), tensor)
    message = pa.ipc.read_message(tensor.getvalue())
    other = Encapsulated(bytes(message.metadata), bytes(message.body))
    return [rng.choice((other, SCHEMA, GOOD)).data() for _ in range(3)]


KINDS: tuple[Damage, ...] = (
    damaged_schema, damaged_header, damaged_header, damaged_body, damaged_body, damaged_both, lying_nodes,
    lying_validity, lying_buffers, short_body, lying_compression, dictionaries, other_messages,
)  # fmt: skip
