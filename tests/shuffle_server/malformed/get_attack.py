"""Requests to the data endpoint that are not pushes: tickets, descriptors, actions, handshakes."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.malformed.attack import PARTITIONS, FlightAttack
from tests.shuffle_server.malformed.frames import CMD, command, field, flight_data, path, varint
from tests.shuffle_server.malformed.mutate import changed, damaged, number, text

INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)


class GetAttack(FlightAttack):
    name: ClassVar[str] = "get"

    def send(self, seed: int) -> int:
        rng = Random(f"{self.name} {seed}")
        how = rng.randrange(20)
        if how < 11:
            self.get("DoGet", field(1, self._ticket(rng)))
        elif how < 12:
            self.get("DoGet", rng.randbytes(rng.randrange(100)))
        elif how < 14:
            self.get("GetFlightInfo", self._descriptor(rng))
        elif how < 15:
            self.get("GetSchema", self._descriptor(rng))
        elif how < 16 and rng.random() < 0.3:
            self.get("ListFlights", rng.choice((field(1, rng.randbytes(9)), rng.randbytes(9), field(1, b"\xff/../"))))
        elif how < 17:
            self.get(
                "DoAction", rng.choice((field(1, rng.randbytes(9)) + field(2, rng.randbytes(99)), rng.randbytes(9)))
            )
        elif how < 18:
            self.get(rng.choice(("ListActions", "PollFlightInfo", "Nothing", "")), rng.randbytes(rng.randrange(9)))
        else:
            return self._streams(rng)
        return 1

    def _streams(self, rng: Random) -> int:
        sent = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.5:
            sent = [flight_data(data, data, data, command(data)) for data in sent]
        self.stream(rng.choice(("Handshake", "DoExchange")), sent)
        return len(sent)

    def _ticket(self, rng: Random) -> bytes:
        key = self.victims.next()
        valid = pb.GetTicket(shuffle=key, first_partition=0, end_partition=PARTITIONS, maps=[pb.MapAttempt(map=1)])
        how = rng.randrange(8)
        if how == 0:
            return rng.randbytes(rng.randrange(60))
        if how == 1:
            return damaged(valid.SerializeToString(), rng)
        if how == 2:
            valid.shuffle.app = text(rng)
        elif how == 3:
            valid.first_partition, valid.end_partition = number(rng, *INT32), number(rng, *INT32)
        elif how == 4:
            valid.ranges.add(map=number(rng, *INT64), attempt=number(rng, *INT64), end_partition=number(rng, *INT32))
        elif how == 5:
            valid.shuffle.shuffle = number(rng, *INT64)
        elif how == 6 and rng.random() < 0.02:
            return _many_ranges(valid, rng.choice((1_000, 20_000, 2_000_000)))
        else:
            valid = changed(valid, rng)
        return valid.SerializeToString()

    def _descriptor(self, rng: Random) -> bytes:
        how = rng.randrange(5)
        if how == 0:
            return rng.randbytes(rng.randrange(40))
        if how == 1:
            return command(rng.randbytes(20), rng.choice((0, CMD, 3, 2**31, 2**64 - 1)))
        if how == 2:
            return path(*(text(rng).encode() for _ in range(rng.randrange(5))))
        if how == 3:
            return path(
                self.victims.next().app.encode(), rng.choice((b"-1", b"x", b"9" * 30, b"\xff", "١".encode(), b""))
            )
        return varint(1 << 3) + varint(1) + field(3, rng.randbytes(3))


def _many_ranges(ticket: pb.GetTicket, count: int) -> bytes:
    """A ticket with one range, written `count` times."""
    one = pb.GetTicket(ranges=[pb.MapRange(map=1, attempt=1, end_partition=PARTITIONS)]).SerializeToString()
    return ticket.SerializeToString() + one * count
