"""`flight-shuffle forget`: remove an application and its data now."""

from __future__ import annotations

import json

import click

from shuffle_api.ids import name_of
from shuffle_api.tables import counted, size_shown
from shuffle_server.cli.connection import control_client, credentials_of
from shuffle_server.cli.status import whole_status
from shuffle_transport.command_line import Command, credential_options, server_of, server_option, timeout_option
from shuffle_transport.proto import flight_shuffle_pb2 as pb


@click.command(cls=Command, short_help="remove an application and its data now")
@click.argument("app")
@server_option()
@click.option("--yes", is_flag=True, envvar="", help="do not ask")
@click.option("--json", "as_json", is_flag=True, help="print JSON; needs --yes")
@timeout_option(30.0, "wait so long for an answer")
@credential_options()
@click.pass_context
def forget(context: click.Context, /, app: str, yes: bool, as_json: bool, timeout: float, **_: str) -> int:
    """Remove an application and all its data now, without waiting for --app-timeout of the server.

    APP is a run, as the first column of flight-shuffle status shows it, or a name: then all its runs. What it reads and
    writes meanwhile is refused.
    """
    if as_json and not yes:
        raise click.UsageError("--json asks nothing. To do: add --yes")
    credentials = credentials_of(context, name_of(app))
    with control_client(server_of(context), credentials, timeout=timeout) as client:
        client.hello()
        runs = whole_status(client, app).apps
        for run in runs:
            held = f"{counted(run.shuffles, 'shuffle')}, {size_shown(run.bytes)}"
            text = f"{run.app}: {held}, silent for {run.idle_seconds:.0f} s"
            if not yes and not click.confirm(f"{text}: remove it and its data?"):
                continue
            client.call("UnregisterApp", pb.UnregisterAppRequest(app=run.app))
            if not as_json:
                click.echo(f"{text}: removed")
    if as_json:
        removed = [{"app": run.app, "shuffles": run.shuffles, "bytes": run.bytes} for run in runs]
        click.echo(json.dumps({"removed": removed}, indent=2))
    return 0
