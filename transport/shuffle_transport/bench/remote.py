"""The client's end of push and pull: `FlightClient`, as the `remote` plugin uses it."""

from __future__ import annotations

from functools import lru_cache

import pyarrow.flight as fl

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.bench.data import ring
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.remote_server import PREPARE
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb

TARGET = PushTarget(ShuffleId("bench", 0), MapAttempt(0, 0), 64, "none")


class RemoteSide:
    """The client of a `RemoteServer`. Blocks and their totals exist before a push, as a task's writer has them."""

    def __init__(self, port: int) -> None:
        self._client = FlightClient(f"127.0.0.1:{port}")
        self._preparer = fl.connect(f"grpc+tcp://127.0.0.1:{port}")

    def put(self, job: Job) -> None:
        blocks, totals = _attempt(job)
        self._client.push(TARGET, blocks, first_block=0, end=totals, commit=True)

    def get(self, job: Job) -> None:
        (number,) = self._preparer.do_action(fl.Action(PREPARE, job.dump()))
        ticket = pb.GetTicket(shuffle=messages.key_of(ShuffleId("bench", int(number.body.to_pybytes()))))
        for pulled in self._client.pull(ticket):
            if isinstance(pulled, ShuffleError):
                raise pulled

    def close(self) -> None:
        self._client.close()
        self._preparer.close()


@lru_cache(maxsize=2)
def _attempt(job: Job) -> tuple[list[Block], Totals]:
    prepared = ring(job)
    blocks = [block for i in range(job.count) for block in _blocks(prepared[i % len(prepared)].payload, job.block)]
    return blocks, totals_of(table_rows(blocks))


def _blocks(payload: memoryview, block: int) -> list[Block]:
    pieces = (payload[at : at + block] for at in range(0, len(payload), block))
    return [Block(n % 64, 0, block, 1, piece) for n, piece in enumerate(pieces)]
