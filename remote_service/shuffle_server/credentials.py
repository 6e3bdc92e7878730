"""The options by which a command of the program is given its credentials."""

from __future__ import annotations

import argparse
import dataclasses
import os

from shuffle_api.options import options_table, parse_options
from shuffle_transport.credential_files import ClientOptions, load_keyring
from shuffle_transport.security import Credentials


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add them to a command's parser."""
    for row in options_table(ClientOptions):
        metavar = "TOKEN" if row.name == "token" else "FILE"
        parser.add_argument(
            "--" + row.name.replace("_", "-"), dest=row.name, default="", metavar=metavar, help=row.help
        )


def credentials_of(parsed: argparse.Namespace, app: str = "") -> Credentials:
    """The credentials to act for `app`, or for the cluster. Raises InvalidArgument naming what is wrong."""
    given = {row.name: getattr(parsed, row.name) for row in options_table(ClientOptions)}
    options = parse_options(ClientOptions, given, os.environ)
    keys = load_keyring(**dataclasses.asdict(options))
    return keys.for_app(app) if app else keys.for_cluster()
