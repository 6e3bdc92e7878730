"""A writer and a reader of relayed shuffles over pyarrow's own Flight client, as plain as the protocol allows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec, Totals
from shuffle_transport import messages
from shuffle_transport.blocks import GET_SCHEMA, PUT_SCHEMA, Block, add_rows, parse_batch, put_batch, table_rows
from shuffle_transport.checksum import crc32c
from shuffle_transport.credits import SendWindow
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PATIENCE_S = 180.0


def command(spec: ShuffleSpec, output: MapAttempt, **changes: Any) -> pb.PutCommand:
    fields: dict[str, Any] = {
        "protocol": 1,
        "shuffle": messages.key_of(spec.id),
        "output": messages.attempt_of(output),
        "partitions": spec.partitions,
        "codec": "none",
        "relay": True,
    }
    return pb.PutCommand(**{**fields, **changes})


class Writer:
    """One push. A thread of its own hears the replies; an error among them is raised by whatever is called next."""

    def __init__(self, client: Any, put: pb.PutCommand) -> None:
        options = fl.FlightCallOptions(timeout=2 * PATIENCE_S)
        descriptor = fl.FlightDescriptor.for_command(put.SerializeToString())
        self._stream, self._replies = client.do_put(descriptor, PUT_SCHEMA, options)
        self._changed = threading.Condition()
        self._window, self._over = SendWindow(), False
        self._error: ShuffleError | None = None
        self.committed: pb.Committed | None = None
        self.totals, self.parts = Totals(), dict[int, Totals]()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def send(self, *blocks: tuple[int, bytes]) -> None:
        rows = table_rows([Block(p, crc32c(payload), len(payload), 1, payload) for p, payload in blocks])
        self.send_rows(rows, b"".join(payload for _, payload in blocks))

    def send_rows(self, rows: Any, payload: bytes) -> None:
        self._take(len(payload))
        self.totals = add_rows(self.totals, rows)
        for row in range(len(rows)):
            partition = int(rows["partition"][row])
            self.parts[partition] = add_rows(self.parts.get(partition, Totals()), rows[row : row + 1])
        control = pb.PutControl(backlog=8 << 20).SerializeToString()
        self._stream.write_with_metadata(put_batch(rows, payload), control)

    def end(self, **changes: Any) -> pb.Committed:
        """State the end and wait for the answer."""
        ends = [pb.PartitionEnd(partition=p, totals=messages.totals_message(t)) for p, t in self.parts.items()]
        fields = {"end": messages.totals_message(self.totals), "ends": ends, "commit": True}
        self._stream.write_metadata(pb.PutControl(**{**fields, **changes}).SerializeToString())
        self._stream.done_writing()
        with self._changed:
            assert self._changed.wait_for(lambda: self._over or self.committed is not None, PATIENCE_S)
            if self.committed is not None:
                return self.committed
        raise self.error()

    def half_close(self) -> None:
        """Say nothing more."""
        self._stream.done_writing()

    def error(self) -> ShuffleError:
        """What the worker says was wrong; waits until it does."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._error is not None, PATIENCE_S), "no error came"
            assert self._error is not None
            return self._error

    def _take(self, size: int) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: self._over or self._window.try_send(size) is not None, PATIENCE_S)
            assert done, "no credit came"
            if self._error is not None:
                raise self._error
            after = self._window.try_send(size)
            assert after is not None, "the stream is over"
            self._window = after

    def _listen(self) -> None:
        try:
            while (said := self._replies.read()) is not None:
                reply = pb.PutReply.FromString(said.to_pybytes())
                with self._changed:
                    self._window = self._window.granted_to(reply.granted)
                    if reply.HasField("committed"):
                        self.committed = reply.committed
                    if reply.HasField("error"):
                        self._error = self._error or messages.typed_error(reply.error)
                    self._changed.notify_all()
        except (pa.ArrowException, OSError):
            pass  # the stream broke
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stream.done_writing()
            self._listener.join(PATIENCE_S)
            self._stream.close()
        except (pa.ArrowException, OSError):
            self._listener.join(PATIENCE_S)  # it ended with an error, which was looked at


@dataclass(slots=True)
class Received:
    """What a reader got: payloads per map, in their order."""

    payloads: dict[MapAttempt, list[bytes]] = field(default_factory=dict)
    totals: dict[MapAttempt, Totals] = field(default_factory=dict)
    ended: list[MapAttempt] = field(default_factory=list)


def open_reader(client: Any, shuffle: ShuffleId, partition: int, attempt: int = 0, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "shuffle": messages.key_of(shuffle),
        "first_partition": partition,
        "end_partition": partition + 1,
        "relay": pb.RelayReader(attempt=attempt),
    }
    ticket = fl.Ticket(pb.GetTicket(**{**fields, **changes}).SerializeToString())
    return client.do_get(ticket, fl.FlightCallOptions(timeout=2 * PATIENCE_S))


def arrivals(stream: Any, received: Received) -> Iterator[pb.GetControl]:
    """Reads a pull into `received`; gives each control message. Raises the error that the worker sends.

    Checks what every reader has to check: checksums, the totals of each map at its end, the totals of the stream.
    """
    whole = Totals()
    while True:
        try:
            chunk = stream.read_chunk()
        except StopIteration:
            raise AssertionError("the stream ended without its end message") from None
        if chunk.data is not None and chunk.data.num_rows:
            batch = parse_batch(chunk.data, GET_SCHEMA)
            whole = add_rows(whole, batch.rows)
            for i, (output, payload) in enumerate(zip(batch.outputs, batch.payloads(), strict=True)):
                assert crc32c(payload) == batch.rows["crc32c"][i]
                assert output not in received.ended
                received.payloads.setdefault(output, []).append(bytes(payload))
                received.totals[output] = add_rows(received.totals.get(output, Totals()), batch.rows[i : i + 1])
        control = pb.GetControl()
        if chunk.app_metadata is not None:
            control = pb.GetControl.FromString(chunk.app_metadata.to_pybytes())
        if control.HasField("error"):
            raise messages.typed_error(control.error)
        if control.HasField("map_end"):
            output = messages.map_attempt(control.map_end.output)
            assert messages.totals(control.map_end.totals) == received.totals.get(output, Totals())
            received.ended.append(output)
        yield control
        if control.HasField("end"):
            assert messages.totals(control.end) == whole
            return


def read_partition(client: Any, shuffle: ShuffleId, partition: int, attempt: int = 0) -> Received:
    """All of a partition."""
    received = Received()
    for _ in arrivals(open_reader(client, shuffle, partition, attempt), received):
        pass
    return received


def main() -> None:
    """A writer that sends a block and then waits to be killed: address, application, shuffle."""
    address, app, number = sys.argv[1:]
    spec = ShuffleSpec(ShuffleId(app, int(number)), 2, 2, codec="none", content="spark")
    with fl.connect(f"grpc://{address}") as client, Writer(client, command(spec, MapAttempt(0, 3))) as writer:
        writer.send((0, b"half"))
        sys.stdin.read()


if __name__ == "__main__":
    main()
