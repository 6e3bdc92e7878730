"""From which worker each map output is read: what is left to read, and who has failed. Values, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from shuffle_api.errors import MapOutputLost, ProtocolMismatch, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, name_numbers

MAPS_PER_PULL = 4096  # bounds a ticket to about 100 KB


class ReplicaSelector:
    """The outputs that are yet to be read, in the order in which they are.

    Each is asked of the holder that has failed least often; of those, of one that stays before one that drains.

    :param outputs: all that are to be read, each with all of its holders.
    """

    def __init__(self, outputs: Sequence[MapOutput]) -> None:
        self._rest = list(outputs)
        self._handed = 0
        self._failures: Counter[str] = Counter()
        # Holders that cannot serve an output, though they serve others, and what each of them said.
        self._unfit: dict[MapAttempt, dict[str, ShuffleError]] = {}
        self.draining: Collection[str] = ()

    @property
    def rest(self) -> Sequence[MapOutput]:
        return self._rest

    @property
    def handed(self) -> int:
        """Blocks of the first of `rest` that were handed out already."""
        return self._handed

    @property
    def place(self) -> tuple[int, int]:
        """Changes with every block that is handed out."""
        return len(self._rest), self._handed

    def worker(self) -> str | None:
        """Whom to ask for the first of `rest`; None when nobody has it who can serve it."""
        return self._holder(self._rest[0])

    def at(self, worker: str) -> list[MapOutput]:
        """What to ask of `worker` in one pull, the first of `rest` in front."""
        first, *others = self._rest
        return [first, *(output for output in others if self._holder(output) == worker)][:MAPS_PER_PULL]

    def tried(self) -> bool:
        """Whether the one to ask next has failed before, so that it is time to wait."""
        worker = self.worker()
        return worker is None or self._failures[worker] > 0

    def advance(self, asked: Sequence[MapOutput], done: int, handed: int) -> None:
        """Of a pull of `asked` the first `done` came whole, and `handed` blocks of the next one in all."""
        finished = {output.output for output in asked[:done]}
        left = [output for output in self._rest if output.output not in finished]
        if done < len(asked):  # the one that is read in part comes next, from wherever
            left.sort(key=lambda output: output.output != asked[done].output)
        self._rest, self._handed = left, handed

    def failed(self, worker: str) -> None:
        """It could not be reached, or broke off."""
        self._failures[worker] += 1

    def unfit(self, output: MapAttempt, worker: str, why: ShuffleError) -> None:
        """This worker cannot serve this output, though it may serve others."""
        self._unfit.setdefault(output, {})[worker] = why

    def why_nobody(self) -> ShuffleError:
        """What the last holder of the first of `rest` said that cannot serve it; when `worker` is None."""
        return list(self._unfit[self._rest[0].output].values())[-1]

    def update(self, shuffle: ShuffleId, found: Mapping[int, MapOutput]) -> None:
        """Where the outputs lie now, by map.

        :raises MapOutputLost: an attempt that is yet to be read is not there any more.
        """
        lost = [output for output in self._rest if not _same(output, found.get(output.output.map))]
        if lost:
            raise MapOutputLost(
                f"maps {name_numbers(o.output.map for o in lost)} have been lost while they were read",
                remedy="run these maps again as new attempts",
                worker=lost[0].worker,
                shuffle=shuffle,
                output=lost[0].output,
            )
        for output in self._rest:
            now = found[output.output.map]
            if now.totals != output.totals:
                raise ProtocolMismatch(f"{now.output} is said to hold {now.totals}, before it was {output.totals}")
        self._rest = [found[output.output.map] for output in self._rest]

    def _holder(self, output: MapOutput) -> str | None:
        unfit = self._unfit.get(output.output, ())
        fit = [worker for worker in output.workers if worker not in unfit]
        return min(fit, key=lambda worker: (self._failures[worker], worker in self.draining), default=None)


def _same(output: MapOutput, now: MapOutput | None) -> bool:
    return now is not None and now.output == output.output
