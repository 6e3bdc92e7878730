"""Push streams that are well-formed Arrow Flight and break the protocol: what a client with a bug would send."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import ClassVar

import numpy as np
import pyarrow as pa

from shuffle_transport.blocks import PUT_SCHEMA, put_batch, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.messages import totals_message
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block
from tests.shuffle_server.malformed.attack import PARTITIONS, FlightAttack, Target, Untyped
from tests.shuffle_server.malformed.frames import batch_messages, command, flight_data, path, schema_message
from tests.shuffle_server.malformed.mutate import NUMBERS, changed, damaged, number, text

SCHEMA = schema_message(PUT_SCHEMA)
BLOCKS = [block(0, b"a" * 50), block(1, b"bc" * 70, 2), block(7, b"d" * 900)]
ROWS = table_rows(BLOCKS)
BYTES = b"".join(bytes(memoryview(b.payload)) for b in BLOCKS)
GOOD = batch_messages(put_batch(ROWS, BYTES))[0]
TOTALS = totals_message(totals_of(ROWS))
END = pb.PutControl(end=TOTALS, commit=True).SerializeToString()
INT64 = (-(2**63), 2**63 - 1)

Script = Callable[["PutAttack", Random, pb.PutCommand], list[bytes]]


class PutAttack(FlightAttack):
    """Each seed is one stream, or one stream sent again."""

    name: ClassVar[str] = "put"

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._seed = 0

    def send(self, seed: int) -> int:
        rng = Random(f"{self.name} {seed}")
        valid = pb.PutCommand(
            protocol=1,
            shuffle=self.victims.next(),
            output=pb.MapAttempt(map=seed, attempt=rng.randrange(3)),
            partitions=PARTITIONS,
            codec="none",
        )
        script = rng.choice(SCRIPTS)
        sent = script(self, rng, valid)
        try:
            self.put(sent)
        except Untyped as error:
            raise Untyped(f"{script.__name__}: {error}") from None
        return len(sent)

    def send_twice(self, sent: list[bytes]) -> None:
        """A whole stream and its repetition: the answers to both are the same."""
        first, second = self.put(sent), self.put(sent)
        if not (first and second) or first[-1].committed != second[-1].committed or not first[-1].HasField("committed"):
            raise Untyped(f"replayed: {first} then {second}")


def opening(valid: pb.PutCommand) -> bytes:
    return flight_data(SCHEMA.header, descriptor=command(valid.SerializeToString()))


def random_command(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    return [flight_data(SCHEMA.header, descriptor=command(rng.randbytes(rng.randrange(60)))), GOOD.data(END)]


def damaged_command(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    return [flight_data(SCHEMA.header, descriptor=command(damaged(valid.SerializeToString(), rng))), GOOD.data(END)]


def wrong_command(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    how = rng.randrange(7)
    if how == 0:
        valid.protocol = rng.choice((0, 2, 2**32 - 1))
    elif how == 1:
        valid.partitions = number(rng, -(2**31), 2**31 - 1)
    elif how == 2:
        valid.codec = text(rng)
    elif how == 3:
        valid.output.map, valid.output.attempt = number(rng, *INT64), number(rng, *INT64)
    elif how == 4:
        valid.shuffle.app = text(rng)
    elif how == 5:
        valid.first_block = rng.choice(NUMBERS[1:])
    else:
        valid = changed(valid, rng)
    return [opening(valid), GOOD.data(), flight_data(metadata=END)]


def strange_descriptor(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    descriptor = rng.choice((b"", path(b"a", b"b"), path(), command(b"", 0), command(b"x", 77), rng.randbytes(9)))
    return [flight_data(SCHEMA.header, descriptor=descriptor), GOOD.data(END)]


def wrong_columns(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    names, words = pa.array(["x", "y"]), pa.array(["p", "q", "p"]).dictionary_encode()
    batch = rng.choice(
        (
            pa.record_batch({"x": [1, 2]}),
            pa.record_batch({"x": names, "y": pa.array([[1], None])}),
            pa.record_batch({"d": words}),
            put_batch(ROWS, BYTES).select(["payload", "partition"]),
            put_batch(ROWS, BYTES).rename_columns(["partition", "crc32c", "raw_length", "records", "Payload"]),
            pa.record_batch({}),
        )
    )
    head = flight_data(schema_message(batch.schema).header, descriptor=command(valid.SerializeToString()))
    return [head, *(message.data() for message in batch_messages(batch)), flight_data(metadata=END)]


def nulls(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    batch = put_batch(ROWS, BYTES)
    columns = list(batch.columns)
    which = rng.randrange(len(columns))
    columns[which] = pa.array([*columns[which].to_pylist()[:2], None], columns[which].type)
    schema = pa.schema([pa.field(f.name, f.type) for f in PUT_SCHEMA])
    message = batch_messages(pa.record_batch(columns, schema=schema))[0]
    return [opening(valid), message.data(END)]


def forged_offsets(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    offsets = [0, 50, 190, 1090]
    offsets[rng.randrange(4)] = number(rng, *INT64)
    forged = np.array(offsets, "<i8").tobytes()
    held = np.array([0, 50, 190, 1090], "<i8").tobytes()
    message = dataclasses.replace(GOOD, body=GOOD.body.replace(held, forged))
    return [opening(valid), message.data(END)]


def lying_table(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    rows = ROWS.copy()
    at, name = rng.randrange(3), rng.choice(("partition", "raw_length", "records", "crc32c"))
    low, high = {"partition": (-(2**31), 2**31 - 1), "crc32c": (0, 2**32 - 1)}.get(name, INT64)
    rows[name][at] = number(rng, low, high)
    end = pb.PutControl(end=TOTALS, commit=rng.random() < 0.7).SerializeToString()
    return [opening(valid), batch_messages(put_batch(rows, BYTES))[0].data(), flight_data(metadata=end)]


def empty_blocks(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    rows = np.zeros(rng.choice((1, 5000)), ROWS.dtype)
    return [opening(valid), *[batch_messages(put_batch(rows, b""))[0].data()] * 3, flight_data(metadata=END)]


def bad_statement(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    end = changed(pb.PutControl(end=TOTALS, commit=True), rng).SerializeToString()
    return [opening(valid), GOOD.data(), flight_data(metadata=end)]


def random_control(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    return [opening(valid), GOOD.data(rng.randbytes(rng.randrange(1, 99))), flight_data(metadata=damaged(END, rng))]


def many_controls(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    control = pb.PutControl(backlog=rng.choice(NUMBERS)).SerializeToString()
    return [opening(valid), *[flight_data(metadata=control or b"\x08\x00")] * 50, flight_data(metadata=END)]


def huge_metadata(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    size = rng.choice((1, 4)) << 20 if rng.random() < 0.1 else 1 << 14
    noise = rng.randbytes(size) if rng.random() < 0.5 else b"\xaa\x06" + b"\x80\x80\x40" + bytes(1 << 20)
    return [opening(valid), flight_data(metadata=noise), GOOD.data(noise[:100])]


def beyond_credit(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    if rng.random() < 0.8:
        return bad_statement(attack, rng, valid)
    payload = bytes(rng.choice((700_000, 1_500_000)))
    rows = table_rows([block(0, b"")])
    rows["length"] = rows["raw_length"] = len(payload)
    rows["crc32c"] = crc32c(payload)
    return [opening(valid), *[batch_messages(put_batch(rows, payload))[0].data()] * 3, flight_data(metadata=END)]


def after_the_end(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    abort = flight_data(metadata=pb.PutControl(abort=True).SerializeToString())
    end = flight_data(metadata=END)
    good = GOOD.data()
    order = rng.choice(
        (
            [good, end, end], [good, end, good, end], [good, abort, end], [abort, good, end], [end], [good, good, end],
            [good, end, abort], [good], [], [abort, abort], [good, flight_data(metadata=b"\x18\x01")],
        )
    )  # fmt: skip
    return [opening(valid), *order]


def repeated_opening(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    first = opening(valid)
    orders = ([first, first, GOOD.data(), first], [GOOD.data(END), first], [first, flight_data(SCHEMA.header)])
    return rng.choice(orders)


def odd_messages(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    odd = [
        b"", flight_data(body=GOOD.body), flight_data(GOOD.header), flight_data(SCHEMA.header, GOOD.body),
        rng.randbytes(30), GOOD.data() + rng.randbytes(7), GOOD.data() + GOOD.data(), flight_data(b"\0" * 8),
    ]  # fmt: skip
    return [opening(valid), *rng.sample(odd, 3), flight_data(metadata=END)]


def replay(attack: PutAttack, rng: Random, valid: pb.PutCommand) -> list[bytes]:
    sent = [opening(valid), GOOD.data(), flight_data(metadata=END)]
    attack.send_twice(sent)
    return sent


SCRIPTS: tuple[Script, ...] = (
    random_command, damaged_command, wrong_command, wrong_command, strange_descriptor, wrong_columns, nulls,
    forged_offsets, lying_table, lying_table, empty_blocks, bad_statement, random_control, many_controls,
    huge_metadata, beyond_credit, after_the_end, repeated_opening, odd_messages, replay,
)  # fmt: skip
