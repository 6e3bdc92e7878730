"""How a command reaches the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from shuffle_server import __version__
from shuffle_transport.command_line import keyring_of

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

CLIENT = f"flight-shuffle-cli/{__version__}"


def control_client(
    context: click.Context,
    server: str,
    *,
    timeout: float,
    app: str = "",
    retry: float = 0.0,
    stub: Callable[[Any], Any] | None = None,
) -> ControlClient:
    """A client with the command's credentials, to act for `app` or for the cluster; to be closed."""
    from shuffle_transport.control_client import ControlClient  # loads gRPC

    keys = keyring_of(context)
    return ControlClient(
        server,
        client=CLIENT,
        timeout=timeout,
        retry=retry,
        credentials=keys.for_app(app) if app else keys.for_cluster(),
        **({} if stub is None else {"stub": stub}),
    )
