"""Where a process listens or is reached: `HOST:PORT`, an IPv6 address in brackets, several separated by commas."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from shuffle_api.errors import InvalidArgument

_NOT_IN_NAMES = frozenset(",:/@[]%?#\"'\\ \t\r\n")
_EXAMPLE = "write for example shuffle.example.org:9110, or [2001:db8::1]:9110 for an IPv6 address"


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address, without brackets, and a port; `str` gives the form that `parse_address` takes."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it means all addresses of the machine, so that nobody can connect to it from another one."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_address(text: str, what: str, *, any_port: bool = False, port: int = 0, remedy: str = _EXAMPLE) -> Address:
    """The address written as `text`.

    :param what: names it in the error, and `remedy` is what the error says to do.
    :param port: where the text has a host alone; 0: it has to have both.
    :param any_port: port 0 is allowed: any free one.
    :raises InvalidArgument: it is not HOST:PORT.
    """
    host, colon, digits = text.rpartition(":")
    if port and (not colon or text.endswith("]")):
        host, digits = text, str(port)
    elif not colon or not _is_port(digits, 0 if any_port else 1):
        raise _wrong(text, what, remedy)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise _wrong(text, what, remedy) from None
    elif not host or not _NOT_IN_NAMES.isdisjoint(host):
        raise _wrong(text, what, remedy)
    return Address(host, int(digits))


def parse_host(text: str, what: str) -> str:
    """A host name or an IP address without a port; an IPv6 address may stand in brackets, which are taken away.

    :raises InvalidArgument: it is none, or it is an address to which no other machine can connect, as 0.0.0.0.
    """
    host = text.removeprefix("[").removesuffix("]")
    try:
        is_address = bool(ipaddress.ip_address(host))
    except ValueError:
        is_address = False
    if not is_address and (not host or not _NOT_IN_NAMES.isdisjoint(text)):
        raise InvalidArgument(
            f"{what} {text!r} is no host name and no IP address",
            remedy="write for example shuffle.example.org or 2001:db8::1, without a port",
        )
    if Address(host, 0).is_wildcard:
        raise InvalidArgument(
            f"{what} {text!r} is every address of a machine: no client reaches it by that",
            remedy="give the name or the IP address under which clients reach this machine",
        )
    return host


def parse_addresses(text: str, what: str, *, remedy: str = _EXAMPLE) -> tuple[Address, ...]:
    """The addresses in `text`, separated by commas, each once, in their order; at least one. Raises InvalidArgument."""
    return tuple(dict.fromkeys(parse_address(each.strip(), what, remedy=remedy) for each in text.split(",")))


def _is_port(text: str, least: int) -> bool:
    return len(text) < 6 and text.isascii() and text.isdigit() and least <= int(text) < 65536


def _wrong(text: str, what: str, remedy: str) -> InvalidArgument:
    host, _, port = text.rpartition(":")
    try:
        brackets = f": an IPv6 address stands in brackets, [{ipaddress.IPv6Address(host)}]:{port}"
    except ValueError:
        brackets = ""
    return InvalidArgument(f"{what} {text!r} is not HOST:PORT{brackets}", remedy=remedy)
