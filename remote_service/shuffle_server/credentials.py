"""The options by which a command of the program is given its credentials."""

from __future__ import annotations

import argparse

from shuffle_transport.credential_files import CLIENT_OPTIONS, load_keyring
from shuffle_transport.security import Credentials


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add them to a command's parser."""
    for name, text in CLIENT_OPTIONS.items():
        metavar = "TOKEN" if name == "token" else "FILE"
        parser.add_argument("--" + name.replace("_", "-"), dest=name, default="", metavar=metavar, help=text)


def credentials_of(parsed: argparse.Namespace, app: str = "") -> Credentials:
    """The credentials to act for `app`, or for the cluster. Raises InvalidArgument naming what is wrong."""
    keys = load_keyring(**{name: getattr(parsed, name) for name in CLIENT_OPTIONS})
    return keys.for_app(app) if app else keys.for_cluster()
