"""A client whose server says an error and ends the stream at once, again and again: python rude.py CHANNELS THREADS."""

from __future__ import annotations

import sys
import threading

import pyarrow.flight as fl

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_transport.channels import ExchangeClient
from shuffle_transport.channels.sender import error_control
from shuffle_transport.channels.wire import SERVED_SCHEMA
from shuffle_transport.pool import BufferPool

GONE = error_control(StreamBroken("gone")).SerializeToString()


class Rude(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        writer.begin(SERVED_SCHEMA)
        reader.read_chunk()
        writer.write_metadata(GONE)


def main(channels: int, threads: int) -> None:
    with Rude("grpc+tcp://127.0.0.1:0") as server:

        def work() -> None:
            with ExchangeClient(f"127.0.0.1:{server.port}", BufferPool(256 << 20)) as client:
                for number in range(channels):
                    channel = client.open(str(number))
                    try:
                        channel.send_control(b"hello", 30)
                        while channel.receive(30) is not None:
                            pass
                    except ShuffleError:
                        pass
                    channel.close()

        running = [threading.Thread(target=work) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    sys.stdout.write("well\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
