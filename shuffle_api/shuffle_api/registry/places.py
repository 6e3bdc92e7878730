"""Where the outputs of one shuffle lie: by the workers that hold them, so that nobody goes through all outputs."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Place: TypeAlias = tuple[str, ...]
"""The workers that hold an output, the one to ask first in front."""


class Held:
    """The maps whose outputs lie at one place, in no particular order, and the payload of them all."""

    __slots__ = ("bytes", "maps")

    def __init__(self, maps: array[int] | None = None, size: int = 0) -> None:
        self.maps = array("q") if maps is None else maps
        self.bytes = size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Held):
            return NotImplemented
        return (self.bytes, sorted(self.maps)) == (other.bytes, sorted(other.maps))

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Held:
        return Held(self.maps[:], self.bytes)

    def take(self, map: int, size: int) -> None:
        """A map's output lies elsewhere now, or is lost."""
        last = self.maps.pop()
        if last != map:
            self.maps[self.maps.index(map)] = last
        self.bytes -= size


@dataclass(slots=True)
class Places:
    """The places of one shuffle's outputs; none is empty.

    :ivar at: by place.
    :ivar shared: of each worker, the places that are not its alone.
    """

    at: dict[Place, Held] = field(default_factory=dict)
    shared: dict[str, dict[Place, None]] = field(default_factory=dict)

    def clone(self) -> Places:
        """An equal one that shares nothing that changes."""
        return Places(
            {place: held.copy() for place, held in self.at.items()},
            {worker: dict(places) for worker, places in self.shared.items()},
        )

    def add(self, place: Place, map: int, size: int) -> bool:
        """An output lies at a place; whether it is the first one there."""
        held = self.at.get(place)
        if held is not None:
            held.maps.append(map)
            held.bytes += size
            return False
        self.at[place] = Held(array("q", (map,)), size)
        if len(place) > 1:
            for worker in place:
                self.shared.setdefault(worker, {})[place] = None
        return True

    def take(self, place: Place, map: int, size: int) -> bool:
        """It lies elsewhere now, or is lost; whether it was the last one there."""
        held = self.at[place]
        held.take(map, size)
        if held.maps:
            return False
        del self.at[place]
        if len(place) > 1:
            for worker in place:
                places = self.shared[worker]
                del places[place]
                if not places:
                    del self.shared[worker]
        return True

    def of(self, worker: str) -> Iterator[Held]:
        """What lies at a worker, there alone or there too."""
        own = self.at.get((worker,))
        if own is not None:
            yield own
        for place in self.shared.get(worker, ()):
            yield self.at[place]

    def count(self, worker: str) -> int:
        """How many outputs lie at a worker."""
        return sum(len(held.maps) for held in self.of(worker))

    def maps(self, worker: str, first: int = 0, limit: int | None = None) -> Iterator[int]:
        """Up to `limit` of the maps whose outputs lie at a worker, from number `first` on."""
        left = self.count(worker) if limit is None else limit
        for held in self.of(worker):
            some = held.maps[first : first + left]
            first = max(0, first - len(held.maps))
            left -= len(some)
            yield from some
