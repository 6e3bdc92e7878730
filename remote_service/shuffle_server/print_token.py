"""`flight-shuffle token`: prints the token of an application, of a worker, or the cluster's."""

from __future__ import annotations

import argparse
import sys
import time

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_app
from shuffle_api.options import parse_duration
from shuffle_transport.credential_files import read_secrets
from shuffle_transport.tokens import app_token, check_token, cluster_token, worker_token

MOST_SECONDS = 36_500 * 86_400


def add_token(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "token",
        help="print the token of an application or a worker",
        description="Print the token that lets its holder act for one application, be one worker, or act for all.",
    )
    parser.add_argument("--secret-file", required=True, metavar="FILE", help="the server's --secret-file")
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--app", help="the application's name at the server")
    whose.add_argument("--worker", metavar="ID", help="the worker's id: the file worker-id in its data directory")
    whose.add_argument("--cluster", action="store_true", help="the token that may do everything")
    parser.add_argument(
        "--valid", metavar="TIME", help="how long it is taken from now on, for example 12h or 30d (default: always)"
    )
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    secret, expires = read_secrets(parsed.secret_file)[0], _expiry(parsed.valid)
    if parsed.cluster:
        token = cluster_token(secret, expires)
    elif parsed.worker is not None:
        token = worker_token(secret, _check_worker(parsed.worker), expires)
    else:
        token = app_token(secret, check_app(parsed.app), expires)
    sys.stdout.write(token + "\n")
    return 0


def _expiry(valid: str | None) -> int:
    """When a token expires that is made now, 0 if it is always valid. Raises InvalidArgument."""
    if valid is None:
        return 0
    try:
        seconds = parse_duration(valid)
    except ValueError as error:
        raise InvalidArgument(f"--valid {valid!r} is no time", remedy=str(error)) from None
    if not 1 <= seconds <= MOST_SECONDS:
        raise InvalidArgument(f"--valid {valid!r} is out of range", remedy="use 1s to 36500d, or leave it out")
    return int(time.time() + seconds)


def _check_worker(worker: str) -> str:
    try:
        return check_token(worker, "--worker")
    except InvalidArgument:
        remedy = "the file worker-id in its data directory holds it, and the ready line of the worker shows it"
        raise InvalidArgument(f"--worker {worker!r} is no worker's id", remedy=remedy) from None
