"""`flight-shuffle token`: prints the token of an application, of a worker, or the cluster's."""

from __future__ import annotations

import json
import time

import click

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_app
from shuffle_transport.command_line import Command, Duration, usage_error
from shuffle_transport.credential_files import ClientOptions, read_secrets
from shuffle_transport.tokens import app_token, check_token, cluster_token, worker_token


@click.command(cls=Command, short_help="print the token of an application or a worker")
@click.option("--secret-file", required=True, metavar="FILE", help="the server's --secret-file")
@click.option("--app", metavar="APP", envvar="", help="the application's name at the server")
@click.option("--worker", metavar="ID", envvar="", help="the worker's id: the file worker-id in its data directory")
@click.option("--cluster", is_flag=True, envvar="", help="the token that may do everything")
@click.option(
    "--valid",
    type=Duration(1.0),
    metavar="TIME",
    help="how long it is taken from now on, for example 12h or 30d (default: always)",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON: the token and when it expires, in Unix seconds")
def token(
    secret_file: str, app: str | None, worker: str | None, cluster: bool, valid: float | None, as_json: bool
) -> None:
    """Print the token that lets its holder act for one application, be one worker, or act for all."""
    if sum((app is not None, worker is not None, cluster)) != 1:
        raise click.UsageError("whose token it is to be: give one of --app, --worker and --cluster")
    expires = 0 if valid is None else int(time.time() + valid)
    try:
        secret = read_secrets(secret_file)[0]
        if cluster:
            made = cluster_token(secret, expires)
        elif worker is not None:
            made = worker_token(secret, _check_worker(worker), expires)
        else:
            made = app_token(secret, check_app(app or ""), expires)
    except InvalidArgument as error:
        raise usage_error(error, ClientOptions) from None
    click.echo(json.dumps({"token": made, "expires": expires or None}) if as_json else made)


def _check_worker(worker: str) -> str:
    try:
        return check_token(worker, "--worker")
    except InvalidArgument:
        remedy = "the file worker-id in its data directory holds it, and the ready line of the worker shows it"
        raise InvalidArgument(f"--worker {worker!r} is no worker's id", remedy=remedy) from None
