"""The map outputs of one shuffle: who won each map, and what was lost.

A map is in one of three states: not written (in neither table), committed (has a winner), lost (has lost
attempts and no winner). The lost attempts of a map are kept for as long as the shuffle lives, so that a late
commit of one of them is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shuffle_api.errors import AttemptSuperseded, CommitMismatch, MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_api.registry.encoding import encode, encode_commit
from shuffle_api.registry.events import LostOutput, MapOutputCommitted, OutputMoved
from shuffle_api.registry.operations import LoseMapOutput, RegisterShuffle
from shuffle_api.registry.output_rows import OutputPage, OutputRows
from shuffle_api.values import MapOutput, ShuffleSpec, Totals

RECORDS_AT_ONCE = 1000

Loss: TypeAlias = tuple[int, str, str, int, int, int, int, int]
"""A lost output: its attempt, where it lay, why it is gone, and the `numbers` of its totals. Numbers and texts alone:
through a million other objects Python's garbage collector would go again and again."""


@dataclass(slots=True)
class ShuffleOutputs:
    """`winners` and `lost` by map number.

    `sums` has the winners' bytes, blocks, raw bytes and records, `degraded` how many lie at fewer workers than the
    shuffle asks for: nobody goes through all of them. Indexes name the shuffle by `number`. Only the registry
    that is its `owner` changes it: for others it is a part of a copy that they share.
    """

    spec: ShuffleSpec
    winners: OutputRows = field(default_factory=OutputRows)
    lost: dict[int, tuple[Loss, ...]] = field(default_factory=dict)
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    degraded: int = 0
    number: int = field(default=0, compare=False)
    owner: object = field(default=None, compare=False)

    def clone(self, owner: object) -> ShuffleOutputs:
        """An equal one that nobody shares."""
        return replace(
            self,
            winners=self.winners.copy(),
            lost=dict(self.lost),
            sums=list(self.sums),
            owner=owner,
        )

    def records(self) -> Iterator[bytes]:
        """Encoded operations that lead to it, without the detours; the workers of what was lost are registered."""
        id = self.spec.id
        yield encode(RegisterShuffle(self.spec))
        for map, losses in self.lost.items():
            for lost, worker, reason, *totals in losses:
                yield encode_commit(id, worker, map, lost, totals)
                yield encode(LoseMapOutput(id, MapAttempt(map, lost), reason))
        first: int | None = 0
        while first is not None:
            page = self.winners.page(first, None, RECORDS_AT_ONCE)
            for map, place, attempt, size, raw_bytes, records, blocks, digest in page.numbers():
                for worker in place:
                    yield encode_commit(id, worker, map, attempt, (blocks, size, raw_bytes, records, digest))
            first = page.following

    @property
    def totals(self) -> Totals:
        """Of all winners; without a digest."""
        size, blocks, raw_bytes, records = self.sums
        return Totals(blocks, size, raw_bytes, records)

    def commit(self, output: MapOutput) -> MapOutputCommitted | OutputMoved | None:
        """Let the attempt win its map, or note one more worker that holds the winner; None if that is known already.
        Changes nothing when it raises.

        Map numbers are not held against `spec.maps`: engines may number their maps sparsely.

        :raises AttemptSuperseded: another attempt has won; the error names it.
        :raises CommitMismatch: this attempt has won with another statement.
        :raises MapOutputLost: this attempt had won and was lost.
        """
        attempt = output.output
        map = attempt.map
        winner = self.winners.get(map)
        if winner is not None and winner.output == attempt and winner.totals == output.totals:
            if output.worker in winner.workers:
                return None
            return self._move(winner, replace(winner, copies=(*winner.copies, output.worker)))
        if winner is not None or map in self.lost:
            self._check(output, winner)
        self.winners.put(output)
        self._add(output)
        return MapOutputCommitted(self.spec.id, output)

    def recommit(self, map: int, attempt: int, worker: int, totals: Sequence[int]) -> bool:
        """As `commit`, of a map that nobody has committed. False, and nothing has changed, for any other."""
        if not self.winners.add(map, attempt, worker, totals):
            return False
        blocks, size, raw_bytes, records, _ = totals
        sums = self.sums
        sums[0] += size
        sums[1] += blocks
        sums[2] += raw_bytes
        sums[3] += records
        if self.spec.replicas > 1:
            self.degraded += 1
        return True

    def lose(
        self, attempt: MapAttempt, reason: str, worker: str = ""
    ) -> tuple[MapOutput, LostOutput | OutputMoved] | None:
        """Mark the attempt's output as lost at `worker` (empty: everywhere): what it was, and what has happened. None
        if it is not there, or not the winner of its map, so that nothing changes."""
        winner = self.winners.get(attempt.map)
        if winner is None or winner.output != attempt or (worker and worker not in winner.workers):
            return None
        return winner, self.lose_winner(winner, reason, worker)

    def lose_winner(self, winner: MapOutput, reason: str, worker: str = "") -> LostOutput | OutputMoved:
        """As `lose`, of a winner that lies at `worker`: what has happened."""
        rest = [each for each in winner.workers if worker and each != worker]
        if rest:
            return self._move(winner, winner.at(*rest))
        lay, map = worker or winner.worker, winner.output.map
        self.winners.lose(map)
        self._take(winner)
        self.lost[map] = (*self.lost.get(map, ()), (winner.output.attempt, lay, reason, *winner.totals.numbers))
        return LostOutput(self.spec.id, winner.at(lay), reason)

    def _move(self, winner: MapOutput, moved: MapOutput) -> OutputMoved:
        self.winners.put(moved)
        self._take(winner)
        self._add(moved)
        return OutputMoved(self.spec.id, moved)

    def _add(self, output: MapOutput) -> None:
        totals, sums = output.totals, self.sums
        sums[0] += totals.bytes
        sums[1] += totals.blocks
        sums[2] += totals.raw_bytes
        sums[3] += totals.records
        if 1 + len(output.copies) < self.spec.replicas:
            self.degraded += 1

    def _take(self, output: MapOutput) -> None:
        totals, sums = output.totals, self.sums
        sums[0] -= totals.bytes
        sums[1] -= totals.blocks
        sums[2] -= totals.raw_bytes
        sums[3] -= totals.records
        if 1 + len(output.copies) < self.spec.replicas:
            self.degraded -= 1

    def held_by(self, worker: str, first: int = 0, limit: int | None = None) -> list[MapOutput]:
        """The committed outputs that lie at `worker`, or a copy of which does: up to `limit` of them, from number
        `first` on. Takes a look at one column of all outputs, and makes objects of those alone."""
        return self.winners.held_by(worker, first, limit)

    def count_at(self, worker: str) -> int:
        """How many of them there are."""
        return self.winners.count_at(worker)

    def get(self, map: int) -> MapOutput:
        """The committed output of `map`.

        :raises MapOutputLost: it is gone.
        :raises MapOutputNotWritten: there never was one.
        """
        winner = self.winners.get(map)
        if winner is not None:
            return winner
        if map in self.lost:
            last = self._event(map)
            raise _lost(last, f"the output of map {map} is lost: {last.reason}")
        raise MapOutputNotWritten(f"map {map} has not committed", shuffle=self.spec.id)

    def page(self, first: int, end: int | None, limit: int | None) -> tuple[OutputPage, list[LostOutput]]:
        """Of up to `limit` maps of [first, end) that were committed: the committed outputs, and what `lost_now` has of
        the others."""
        page = self.winners.page(first, end, limit)
        return page, [self._event(map) for map in page.lost]

    def lost_now(self, first: int, end: int | None) -> list[LostOutput]:
        """The last lost output of each map in [first, end) that has no winner since, ascending."""
        if not self.winners.missing:
            return []
        return [self._event(map) for map in self.winners.maps(first, end) if map not in self.winners]

    def losses(self) -> list[LostOutput]:
        """Every loss there was, ascending by map; those of one map in their order."""
        return [self._event(map, number) for map in sorted(self.lost) for number in range(len(self.lost[map]))]

    def lost_at(self) -> set[str]:
        """The workers at which lost outputs lay."""
        return {worker for losses in self.lost.values() for _, worker, *_ in losses}

    def _event(self, map: int, number: int = -1) -> LostOutput:
        """A loss of a map by its number; without one, the last."""
        attempt, worker, reason, *totals = self.lost[map][number]
        return LostOutput(self.spec.id, MapOutput(MapAttempt(map, attempt), worker, Totals(*totals)), reason)

    def _check(self, output: MapOutput, winner: MapOutput | None) -> None:
        attempt = output.output
        for number, loss in enumerate(self.lost.get(attempt.map, ())):
            if loss[0] == attempt.attempt:
                event = self._event(attempt.map, number)
                raise _lost(event, f"{attempt} has committed before and was lost: {event.reason}")
        if winner is None:
            return
        if winner.output == attempt:
            raise CommitMismatch(
                f"{attempt} has committed before, with {winner.totals} on {_named(winner)},"
                f" now it says {output.totals} on worker {output.worker}",
                worker=winner.worker,
                shuffle=self.spec.id,
                output=attempt,
            )
        raise AttemptSuperseded(
            f"attempt {winner.output.attempt} of map {attempt.map} has committed before attempt {attempt.attempt}",
            worker=winner.worker,
            shuffle=self.spec.id,
            output=winner.output,
        )


def _named(output: MapOutput) -> str:
    return f"worker {', '.join(output.workers)}"


def _lost(event: LostOutput, message: str) -> MapOutputLost:
    return MapOutputLost(message, worker=event.output.worker, shuffle=event.shuffle, output=event.output.output)
