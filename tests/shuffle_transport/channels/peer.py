"""The other process of the tests: ``peer.py serve`` or ``peer.py stream ADDRESS KEEPALIVE``; ends with its stdin.

`serve` echoes and says its port; `stream` opens a channel, sends one block, says so, and receives without consuming.
"""

from __future__ import annotations

import os
import sys
import threading

from shuffle_api.errors import ShuffleError
from shuffle_transport.channels import ChannelOptions, ExchangeClient, ExchangeEndpoint
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channels.helpers import ANY, MIB, TIMEOUT, echo, numbered


def serve() -> None:
    endpoint = ExchangeEndpoint(ANY, echo, BufferPool(256 * MIB), timeout=TIMEOUT)
    say(str(endpoint.port))
    threading.Event().wait()


def stream(address: str, keepalive: str) -> None:
    options = ChannelOptions(keepalive=float(keepalive))
    client = ExchangeClient(address, BufferPool(256 * MIB), timeout=TIMEOUT, options=options)
    channel = client.open("from a child")
    channel.send(*numbered(1, 8), TIMEOUT)
    say("up")
    try:
        while channel.receive(3600) is not None:
            pass
    except ShuffleError as error:
        say(str(error))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    if sys.argv[1] == "serve":
        serve()
    else:
        stream(*sys.argv[2:])
