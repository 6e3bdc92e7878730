"""Where the next map output goes: the least busy of a few workers that are drawn at random.

Power of k choices (Azar, Broder, Karlin, Upfal, "Balanced allocations", 1994; Mitzenmacher, "The power of two choices
in randomized load balancing", 2001): of n balls in n bins, each in the emptiest of k random bins, the fullest bin has
ln ln n / ln k + O(1). A choice looks at k workers, however many there are; of k or fewer it looks at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from random import Random

from shuffle_api.values import HOST, WorkerInfo
from shuffle_server.master.worker_record import ROOMY_BYTES, Tier, WorkerRecord

CHOICES = 8
CANDIDATES = 3
OTHER_VALUES = 3  # of a label, among whose workers those for a copy are drawn
_ROUNDS = 3  # of draws from one pool, when those drawn turn out to be silent


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be placed.

    :ivar host: where it is written; empty: nowhere in particular.
    :ivar near: a label, KEY=VALUE; workers that have it come after those at the host and before all others.
    :ivar only: a label; workers without it are not candidates.
    :ivar avoid: ids of workers that come last.
    :ivar apart: for a copy: a worker that holds the output, and the labels, by key, whose values are to differ from its
        own, the most important one first.
    """

    host: str = ""
    near: str = ""
    only: str = ""
    avoid: frozenset[str] = frozenset()
    apart: tuple[WorkerInfo, tuple[str, ...]] | None = None

    @property
    def preferences(self) -> Iterator[str]:
        """Labels of the workers that come first, one after the other; the empty one is that of all workers."""
        if self.host:
            yield f"{HOST}={self.host}"
        if self.near:
            yield self.near
        yield ""


@dataclass(frozen=True, slots=True)
class Placed:
    """The candidates, best first.

    :ivar in_turn: so many of the first are equally good: outputs go to them in turn.
    :ivar lasting: it is as good in some seconds.
    """

    candidates: list[WorkerRecord] = field(default_factory=list)
    in_turn: int = 0
    lasting: bool = False


class Drawing:
    """A set of which random members can be drawn: each change is O(1), a draw O(of members drawn)."""

    def __init__(self) -> None:
        self._members: list[str] = []
        self._at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: str) -> None:
        if member not in self._at:
            self._at[member] = len(self._members)
            self._members.append(member)

    def discard(self, member: str) -> None:
        at = self._at.pop(member, None)
        if at is None:
            return
        last = self._members.pop()
        if last != member:
            self._members[at] = last
            self._at[last] = at

    def draw(self, random: Random, most: int) -> list[str]:
        """Up to `most` different members, in random order."""
        return random.sample(self._members, min(most, len(self._members)))


