"""What is fuzzed: for each kind of input that comes from others or from a disk, good ones and the code that reads it.

A target's `read` may return, or raise one of the errors that are its answer to bad input. Whatever else it raises is a
finding.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from shuffle_api.columnar.ipc import encode as encode_batch
from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.encoding import Decoder, encode
from shuffle_api.registry.state import Registry
from shuffle_api.streaming import Barrier, EndOfPartition, Idle, Marker, Position, Watermark
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.log_files import Base, OpenSegments, decode_entry, encode_entry, read_logs
from shuffle_server.master.files import LocalDirectory
from shuffle_server.master.recovery import recover
from shuffle_server.store.compacted_file import open_compacted
from shuffle_server.store.compacted_writer import CompactionInput, write_compacted
from shuffle_server.store.compaction_model import NO_COMPACTION
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import MAGIC, TRAILER, Description, TornFile, build_index, encode_tail
from shuffle_server.store.output_file import load, read_range
from shuffle_transport.blocks import PUT_SCHEMA, parse_batch, put_batch, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import get_codec
from shuffle_transport.frames import IN_FLIGHT, LOG, SNAPSHOT, FileHeader, encode_frame
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import ANYBODY, Admission
from shuffle_transport.tokens import app_token, cluster_token, worker_token
from tests.fuzz.worker import Stage, put_commands, tickets, whole_puts
from tests.shuffle_server.compaction import some_outputs, written
from tests.shuffle_server.helpers import SPEC, block
from tests.shuffle_server.malformed.mutate import changed, damaged
from tests.shuffle_server.master.scene import OPERATIONS

Read = Callable[[bytes], object]
Change = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Target:
    """`begin` makes `read`, given a directory of its own, for many inputs; `change` makes a bad input of a good one."""

    name: str
    seeds: Callable[[Path], Sequence[bytes]]
    begin: Callable[[Path], Read]
    answers: tuple[type[Exception], ...] = (ShuffleError,)
    change: Change = damaged


# --------------------------------------------------------------------------- messages of clients


def message_change(kind: type[Message], data: bytes, rng: Random) -> bytes:
    """Another value in some field, or some other bytes."""
    try:
        return changed(kind.FromString(data), rng).SerializeToString() if rng.random() < 0.7 else damaged(data, rng)
    except DecodeError:
        return damaged(data, rng)


def ipc_seeds(directory: Path) -> list[bytes]:
    rows = table_rows([block(0, b"one"), block(1, b"two" * 50), block(3, b"")])
    seeds = []
    for codec in (None, "lz4", "zstd"):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, PUT_SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            for _ in range(2):
                writer.write_batch(put_batch(rows, b"one" + b"two" * 50))
        seeds.append(sink.getvalue().to_pybytes())
    return seeds


def read_ipc(data: bytes) -> None:
    """As the data endpoint reads what Flight hands it."""
    with pa.ipc.open_stream(data) as reader:
        for batch in reader:
            parsed = parse_batch(batch, PUT_SCHEMA)
            bytes(parsed.payload)
            totals_of(parsed.rows)


def narrowed_seeds(directory: Path) -> list[bytes]:
    """The length of a block, and what `lz4` makes of it: numbers that it cannot shrink, and some that it can."""
    rng, seeds = Random(1), []
    for spread in (1 << 31, 1 << 8):
        numbers = pa.array([rng.randrange(spread) for _ in range(500)], pa.int64())
        texts = pa.array([f"text {n % 9}" for n in range(500)])
        block = encode_batch(pa.record_batch({"number": numbers, "rising": pa.array(range(500)), "text": texts}))
        stored = get_codec("lz4").compress(block)
        seeds.append(len(block).to_bytes(4, "little") + bytes(memoryview(stored or b"")))
    return seeds


def read_narrowed(data: bytes) -> None:
    length = int.from_bytes(data[:4], "little")
    assert memoryview(get_codec("lz4").decompress(data[4:], length)).nbytes == length


SECRET = bytes(range(32))


def token_seeds(directory: Path) -> list[bytes]:
    tokens = []
    for expires in (0, 1, 4_000_000_000):
        tokens += [
            app_token(SECRET, "a", expires),
            cluster_token(SECRET, expires),
            worker_token(SECRET, "w-1", expires),
        ]
    return [f"{app}\nBearer {token}".encode() for token in tokens for app in ("", "a")]


def read_token(data: bytes) -> None:
    app, _, token = data.decode("utf-8", "surrogateescape").partition("\n")
    principal = Admission((SECRET,)).authenticate([token], [app] if app else [])
    assert principal == ANYBODY or principal.app == app or principal.worker


# --------------------------------------------------------------------------- files


def log_file(payloads: Sequence[bytes], kind: bytes = LOG) -> bytes:
    lsn, count = 1, 0
    frames = []
    for payload in payloads:
        frames.append(encode_frame(count if kind == SNAPSHOT else lsn, payload))
        lsn, count = lsn + 1, count + 1
    if kind == SNAPSHOT:
        frames.append(encode_frame(count, b""))
    return FileHeader(kind, 1, count if kind == SNAPSHOT else 1).encode() + b"".join(frames)


def log_seeds(directory: Path) -> list[bytes]:
    return [log_file([encode(operation) for operation in OPERATIONS[:n]]) for n in (0, 3, len(OPERATIONS))]


def snapshot_seeds(directory: Path) -> list[bytes]:
    registry = Registry()
    for operation in OPERATIONS[:4]:
        registry.apply(operation)
    return [log_file(list(registry.records()), SNAPSHOT)]


def begin_registry_file(kind: str, directory: Path) -> Read:
    def read(data: bytes) -> None:
        lsn = int.from_bytes(data[16:24], "little") if len(data) >= 24 else 1
        for name in os.listdir(directory):
            os.unlink(directory / name)
        (directory / f"{kind}-{lsn:016x}").write_bytes(data)
        recover(LocalDirectory(directory))

    return read


def operation_seeds(directory: Path) -> list[bytes]:
    return [b"".join(map(encode, OPERATIONS)), *map(encode, OPERATIONS)]


def read_operations(data: bytes) -> None:
    """The payload of a frame whose checksums are right."""
    registry = Registry()
    for operation in Decoder().replay(data, registry.recommit):
        try:
            if operation is not None:
                registry.apply(operation)
        except ShuffleError:
            continue
    list(registry.operations())


def output_seeds(directory: Path) -> list[bytes]:
    seeds = []
    for payloads in ([], [b"one"], [b"x" * 10, b"", b"y" * 300]):
        rows = table_rows([block(2 - n, payload) for n, payload in enumerate(payloads)])
        said = Description("app", 1, 7, 0, 0, 4, "none", totals_of(rows))
        seeds.append(b"".join(payloads) + encode_tail(build_index([rows]), said))
    return seeds


def begin_output_file(directory: Path) -> Read:
    path = directory / "0.0.out"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        file = load(path)
        file.description.check(ShuffleId("app", 1, 7), MapAttempt(0, 0))
        with open(path, "rb") as opened:
            for row in file.entries(0, 4):
                read_range(opened.fileno(), int(row["offset"]), int(row["length"]))

    return read


def tail_seeds(directory: Path) -> list[bytes]:
    return [output_seeds(directory)[0][: -TRAILER.size]]


def tail_change(data: bytes, rng: Random) -> bytes:
    return json_change(data, rng) if rng.random() < 0.7 else damaged(data, rng)


def begin_output_tail(directory: Path) -> Read:
    """The description of a file without blocks, under a checksum that is right."""
    path = directory / "0.0.out"

    def read(data: bytes) -> None:
        head = TRAILER.pack(0, 0, len(data), 0, b"")[:20]
        path.write_bytes(data + head + crc32c(head, crc32c(data)).to_bytes(4, "little") + MAGIC)
        load(path).description.check(ShuffleId("app", 1, 7), MapAttempt(0, 0))

    return read


def compacted_seeds(directory: Path) -> list[bytes]:
    seeds = []
    for maps, size in ((1, 1), (3, 40)):
        root = directory / f"compacted-{maps}"
        store, outputs = written(root, some_outputs(maps, size), NO_COMPACTION)
        held = [store.catalog.outputs(SPEC.id)[number] for number in range(len(outputs))]
        sources = [CompactionInput(each, *store.open_output(SPEC.id, each.output)) for each in held]
        seeds.append(Path(write_compacted(held[0].home, SPEC.id, sources).path).read_bytes())
        for source in sources:
            os.close(source.fd)
        shutil.rmtree(root)
    return seeds


def begin_compacted_file(directory: Path) -> Read:
    home, path = DataDirectory(directory / "data"), directory / "x.compacted"
    home.begin()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        file = open_compacted(home, SPEC.id, str(path))
        for row in file.rows(0, SPEC.partitions):
            read_range(file.fd, int(row["offset"]), int(row["length"]))
        for number in range(len(file)):
            for row in file.load(number).entries(0, SPEC.partitions):
                read_range(file.fd, int(row["offset"]), int(row["length"]))

    return read


def entries() -> list[bytes]:
    whole = SequencedBlock(1, 0, 2, 1, b"payload", 7, crc32c(b"payload"))
    marks = [
        SequencedMarker(n, n, marker)
        for n, marker in enumerate[Marker]((Barrier(1, False), Watermark(5), EndOfPartition(0)))
    ]
    found: list[Base | SequencedBlock | SequencedMarker] = [Base("", Position({0: 1}, 2)), whole, *marks]
    return [b"".join(bytes(piece) for piece in encode_entry(entry)) for entry in found]


def segment_seeds(directory: Path) -> list[bytes]:
    return [log_file(entries()[:n], IN_FLIGHT) for n in (1, 2, 5)]


def message_seeds(directory: Path) -> list[bytes]:
    marks = [
        SequencedMarker(n, n, marker)
        for n, marker in enumerate[Marker]((Barrier(1, True), Watermark(5), EndOfPartition(0), Idle()))
    ]
    position = wire.position_fields(Position({0: 1, 3: 7}, 2))
    return [wire.encode_marks(marks, lambda: {0: 4}), wire.encode(shuffle=["app", 1, 2], position=position, marks=[])]


def read_message(data: bytes) -> None:
    """As channels between tasks read control messages."""
    fields = wire.decode(data)
    for mark in wire.checked(lambda: list(fields.get("marks") or ()), data):
        wire.decode_mark(mark)
    wire.parse_position(fields.get("position"))


STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e999,
    -1e999,
    float("nan"),
    2**64,
    "",
    "x",
    [],
    {},
    [[]],
    [[1, 2]],
    [{}],
    "9" * 5000,
)


def json_change(data: bytes, rng: Random) -> bytes:
    """Another value somewhere in a JSON text, or many brackets; damage where it is none."""
    if rng.random() < 0.05:
        return rng.choice((b"[", b'{"a":')) * rng.choice((10, 100_000))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return damaged(data, rng)
    return json.dumps(_other(value, rng)).encode()


def _other(value: Any, rng: Random) -> Any:
    if rng.random() < 0.3 or not value or not isinstance(value, list | dict):
        return rng.choice(STRANGE)
    copy = list(value) if isinstance(value, list) else dict(value)
    key = rng.randrange(len(copy)) if isinstance(copy, list) else rng.choice(list(copy))
    copy[key] = _other(copy[key], rng)
    return copy


def entry_change(data: bytes, rng: Random) -> bytes:
    """The first byte says what follows it."""
    return data[:1] + json_change(data[1:], rng) if rng.random() < 0.6 else damaged(data, rng)


def begin_segment(directory: Path) -> Read:
    path = directory / f"{0:016x}"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_logs(directory, OpenSegments())

    return read


def constant(read: Read) -> Callable[[Path], Read]:
    return lambda directory: read


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("ticket", tickets, lambda d: Stage(d).pull, change=partial(message_change, pb.GetTicket)),
        Target("command", put_commands, lambda d: Stage(d).push, change=partial(message_change, pb.PutCommand)),
        Target("whole-put", whole_puts, lambda d: Stage(d).put_whole, change=partial(message_change, pb.WholePut)),
        Target("ipc", ipc_seeds, constant(read_ipc), (ShuffleError, pa.ArrowException, OSError)),
        Target("narrowed", narrowed_seeds, constant(read_narrowed)),
        Target("token", token_seeds, constant(read_token)),
        Target("log", log_seeds, partial(begin_registry_file, "log")),
        Target("snapshot", snapshot_seeds, partial(begin_registry_file, "snapshot")),
        Target("operations", operation_seeds, constant(read_operations)),
        Target("output-file", output_seeds, begin_output_file, (TornFile,)),
        Target("output-tail", tail_seeds, begin_output_tail, (TornFile,), tail_change),
        Target("compacted-file", compacted_seeds, begin_compacted_file, (TornFile,)),
        Target("segment", segment_seeds, begin_segment),
        Target("segment-entry", lambda d: entries(), constant(decode_entry), change=entry_change),
        Target("message", message_seeds, constant(read_message), change=json_change),
    )
}


def inputs(target: Target, corpus: Sequence[bytes], rng: Random) -> Iterator[bytes]:
    """Bad inputs without end: a few changes to one of the corpus, or the beginning of one and the end of another."""
    while True:
        data = rng.choice(corpus)
        if rng.random() < 0.1 and len(corpus) > 1:
            other = rng.choice(corpus)
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = target.change(data, rng)
        yield data
