"""Reading everything that is committed, to find what a disk has changed before a reader does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shuffle_api.errors import MapOutputLost, Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId, name_of
from shuffle_server.store.catalog import CatalogEntry
from shuffle_server.store.failures import busy
from shuffle_server.store.format import TornFile
from shuffle_server.store.opening import read_committed
from shuffle_server.store.output_file import read_range
from shuffle_server.store.store import Store
from shuffle_transport.checksum import crc32c

MOVES = 8  # how often an output that moves to the object store and back is looked for


@dataclass(frozen=True, slots=True)
class Checked:
    """One map output, read from its first to its last byte; `wrong` says what of it cannot be served, or is empty."""

    shuffle: ShuffleId
    output: MapAttempt
    blocks: int
    bytes: int
    wrong: str = ""


class Pace:
    """At most `rate` bytes per second on average since it was made; 0: as fast as it goes."""

    def __init__(
        self,
        rate: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._began, self._spent = clock(), 0

    def spend(self, count: int) -> None:
        """Wait until `count` bytes more may have been read."""
        self._spent += count
        if self._rate and (wait := self._began + self._spent / self._rate - self._clock()) > 0:
            self._sleep(wait)


def check_all(store: Store, app: str | None, pace: Pace) -> Iterator[Checked]:
    """Every committed output, of one application or of all. Shuffles unregistered meanwhile are left out."""
    for shuffle in store.catalog.shuffles():
        if app is None or app in (shuffle.app, name_of(shuffle.app)):
            for held in store.catalog.outputs(shuffle):
                if held.tiered:
                    continue  # it is checked when it comes back
                checked = check(store, shuffle, held, pace)
                if checked is not None:
                    yield checked


def check_one(store: Store, shuffle: ShuffleId, output: MapAttempt) -> str:
    """Why exactly this attempt cannot be served; empty when all of it can.

    Raises what `check` and `Store.open_output` raise when it cannot be read now, which says nothing about it.
    """
    for _ in range(MOVES):
        held = store.catalog.find(shuffle, output.map)
        if held is None:
            try:
                store.recovery.check(shuffle, output)
            except MapOutputLost as error:
                return error.message
            return "it is not here"
        if held.output != output:
            return f"the worker holds attempt {held.output.attempt} of this map"
        if held.tiered:
            try:
                os.close(store.open_output(shuffle, output)[1])
            except MapOutputLost as error:
                return error.message
        else:
            checked = check(store, shuffle, held, Pace(0))
            if checked is not None:
                return checked.wrong
    raise Overloaded(
        f"{output} of {shuffle} moved to the object store each time that it was to be read",
        remedy="try again later; a larger --tier-after leaves it here for longer",
        shuffle=shuffle,
        output=output,
    )


def check(store: Store, shuffle: ShuffleId, held: CatalogEntry, pace: Pace) -> Checked | None:
    """Read a whole output, its index from the disk too. None when it was removed or moved meanwhile.

    Raises Overloaded, StorageFailed when it cannot be read now, which says nothing about it.
    """
    calls = held.home.calls
    path = held.home.paths.committed(shuffle, held.output) if held.place is None else held.place.file.path
    blocks = size = 0
    wrong: list[int] = []
    reason = ""
    try:
        with calls.request():
            file, fd = read_committed(shuffle, held)
        try:
            blocks, size = len(file.index), int(file.index["length"].sum())
            if file.description.output != held.output or file.description.shuffle_id != shuffle:
                reason = f"it holds {file.description.output} of {file.description.shuffle_id}"
            for number, row in enumerate(file.index):
                length = int(row["length"])
                pace.spend(length)
                with calls.request():
                    payload = read_range(fd, int(row["offset"]), length)
                if crc32c(payload) != int(row["crc32c"]):
                    wrong.append(number)
        finally:
            os.close(fd)
    except (TornFile, OSError) as error:
        if short := busy(error):
            raise short from error
        reason = str(error)
    if wrong:
        reason = f"{len(wrong)} of {blocks} blocks do not match their checksum, the first is number {wrong[0]}"
    if reason and store.catalog.find(shuffle, held.output.map) is not held:
        return None
    return Checked(shuffle, held.output, blocks, size, f"{path}: {reason}" if reason else "")
