"""`flight-shuffle token`: prints the token of an application, or the cluster's."""

from __future__ import annotations

import argparse
import sys

from shuffle_api.ids import check_app
from shuffle_transport.credential_files import read_secret
from shuffle_transport.security import app_token, cluster_token


def add_token(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "token",
        help="print the token of an application",
        description="Print the token that lets its holder act for one application, or for all of them.",
    )
    parser.add_argument("--secret-file", required=True, metavar="FILE", help="the server's --secret-file")
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--app", help="the application's name at the server")
    whose.add_argument("--cluster", action="store_true", help="the token that may do everything")
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    secret = read_secret(parsed.secret_file)
    sys.stdout.write((cluster_token(secret) if parsed.cluster else app_token(secret, check_app(parsed.app))) + "\n")
    return 0
