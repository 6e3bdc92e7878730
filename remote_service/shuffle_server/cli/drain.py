"""`flight-shuffle drain`: have a worker migrate what it holds, and leave."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from shuffle_api.errors import DeadlineExceeded
from shuffle_api.tables import counted, size_shown
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_server.proto import registry_pb2 as pb
from shuffle_transport.command_line import (
    Addresses,
    Command,
    credential_options,
    server_of,
    server_option,
    timeout_option,
)
from shuffle_transport.progress import Progress

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

LOOK_SECONDS = 1.0
CALL_SECONDS = 30.0
RETRY_SECONDS = 60.0  # for a master that is restarted meanwhile


@click.command(cls=Command, short_help="have a worker migrate its map outputs, and leave")
@click.argument("worker")
@server_option()
@click.option("--master", type=Addresses(), hidden=True)
@click.option("--json", "as_json", is_flag=True, help="print JSON at the end, and no progress")
@timeout_option(86400.0, "wait so long for it")
@credential_options()
@click.pass_context
def drain(
    context: click.Context,
    /,
    worker: str,
    as_json: bool,
    timeout: float,
    **_: str,
) -> int:
    """Have a worker take nothing new, migrate its map outputs to other workers, and leave.

    WORKER is its id: the first column of flight-shuffle status. Readers go on meanwhile. Returns when the worker has
    left; its process ends by itself. If this is interrupted, or the time limit is over, the worker goes on draining;
    one that is started again is not draining any more.
    """
    from shuffle_server.proto import registry_pb2_grpc as rpc

    with control_client(
        server_of(context),
        credentials_of(context),
        timeout=min(CALL_SECONDS, timeout),
        retry=min(RETRY_SECONDS, timeout),
        stub=rpc.ShuffleRegistryStub,
    ) as client:
        _drain(client, worker, as_json, timeout)
    return 0


def _drain(client: ControlClient, worker: str, as_json: bool, timeout: float) -> None:
    began = time.monotonic()
    with Progress(worker, hidden=as_json) as progress:
        progress.at(0, 1, "asks the master")
        first = reply = _ask(client, worker)
        most = 0
        while not reply.left:
            most = max(most, reply.bytes)
            progress.at(most - reply.bytes, most, _to_do(reply))
            left = timeout - (time.monotonic() - began)
            if left <= 0:
                raise DeadlineExceeded(
                    f"worker {worker} has not left in {timeout:g} s: {_to_do(reply)}",
                    remedy="it goes on draining; see its log, and whether other workers have room;"
                    " --timeout waits longer",
                )
            time.sleep(min(LOOK_SECONDS, left))
            reply = _ask(client, worker)
    report = {
        "worker": worker,
        "left": True,
        "outputs": first.outputs,
        "bytes": first.bytes,
        "seconds": round(time.monotonic() - began, 3),
    }
    click.echo(json.dumps(report, indent=2) if as_json else f"{worker}: has left")


def _ask(client: ControlClient, worker: str) -> pb.DrainReply:
    reply: pb.DrainReply = client.call("Drain", pb.DrainRequest(worker=worker))
    return reply


def _to_do(reply: pb.DrainReply) -> str:
    text = f"{counted(reply.outputs, 'map output')} ({size_shown(reply.bytes)}) to migrate"
    if reply.staged or reply.pushes:
        text += f", {reply.staged} being written on {counted(reply.pushes, 'stream')}"
    return text + ("" if reply.others else ": no other worker takes them")
