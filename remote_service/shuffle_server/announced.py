"""Where a server can listen, and under which name it is announced to its clients."""

from __future__ import annotations

import socket

from shuffle_api.address import Address, parse_address, parse_host
from shuffle_api.errors import InvalidArgument


def announced_host(advertise: str, listen: Address) -> str:
    """`--advertise` if it is given, else the host of `listen`, for a wildcard address this machine's name.

    :raises InvalidArgument: `advertise` is no host, or without it a wildcard address, and this machine's name leads to
        no address of it.
    """
    if advertise:
        return parse_host(advertise, "--advertise")
    if not listen.is_wildcard:
        return listen.host
    name = socket.gethostname()
    if not _leads_here(name):
        raise InvalidArgument(
            f"{listen} is every address of this machine, and its name {name!r} resolves to none of them",
            remedy="give --advertise: the name or IP address under which clients reach this machine",
        )
    return name


def check_free(listen: Address, option: str) -> None:
    """Arrow does not say why it cannot listen.

    :raises InvalidArgument: nobody can listen there now: the address is not of this machine, or in use. It names
        `option`.
    """
    try:
        _bind(listen.host, listen.port, socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgument(
            f"cannot listen on {listen}: {error.strerror or error}",
            remedy=f"choose another {option} address, or port 0 for any free one",
        ) from error


def opened_at(bound: str, advertise: str) -> Address:
    """Where a browser opens what listens at the address `bound`: on this machine alone where nothing is announced."""
    address = parse_address(bound, "the address")
    if not address.is_wildcard:
        return address
    try:
        return Address(announced_host(advertise, address), address.port)
    except InvalidArgument:
        return Address("localhost", address.port)


def _leads_here(name: str) -> bool:
    """Whether a name resolves to an address that a socket of this machine can be bound to."""
    try:
        _bind(name, 0, socket.SOCK_DGRAM)
    except OSError:
        return False
    return True


def _bind(host: str, port: int, kind: socket.SocketKind) -> None:
    """Bind a socket to an address of `host`, and close it; raises OSError when that works with none of them."""
    refused = OSError(f"{host} has no address")
    for family, _, _, _, place in socket.getaddrinfo(host, port, type=kind):
        try:
            with socket.socket(family, kind) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as connections that are over do no harm
                trial.bind(place)
        except OSError as error:
            refused = error
        else:
            return
    raise refused
