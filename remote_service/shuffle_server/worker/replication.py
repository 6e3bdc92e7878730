"""Copies of map outputs at further workers, for shuffles that ask for them: made before a commit is answered."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from shuffle_api.errors import MapOutputLost, Overloaded, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo

log = logging.getLogger(__name__)

Place = Callable[[ShuffleId, Collection[str]], Sequence[WorkerInfo]]
"""Up to three workers that take copies of outputs of a shuffle, best first; those named come last."""

OTHERS_SECONDS = 100.0
"""For which a worker waits for copies of what it does not hold: longer than a holder that is gone is still counted on
(--worker-timeout), shorter than a sender waits for its answer."""

LOOK_SECONDS = 0.2
MOST_ASKS = 4  # for candidates of one copy
MOST_COPIES = 5  # of one output that one worker is sent, if the registry learns nothing of them
SUSPECT_SECONDS = 10.0  # for which a worker that failed is the last choice
SAY_SECONDS = 60.0  # between two lines about copies that cannot be made


class Winners(Protocol):
    """The registry, as far as it is asked here."""

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None: ...
    def holder(self, worker: str) -> WorkerInfo | None: ...


class Copying(Protocol):
    """What can be done about copies; see `copier.Copier`."""

    def copy(self, shuffle: ShuffleId, output: MapAttempt, to: WorkerInfo) -> Totals: ...
    def ask(self, worker: WorkerInfo, shuffle: ShuffleId, output: MapAttempt) -> None: ...


class Replication:
    """Copies committed outputs to as many workers as their shuffle asks for. Thread-safe."""

    def __init__(self, own: Callable[[], WorkerInfo], registry: Winners, place: Place, copier: Copying) -> None:
        self._own, self._registry, self._place, self._copier = own, registry, place, copier
        self._changed = threading.Condition()
        self._busy: set[tuple[ShuffleId, MapAttempt]] = set()
        self._suspects: dict[str, float] = {}
        self._said = float("-inf")

    def ensure(self, spec: ShuffleSpec, output: MapOutput, *, was_asked: bool = False) -> bool:
        """Return when as many workers hold the output as there should be, or as there can be now.

        A worker that holds it makes the copies; one that does not asks the holder for them. What is lacking then shows
        in `flight-shuffle status`, and is no error: the output is committed.

        :param was_asked: by another worker, which waits for the answer. Then this one waits for nobody: two that have
            each other for the holder would wait for one another.
        :return: False when it is not the winner of its map any more.
        :raises MapOutputLost: it cannot be read here.
        :raises UnknownShuffle, UnknownApp, AppExpired: the shuffle is over.
        :raises Overloaded: another thread copies it and does not come to an end; for one that was asked, another thread
            copies it, or it is not held here.
        """
        asked = tried = False
        give_up = time.monotonic() + OTHERS_SECONDS
        taken: Counter[str] = Counter()  # copies, as the workers say that took them
        with self._alone(spec.id, output.output, 0.0 if was_asked else 2 * OTHERS_SECONDS):
            while True:
                now = self._registry.winner(spec.id, output.output.map)
                if now is None or now.output != output.output:
                    return False
                if len(now.workers) >= spec.replicas:
                    return True
                if tried:  # which takes as long as a worker that does not answer, and the output may be lost meanwhile
                    self._say_degraded(spec, now)
                    return True
                if self._own().id in now.workers:
                    # Who holds another attempt that has not been dropped yet takes no copy, and names the winner.
                    if taken:
                        time.sleep(LOOK_SECONDS)
                    if (worker := self._copy_to_any(spec.id, now, taken)) is not None:
                        taken[worker.id] += 1
                        continue
                elif was_asked:
                    raise Overloaded(f"{now.output} is not held here", remedy="see where it is, and ask again")
                elif not asked and time.monotonic() < give_up:
                    asked = self._asked(spec.id, now)
                    if not asked:
                        time.sleep(LOOK_SECONDS)  # until it is back, or given up
                    continue
                tried = True

    def _copy_to_any(self, shuffle: ShuffleId, output: MapOutput, taken: Mapping[str, int]) -> WorkerInfo | None:
        """Copy to one of the candidates; when all refuse, to one of those that are left without them, and so on."""
        tried: set[str] = set()
        for _ in range(MOST_ASKS):
            found = [each for each in self.candidates(shuffle, output.workers) if each.id not in tried]
            candidates = [each for each in found if taken.get(each.id, 0) < MOST_COPIES]
            if (worker := self.copy_to_one(shuffle, output.output, candidates)) is not None:
                return worker
            if not candidates:
                break
            tried |= {each.id for each in found}
        return None

    def lacks_copies(self, spec: ShuffleSpec, output: MapOutput) -> bool:
        """Whether fewer workers hold it than should. Raises UnknownShuffle, UnknownApp, AppExpired."""
        now = self._registry.winner(spec.id, output.output.map)
        return now is not None and now.output == output.output and len(now.workers) < spec.replicas

    def _asked(self, shuffle: ShuffleId, output: MapOutput) -> bool:
        """Have the holder make a copy; False when it could not be asked."""
        holder = self._registry.holder(output.worker)
        if holder is None:
            return False
        try:
            self._copier.ask(holder, shuffle, output.output)
        except ShuffleError as error:
            log.debug("worker %s makes no copy of %s of %s: %s", holder.id, output.output, shuffle, error)
            return False
        return True

    def copy_to_one(
        self, shuffle: ShuffleId, output: MapAttempt, candidates: Sequence[WorkerInfo]
    ) -> WorkerInfo | None:
        """Copy an output to the first of the candidates that takes it, and say which; None when none does.

        Raises MapOutputLost: it cannot be read here.
        """
        for worker in candidates:
            try:
                self._copier.copy(shuffle, output, worker)
                return worker
            except MapOutputLost:
                raise
            except ShuffleError as error:
                log.warning("no copy of %s of %s at worker %s: %s", output, shuffle, worker.id, error)
                self._suspects[worker.id] = time.monotonic()
        return None

    def candidates(self, shuffle: ShuffleId, holders: Collection[str]) -> list[WorkerInfo]:
        """Where a further copy may go, best first: away from this machine if there is a choice."""
        recent = time.monotonic() - SUSPECT_SECONDS
        suspects = [id for id, since in list(self._suspects.items()) if since > recent]
        placed = self._place(shuffle, [*holders, *suspects])
        own = self._own()
        others = [worker for worker in placed if worker.id not in holders and worker.id != own.id]
        return sorted(others, key=lambda worker: (worker.id in suspects, worker.host == own.host))

    @contextmanager
    def _alone(self, shuffle: ShuffleId, output: MapAttempt, seconds: float) -> Iterator[None]:
        key = shuffle, output
        with self._changed:
            if not self._changed.wait_for(lambda: key not in self._busy, seconds):
                raise Overloaded(f"a copy of {output} is being made", remedy="repeat the request later")
            self._busy.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(key)
                self._changed.notify_all()

    def _say_degraded(self, spec: ShuffleSpec, output: MapOutput) -> None:
        if time.monotonic() - self._said < SAY_SECONDS:
            return
        self._said = time.monotonic()
        log.warning(
            "%s of %s is at worker %s only, of %d replicas: no other worker takes a copy now"
            " (flight-shuffle status counts such outputs as degraded)",
            output.output,
            spec.id,
            ", ".join(output.workers),
            spec.replicas,
        )
