"""How a command reaches the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from shuffle_server import __version__
from shuffle_transport.command_line import keyring_of
from shuffle_transport.security import Credentials

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

CLIENT = f"flight-shuffle-cli/{__version__}"


def credentials_of(context: click.Context, app: str = "") -> Credentials:
    """What the command was given, to act for `app` or for the cluster. Raises click.UsageError."""
    keys = keyring_of(context)
    return keys.for_app(app) if app else keys.for_cluster()


@contextmanager
def control_client(
    server: str,
    credentials: Credentials,
    *,
    timeout: float,
    retry: float = 0.0,
    stub: Callable[[Any], Any] | None = None,
) -> Iterator[ControlClient]:
    """A client of the control endpoint, which is closed in the end."""
    from shuffle_transport.control_client import ControlClient  # loads gRPC

    of = {} if stub is None else {"stub": stub}
    client = ControlClient(server, client=CLIENT, timeout=timeout, retry=retry, credentials=credentials, **of)
    with closing(client):
        yield client
