"""`flight-shuffle drain`: have a worker migrate what it holds, and leave."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from shuffle_api.errors import DeadlineExceeded
from shuffle_server import __version__
from shuffle_server.credentials import add_credentials, credentials_of
from shuffle_server.proto import registry_pb2 as pb

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

LOOK_SECONDS = 1.0
CALL_SECONDS = 30.0
RETRY_SECONDS = 60.0  # for a master that is restarted meanwhile


def add_drain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "drain",
        help="have a worker hand over what it holds, and leave",
        description="Have a worker take nothing new, hand its map outputs over to other workers, and leave. Readers go"
        " on meanwhile. Returns when the worker has left; its process ends by itself. If this is interrupted, or the"
        " time limit is over, the worker goes on draining; one that is started again is not draining any more.",
    )
    parser.add_argument("worker", metavar="WORKER", help="its id: the first column of flight-shuffle status")
    parser.add_argument("--master", required=True, metavar="HOST:PORT", help="the master's control address")
    parser.add_argument("--json", action="store_true", help="print JSON at the end, no progress")
    parser.add_argument(
        "--timeout", type=float, default=86400.0, metavar="SECONDS", help="wait so long for it (default: a day)"
    )
    add_credentials(parser)
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    from shuffle_server.proto import registry_pb2_grpc as rpc
    from shuffle_transport.control_client import ControlClient

    client = ControlClient(
        parsed.master,
        client=f"flight-shuffle-cli/{__version__}",
        timeout=CALL_SECONDS,
        retry=RETRY_SECONDS,
        credentials=credentials_of(parsed, ""),
        stub=rpc.ShuffleRegistryStub,
    )
    try:
        return _drain(client, parsed)
    finally:
        client.close()


def _drain(client: ControlClient, parsed: argparse.Namespace) -> int:
    began = time.monotonic()
    first: pb.DrainReply | None = None
    said = ""
    while True:
        reply: pb.DrainReply = client.call("Drain", pb.DrainRequest(worker=parsed.worker))
        first = first or reply
        if reply.left:
            break
        if not parsed.json and (text := _progress(parsed.worker, reply)) != said:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
            said = text
        if time.monotonic() - began > parsed.timeout:
            raise DeadlineExceeded(
                f"worker {parsed.worker} has not left in {parsed.timeout:g} s: {_progress(parsed.worker, reply)}",
                remedy="it goes on draining; see its log, and whether other workers have room",
            )
        time.sleep(LOOK_SECONDS)
    report = {
        "worker": parsed.worker,
        "left": True,
        "outputs": first.outputs,
        "bytes": first.bytes,
        "seconds": round(time.monotonic() - began, 3),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n" if parsed.json else f"{parsed.worker}: has left\n")
    return 0


def _progress(worker: str, reply: pb.DrainReply) -> str:
    text = f"{worker}: {reply.outputs} map outputs ({reply.bytes} bytes) to hand over"
    if reply.staged or reply.pushes:
        text += f", {reply.staged} being written on {reply.pushes} streams"
    return text + ("" if reply.others else ": no other worker takes them")
