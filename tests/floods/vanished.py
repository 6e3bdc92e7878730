"""A peer on another host: it has connections to both endpoints, some of them with something under way, and vanishes.

Run as a program it is that peer: `python -m tests.floods.vanished CONTROL DATA SECRET` prints a line once all of its
calls were let in, and then waits to be killed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.floods.hostile import APP, Press
from tests.floods.scene import Target
from tests.floods.tenants import called, introduced, listen
from tests.network_namespace import namespace
from tests.shuffle_server.half_open import CONTROL, HalfOpenClient, message

EACH = 5  # connections of a kind to an endpoint
SETTLE_SECONDS = 1.0  # for calls to be let in
WAIT_SECONDS = 3600.0


def vanish(press: Press) -> None:
    """Until the flood is over the server has time to miss the peer."""
    with namespace() as other:
        addresses = [f"{other.here}:{at.rpartition(':')[2]}" for at in (press.target.control, press.target.data)]
        peer = other.run("-m", "tests.floods.vanished", *addresses, press.target.secret)
        assert peer.stdout is not None
        try:
            assert peer.stdout.readline(), "the peer did not connect"
            press.sent = 4 * EACH
            other.cut()
            for _ in press.steps(0.2):
                pass
        finally:
            peer.kill()
            with suppress(subprocess.TimeoutExpired):
                peer.wait(30)
            peer.stdout.close()


def _watching(press: Press) -> HalfOpenClient:
    client = HalfOpenClient(press.target.control)
    watch = pb.WatchRequest(shuffle=press.register())
    client.begin(CONTROL + "Watch", press.raw_headers, message(watch.SerializeToString()))
    return client


def _listening(press: Press) -> HalfOpenClient:
    client = introduced(press, press.target.data)
    listen(press, client)
    return client


def main() -> None:
    control, data, secret = sys.argv[1:]
    press = Press(Target(control, data, "", secret), lambda: False)
    makers = (partial(called, press, control), partial(called, press, data))
    clients = [make() for make in (*makers, partial(_watching, press), partial(_listening, press)) for _ in range(EACH)]
    began, said = time.monotonic(), False
    while time.monotonic() - began < WAIT_SECONDS:
        for client in clients:
            client.read(0.005)  # and answer the server's pings
        if not said and time.monotonic() - began > SETTLE_SECONDS and not any(client.lost for client in clients):
            print(APP, flush=True)  # noqa: T201 - the line for which the other process waits
            said = True


if __name__ == "__main__":
    main()
