"""Which committed outputs a worker holds, and where each lies. In memory: recovery reads it from the files."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shuffle_api.errors import StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.compacted_file import CompactedPlace
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.failures import gone

CLAIM_SECONDS = 60.0  # how long a claim waits for another of the same map, which takes as long as a rename and a sync


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """The output of a map: who wrote it, where it lies, its payload. Not `ready`: it is about to appear."""

    output: MapAttempt
    home: DataDirectory
    bytes: int
    ready: bool = True
    tiered: bool = False  # in the object store only
    place: CompactedPlace | None = None  # in a compacted file, None: in a file of its own
    # another attempt that recovery found in another directory; the registry knows which won
    before: CatalogEntry | None = None


class Catalog:
    """The committed outputs by shuffle and map. Thread-safe.

    It decides who wins a map: the directories cannot, since two attempts may lie in two of them.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shuffles: dict[ShuffleId, dict[int, CatalogEntry]] = {}
        self._going: set[tuple[ShuffleId, MapAttempt]] = set()  # retired, their files not deleted yet

    def add(self, shuffle: ShuffleId) -> None:
        """A shuffle may have outputs from now on; idempotent."""
        with self._changed:
            self._shuffles.setdefault(shuffle, {})

    def __contains__(self, shuffle: ShuffleId) -> bool:
        return shuffle in self._shuffles

    def find(self, shuffle: ShuffleId, map_id: int) -> CatalogEntry | None:
        """What is held of a map, None when nothing is, or it is not published yet."""
        held = self._shuffles.get(shuffle, {}).get(map_id)
        return held if held is not None and held.ready else None

    def held(self, shuffle: ShuffleId) -> Mapping[int, CatalogEntry]:
        """What is held of a shuffle by map, as it changes, until the shuffle is dropped; also what is not `ready`."""
        return self._shuffles.get(shuffle, {})

    def outputs(self, shuffle: ShuffleId) -> list[CatalogEntry]:
        """All published outputs of a shuffle, ascending by map."""
        with self._changed:
            held = list(self._shuffles.get(shuffle, {}).values())
        return sorted((h for h in held if h.ready), key=lambda h: h.output.map)

    def shuffles(self) -> list[ShuffleId]:
        with self._changed:
            return list(self._shuffles)

    def places(self, shuffle: ShuffleId, output: MapAttempt, home: DataDirectory) -> bool:
        """Whether this attempt lies in `home`, or is about to."""
        held = self._shuffles.get(shuffle, {}).get(output.map)
        while held is not None and (held.home is not home or held.output != output):
            held = held.before
        return held is not None

    def put(self, shuffle: ShuffleId, held: CatalogEntry) -> bool:
        """Enter what recovery found; False when it is there. Whoever knows better drops one of two attempts.

        Behind another attempt that is held: when a directory is back that hung at the start, that one is the newer.
        """
        with self._changed:
            if self.holds(shuffle, held.output):
                return False
            maps = self._shuffles.setdefault(shuffle, {})
            maps[held.output.map] = _behind(maps.get(held.output.map), held)
            return True

    def change(
        self, shuffle: ShuffleId, held: CatalogEntry, *, tiered: bool = False, place: CompactedPlace | None = None
    ) -> CatalogEntry | None:
        """An output lies elsewhere from now on; None when it is not held any more."""
        with self._changed:
            maps = self._shuffles.get(shuffle, {})
            if maps.get(held.output.map) is not held:
                return None
            changed = maps[held.output.map] = replace(held, tiered=tiered, place=place)
            return changed

    def holds(self, shuffle: ShuffleId, output: MapAttempt) -> bool:
        """Whether this very attempt is held, or about to be."""
        held = self._shuffles.get(shuffle, {}).get(output.map)
        while held is not None and held.output != output:
            held = held.before
        return held is not None

    def claim(self, shuffle: ShuffleId, claimed: CatalogEntry) -> bool:
        """Whether this attempt may be published: the first that asks, until it says that it failed.

        Who claims calls `settle`. Raises UnknownShuffle, and StorageFailed when another claim was never settled.
        """
        deadline = time.monotonic() + CLAIM_SECONDS
        with self._changed:
            while True:
                maps = self._shuffles.get(shuffle)
                if maps is None:
                    raise gone(shuffle)
                held = maps.get(claimed.output.map)
                if held is None and (shuffle, claimed.output) not in self._going:
                    maps[claimed.output.map] = replace(claimed, ready=False)
                    return True
                if held is not None and held.ready:
                    return False
                if not self._changed.wait(deadline - time.monotonic()):
                    what = "publishing" if held is not None else "deleting"
                    raise StorageFailed(
                        f"{(held or claimed).home.root}: {what} {(held or claimed).output} has not ended for"
                        f" {CLAIM_SECONDS:g} s",
                        remedy="try another attempt; check this disk",
                    )

    def settle(self, shuffle: ShuffleId, output: MapAttempt, *, published: bool) -> bool:
        """A claim has come true or not; whether the output is now held."""
        with self._changed:
            maps = self._shuffles.get(shuffle, {})
            held = maps.get(output.map)
            present = held is not None and held.output == output
            if held is not None and present:
                if published:
                    maps[output.map] = replace(held, ready=True)
                elif held.before is not None:
                    maps[output.map] = held.before
                else:
                    del maps[output.map]
            self._changed.notify_all()
            return published and present

    def retire(self, shuffle: ShuffleId, output: MapAttempt) -> CatalogEntry | None:
        """Forget exactly this attempt; what was held of it, None when nothing was, or it is not published.

        Who retires it calls `retired` once its file is gone: until then this attempt is not published again.
        """
        with self._changed:
            maps = self._shuffles.get(shuffle, {})
            above, held = None, maps.get(output.map)
            while held is not None and held.output != output:
                above, held = held, held.before
            if held is None or not held.ready:
                return None
            if above is not None:
                maps[output.map] = replace(above, before=held.before)
            elif held.before is not None:
                maps[output.map] = held.before
            else:
                del maps[output.map]
            self._going.add((shuffle, output))
            return held

    def retired(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """The file of an attempt is gone, or not to be found any more."""
        with self._changed:
            self._going.discard((shuffle, output))
            self._changed.notify_all()

    def drop_shuffle(self, shuffle: ShuffleId) -> int:
        """Forget a shuffle; the payload of what was published of it."""
        with self._changed:
            maps = self._shuffles.pop(shuffle, {})
            self._changed.notify_all()
        return sum(held.bytes for held in maps.values() if held.ready)

    def drop_app(self, app: str) -> int:
        """Forget an application's shuffles; their payload."""
        return sum(self.drop_shuffle(shuffle) for shuffle in self.shuffles() if shuffle.app == app)


def _behind(held: CatalogEntry | None, found: CatalogEntry) -> CatalogEntry:
    return found if held is None else replace(held, before=_behind(held.before, found))
