"""The registries of a cluster, which share its workers: their names, their masters, and where an application goes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from shuffle_api.address import Address, parse_addresses
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_registry


def parse_registries(text: str, what: str) -> dict[str, str]:
    """The masters of each registry, by its name: of `a=h1:9110,h2:9110,b=h3:9110`. In the order of their names.

    Addresses before the first name are those of the registry without a name; in most clusters there is no other.

    :param what: names the text in errors.
    :raises InvalidArgument: an address or a name is none, or one of them is there twice.
    """
    found: dict[str, list[str]] = {}
    name = ""
    for item in text.split(","):
        given, equals, address = item.strip().rpartition("=")
        if equals:
            name = check_registry(given.strip())
            if name in found:
                raise InvalidArgument(
                    f"{what} {text!r} has registry {name!r} twice",
                    remedy="name each registry once, with all of its masters: a=h1:9110,h2:9110,b=h3:9110",
                )
        found.setdefault(name, []).append(address)
    of: dict[Address, str] = {}
    for name, addresses in found.items():
        for each in parse_addresses(",".join(addresses), what):
            if each in of:
                raise InvalidArgument(
                    f"{what} {text!r} gives {each} to registry {of[each]!r} and to {name!r}",
                    remedy="a master belongs to one registry: leave it out of the other one",
                )
            of[each] = name
    return {name: ",".join(str(each) for each in of if of[each] == name) for name in sorted(found)}


def home(app: str, registries: Collection[str]) -> str:
    """The one of these registries, by name, in which the next run of an application is registered.

    All who ask get the same answer, in whichever order the names come, and one more registry takes applications from
    the others only for itself (https://en.wikipedia.org/wiki/Rendezvous_hashing).
    """
    return max(registries, key=lambda name: hashlib.blake2b(f"{name}~{app}".encode(), digest_size=8).digest())


def shown(name: str) -> str:
    """For people."""
    return f"registry {name!r}" if name else "the registry without a name"


def task_name(kind: str, registry: str) -> str:
    """Of a task that a worker has for each registry."""
    return f"{kind}-{registry}" if registry else kind
