"""What a server says to systemd, for a unit of `Type=notify`: a datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)

SOCKET = "NOTIFY_SOCKET"
STATE_READY, STATE_STOPPING = "READY=1", "STOPPING=1"
SEND_SECONDS = 5.0  # for which the manager may be too busy to take it


def notify(*states: str) -> bool:
    """Send the states, which are `NAME=VALUE`. False: there is no manager, or it does not answer, which is logged."""
    path = os.environ.get(SOCKET, "")
    if not path:
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(SEND_SECONDS)
            sending.sendto("\n".join(states).encode(), address)
    except OSError as error:
        log.warning("the service manager at %s=%s was not told %s: %s", SOCKET, path, ", ".join(states), error)
        return False
    return True
