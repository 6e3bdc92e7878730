"""A worker that serves what a script makes of its answers, and a job that believes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleHandle, ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport import messages
from shuffle_transport.blocks import CODEC_KEY, GET_SCHEMA, Block, get_batch, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import get_codec
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.malformed.frames import Encapsulated, batch_messages, field, flight_data, schema_message

RAW: Any = None
Pull = Callable[[list[bytes]], Iterator[bytes]]  # from the messages of a right answer to those that are sent
Push = Callable[[Iterator[bytes]], Iterator[bytes]]  # from the messages of a push to the replies

SPEC = ShuffleSpec(ShuffleId("app", 0), 4, 3, codec="lz4")


def blocks_of(map_id: int) -> list[tuple[Block, list[bytes]]]:
    """The blocks of a map, partition by partition, and the records in each."""
    made = []
    for partition in range(SPEC.partitions):
        records = [f"{map_id}/{partition}/{n} ".encode() * (n + 5) for n in range(9)]
        raw = b"".join(len(r).to_bytes(4, "little") + r for r in records)
        stored = get_codec(SPEC.codec).compress(raw)
        payload = raw if stored is None else bytes(stored)
        made.append((Block(partition, crc32c(payload), len(raw), len(records), payload), records))
    return made


MAPS = {map_id: blocks_of(map_id) for map_id in range(SPEC.maps)}
RECORDS = sorted((b.partition, r) for blocks in MAPS.values() for b, records in blocks for r in records)
OUTPUTS = [
    MapOutput(MapAttempt(map_id, 0), "w", totals_of(table_rows([b for b, _ in blocks])))
    for map_id, blocks in MAPS.items()
]
SCHEMA = schema_message(GET_SCHEMA.with_metadata({CODEC_KEY: b"lz4"}))


def batch_of(blocks: list[tuple[int, Block]]) -> Encapsulated:
    """The pull batch of (map, block) pairs, whatever the blocks say of themselves."""
    rows = table_rows([b for _, b in blocks])
    maps = np.array([m for m, _ in blocks], np.int64)
    payload = b"".join(bytes(memoryview(b.payload)) for _, b in blocks)
    return batch_messages(get_batch(GET_SCHEMA, maps, np.zeros_like(maps), rows, payload))[0]


def end_of(blocks: list[Block]) -> bytes:
    end = pb.GetControl(end=messages.totals_message(totals_of(table_rows(blocks))))
    return flight_data(metadata=end.SerializeToString())


def answer_to(ticket: bytes) -> list[bytes]:
    """What an honest worker sends for a ticket of whole maps: the schema, a batch per map, the end."""
    wanted = [m.map for m in pb.GetTicket.FromString(ticket).maps]
    asked = [[(m, block) for block, _ in MAPS[m]] for m in wanted]
    batches = [batch_of(pairs).data() for pairs in asked]
    return [flight_data(SCHEMA.header), *batches, end_of([b for pairs in asked for _, b in pairs])]


class EvilWorker(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """The Flight service and the control service of one server, in bytes."""

    def __init__(self, pull: Pull, push: Push) -> None:
        self.pull, self.push = pull, push
        self.pulls = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(8), [self], options=[("grpc.so_reuseport", 0)])
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = str(handler_call_details.method).rpartition("/")[2]
        if method == "DoGet":
            return grpc.unary_stream_rpc_method_handler(self._get)
        if method == "DoPut":
            return grpc.stream_stream_rpc_method_handler(lambda sent, context: self.push(sent))
        return grpc.unary_unary_rpc_method_handler(lambda sent, context: self._control(method))

    def close(self) -> None:
        self._server.stop(0).wait(60)

    def _get(self, request: bytes, context: Any) -> Iterator[bytes]:
        self.pulls += 1
        at = request.index(b"\x0a") + 1
        return self.pull(answer_to(request[at + (1 if request[at] < 128 else 2) :]))

    def _control(self, method: str) -> bytes:
        workers = [pb.Worker(id="w", host="127.0.0.1", port=self.port, free_bytes=1)]
        if method == "Locate":
            located = pb.LocateReply(outputs=map(messages.output_message, OUTPUTS), workers=workers)
            return located.SerializeToString()
        if method == "Hello":
            return pb.HelloReply(protocol=1, server="evil", epoch=1, workers=workers).SerializeToString()
        return b""


@contextmanager
def evil_worker(pull: Pull, push: Push | None = None, **options: Any) -> Iterator[tuple[RemoteShuffle, EvilWorker]]:
    """A plugin that is connected to a worker of this kind."""
    worker = EvilWorker(pull, push or (lambda sent: iter(())))
    try:
        with RemoteShuffle({"server": f"127.0.0.1:{worker.port}", "timeout": 60, "retry": 0, **options}) as plugin:
            yield plugin, worker
    finally:
        worker.close()


def handle_of(worker: EvilWorker) -> ShuffleHandle:
    return ShuffleHandle("remote", SPEC, f"127.0.0.1:{worker.port}")


def put_result(metadata: bytes) -> bytes:
    return field(1, metadata)
