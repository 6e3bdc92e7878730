"""`flight-shuffle events`: what happened in the cluster."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable

import click

from shuffle_api.tables import printable
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_server.cli.output import plain
from shuffle_transport.command_line import Command, credential_options, server_of, server_option, timeout_option
from shuffle_transport.proto import flight_shuffle_pb2 as pb

LOOK_SECONDS = 1.0


@click.command(cls=Command, short_help="show what happened in the cluster: joins, losses, drains, applications")
@server_option()
@click.option("--limit", type=click.IntRange(0), default=50, metavar="COUNT", help="the newest so many; 0: all kept")
@click.option("--follow", is_flag=True, help="go on with those that come")
@click.option("--json", "as_json", is_flag=True, help="print JSON: one object per line")
@timeout_option(10.0, "wait so long for an answer")
@credential_options()
@click.pass_context
def events(context: click.Context, /, limit: int, follow: bool, as_json: bool, timeout: float, **_: str) -> None:
    """Show what happened in the cluster, the newest last: workers that join, leave, drain and are lost, applications
    that begin and end, data directories that are taken out, and the leader. The master keeps the last 1,000 of its
    epoch.
    """
    retry = timeout if follow else 0.0
    with control_client(server_of(context), credentials_of(context), timeout=timeout, retry=retry) as client:
        client.hello()
        reply: pb.EventsReply = client.call("Events", pb.EventsRequest(limit=limit))
        _print(reply.events, as_json)
        while follow:
            time.sleep(LOOK_SECONDS)
            epoch, last = reply.epoch, max((event.number for event in reply.events), default=0)
            found: pb.EventsReply = client.call("Events", pb.EventsRequest(after=last))
            if found.epoch != epoch:  # another master leads: its events begin anew
                found = client.call("Events", pb.EventsRequest())
            _print(found.events, as_json)
            if found.events or found.epoch != epoch:
                reply = found


def _print(found: Iterable[pb.ClusterEvent], as_json: bool) -> None:
    for event in found:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.unix_seconds))
        click.echo(json.dumps(plain(event)) if as_json else f"{when} {event.kind}: {printable(event.text)}")
    sys.stdout.flush()
