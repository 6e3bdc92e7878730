"""A worker in this process for the messages of clients: it has two committed map outputs and takes more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_server.observe.instruments import Instruments
from shuffle_server.store.store import Store
from shuffle_server.worker.push_handler import PushHandler, PutOptions
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import totals_of
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import ANYBODY
from tests.shuffle_server.helpers import SPEC, batch, block

BLOCKS = [block(0, b"one"), block(3, b"three" * 10), block(7, b"")]
KEY = messages.key_of(SPEC.id)
OPTIONS = PutOptions(1 << 20, 0.1)
MOST = 500  # attempts, after which the worker begins anew


class Outputs:
    """A registry of one shuffle."""

    def __init__(self) -> None:
        self.won: dict[int, MapOutput] = {}

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        return SPEC

    def holder(self, worker: str) -> WorkerInfo | None:
        return WorkerInfo(worker, "i", 1)

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        return SPEC, self.winner(shuffle, map_id)

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        return self.won.get(map_id)

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        return list(self.won.values())

    def shuffles(self) -> list[ShuffleId]:
        return [SPEC.id]

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        return self.won.setdefault(output.output.map, output)

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        winner = self.won.get(output.map)
        assert winner is None or winner.output != output, f"{output} of {shuffle} is lost: {reason}"


class Stage:
    """Reads messages as the data endpoint does, from the bytes that Flight hands it on."""

    def __init__(self, root: Path) -> None:
        self._root, self._asked = root / "store", 0
        self._begin()

    def _begin(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        self._store = Store(self._root)
        self._outputs = Outputs()
        pool = BufferPool(1 << 24)
        self.worker = Worker(WorkerInfo("w", "localhost", 1), self._store, self._outputs, pool, Instruments())
        self._pushes = PushHandler(self.worker, OPTIONS, None)
        for number in range(2):
            self.put_whole(whole_put(number).SerializeToString())

    def pull(self, data: bytes) -> None:
        ticket = messages.parse(pb.GetTicket, data)
        self.worker.get_whole(ticket)
        for message in self.worker.get(ticket)[1]:
            assert message

    def push(self, data: bytes) -> None:
        self._count()
        command = messages.parse(pb.PutCommand, data)
        content = batch(BLOCKS)
        end = pb.PutControl(end=messages.totals_message(totals_of(content.rows)), commit=True)
        replies: list[pb.PutReply] = []
        self._pushes.attempt(command, [(pb.PutControl(), content), (end, None)], replies.append)
        assert replies

    def put_whole(self, data: bytes) -> None:
        self._count()
        assert self._pushes.inline(data, ANYBODY).worker == "w"

    def _count(self) -> None:
        self._asked += 1
        if self._asked % MOST == 0:
            self._store.close()
            self._begin()


def command(map_id: int) -> pb.PutCommand:
    output = messages.attempt_of(MapAttempt(map_id, 0))
    return pb.PutCommand(protocol=1, shuffle=KEY, output=output, partitions=SPEC.partitions, codec="none")


def whole_put(map_id: int) -> pb.WholePut:
    content = batch(BLOCKS)
    end = messages.totals_message(totals_of(content.rows))
    table = content.rows.tobytes()
    return pb.WholePut(command=command(map_id), table=table, payload=bytes(content.payload), end=end)


def tickets(_: Path) -> Sequence[bytes]:
    made = [
        pb.GetTicket(shuffle=KEY, end_partition=8),
        pb.GetTicket(shuffle=KEY, first_partition=2, end_partition=4),
        pb.GetTicket(shuffle=KEY, ranges=[pb.MapRange(map=0, attempt=0, first_partition=0, end_partition=8)]),
        pb.GetTicket(shuffle=KEY, end_partition=8, maps=[messages.attempt_of(MapAttempt(n, 0)) for n in range(2)]),
    ]
    return [ticket.SerializeToString() for ticket in made]


def put_commands(_: Path) -> Sequence[bytes]:
    return [command(number).SerializeToString() for number in range(4)]


def whole_puts(_: Path) -> Sequence[bytes]:
    return [whole_put(number).SerializeToString() for number in range(2)]
