"""Whether an address is one of this host's own."""

from __future__ import annotations

import socket
from functools import lru_cache

from shuffle_api.address import parse_address


@lru_cache(maxsize=1024)
def is_own_address(address: str) -> bool:
    """Whether HOST:PORT is reached without a network: the route to it begins where it ends. Sends nothing.

    False for a name that does not resolve, and in a container for a server that is in another one.
    """
    to = parse_address(address, "the address of a server")
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(to.host, to.port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as route:
                route.connect(where)
                if route.getsockname()[0] != where[0]:
                    return False
    except OSError:
        return False
    return True
