"""Under which name a server is announced to its clients."""

from __future__ import annotations

import socket

from shuffle_api.address import Address
from shuffle_api.errors import InvalidArgument


def announced_host(advertise: str, listen: Address) -> str:
    """`--advertise` if it is given, else the host of `listen`, for a wildcard address this machine's name.

    :raises InvalidArgument: a wildcard address without `advertise`, and this machine's name leads to no address of it.
    """
    if advertise:
        return advertise.removeprefix("[").removesuffix("]")
    if not listen.is_wildcard:
        return listen.host
    name = socket.gethostname()
    if not _leads_here(name):
        raise InvalidArgument(
            f"{listen} is every address of this machine, and its name {name!r} resolves to none of them",
            remedy="give --advertise: the name or IP address under which clients reach this machine",
        )
    return name


def _leads_here(name: str) -> bool:
    """Whether a name resolves to an address that a socket of this machine can be bound to."""
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_is_own(family, place) for family, _, _, _, place in found)


def _is_own(family: int, place: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind(place)
    except OSError:
        return False
    return True