class Placement:
    """The workers that take map outputs, by tier and label. Not thread-safe.

    :param silent: whether a worker has been silent for so long that it is the last choice.
    :param moved: called with a record whose tier has changed.
    :ivar looked: workers that were looked at, in all.
    """

    def __init__(
        self, random: Random, silent: Callable[[WorkerRecord], bool], moved: Callable[[WorkerRecord], None]
    ) -> None:
        self._random, self._silent, self._moved = random, silent, moved
        self._records: dict[str, WorkerRecord] = {}
        # Ids by tier, the label that an application is held to, and the label that is preferred; "" is any.
        self._pools: dict[tuple[Tier, str, str], Drawing] = {}
        self._values: dict[tuple[Tier, str, str], Drawing] = {}  # values that occur, by tier, label, and key
        self.looked = 0

    def __len__(self) -> int:
        """How many workers take map outputs."""
        return len(self._records)

    def put(self, record: WorkerRecord, tier: Tier | None) -> None:
        """A worker is of this tier from now on; None: it takes nothing."""
        former = self._records.pop(record.info.id, None)
        if former is not None:
            self._take_out(former)
        record.tier = tier
        if tier is not None:
            self._records[record.info.id] = record
            for pool, values in self._places(record, tier):
                self._pools.setdefault(pool, Drawing()).add(record.info.id)
                if values is not None:
                    self._values.setdefault(values[0], Drawing()).add(values[1])

    def _take_out(self, record: WorkerRecord) -> None:
        assert record.tier is not None
        for pool, values in self._places(record, record.tier):
            ids = self._pools[pool]
            ids.discard(record.info.id)
            if ids:
                continue
            del self._pools[pool]
            if values is not None:
                self._values[values[0]].discard(values[1])
                if not self._values[values[0]]:
                    del self._values[values[0]]

    @staticmethod
    def _places(
        record: WorkerRecord, tier: Tier
    ) -> Iterator[tuple[tuple[Tier, str, str], tuple[tuple[Tier, str, str], str] | None]]:
        """The pools that a worker belongs to, and where the value of the pool's label belongs."""
        labels = record.labels
        for only in ("", *record.info.labels):
            yield (tier, only, ""), None
            for label in labels:
                key, _, value = label.partition("=")
                yield (tier, only, label), ((tier, only, key), value)

    def pick(self, wish: Wish) -> Placed:
        """The candidates for an output; those that are counted on to get it have one more placed."""
        for tier in Tier:
            found = self._apart(wish, tier) if wish.apart is not None else self._preferred(wish, tier)
            if found.candidates:
                break
        candidates = found.candidates
        for later in Tier:
            if len(candidates) < CANDIDATES and later > tier:
                candidates += self._sorted(self._draw((later, wish.only, ""), wish.avoid))
        if len(candidates) < CANDIDATES:
            candidates += self._avoided(wish)
        del candidates[CANDIDATES:]
        in_turn = found.in_turn or min(1, len(candidates))
        for record in candidates[:in_turn]:
            record.placed += 1
        return Placed(candidates, in_turn, found.lasting)

    def _preferred(self, wish: Wish, tier: Tier) -> Placed:
        candidates: list[WorkerRecord] = []
        in_turn = 0
        for label in wish.preferences:
            known = {record.info.id for record in candidates}
            drawn = self._sorted(self._draw((tier, wish.only, label), wish.avoid | known))
            candidates += drawn[: CANDIDATES - len(candidates)]
            in_turn = in_turn or len(candidates)
            if len(candidates) == CANDIDATES:
                break
        first = candidates[:in_turn]
        alone = len(self._records) == 1
        lasting = tier is Tier.ROOMY and (alone or all(each.info.free_bytes >= ROOMY_BYTES for each in first))
        return Placed(candidates, in_turn, lasting)

    def _apart(self, wish: Wish, tier: Tier) -> Placed:
        """Workers for a copy: with other labels than the holder, then with room, then by load."""
        assert wish.apart is not None
        holder, keys = wish.apart
        drawn = self._draw((tier, wish.only, ""), wish.avoid)
        for key in keys:
            if all(each.info.label(key) == holder.label(key) for each in drawn):
                drawn += self._elsewhere(wish, (tier, wish.only, key), holder.label(key))

        def order(record: WorkerRecord) -> tuple[object, ...]:
            same = [record.info.label(key) == holder.label(key) for key in keys]
            return *same, record.info.free_bytes < ROOMY_BYTES, *record.order

        return Placed(sorted(drawn, key=order)[:CANDIDATES], min(1, len(drawn)))

    def _elsewhere(self, wish: Wish, values: tuple[Tier, str, str], own: str) -> list[WorkerRecord]:
        tier, only, key = values
        found: list[WorkerRecord] = []
        for value in self._values.get(values, Drawing()).draw(self._random, OTHER_VALUES + 1):
            if value != own:
                found += self._draw((tier, only, f"{key}={value}"), wish.avoid)
        return found

    def _draw(self, pool: tuple[Tier, str, str], skip: Collection[str]) -> list[WorkerRecord]:
        """Up to CHOICES workers of a pool that are not to be skipped, all of them if there are no more."""
        found: list[WorkerRecord] = []
        for _ in range(_ROUNDS):
            ids = self._pools.get(pool)
            if ids is None:
                break
            drawn = [id for id in ids.draw(self._random, CHOICES + len(skip)) if id not in skip][:CHOICES]
            self.looked += len(drawn)
            found = [record for record in map(self._records.__getitem__, drawn) if not self._falls_silent(record)]
            if len(found) == len(drawn) or len(found) >= CANDIDATES:
                break
        return found

    def _falls_silent(self, record: WorkerRecord) -> bool:
        """Whether a worker is silent without being of that tier; then it is of that tier from now on."""
        if record.tier is Tier.SILENT or not self._silent(record):
            return False
        self.put(record, Tier.SILENT)
        self._moved(record)
        return True

    def _avoided(self, wish: Wish) -> list[WorkerRecord]:
        found = [self._records[id] for id in wish.avoid if id in self._records]
        fit = [each for each in found if not wish.only or wish.only in each.info.labels]
        return sorted(fit, key=lambda each: (each.tier or 0, each.order))

    @staticmethod
    def _sorted(records: list[WorkerRecord]) -> list[WorkerRecord]:
        return sorted(records, key=lambda record: record.order)
