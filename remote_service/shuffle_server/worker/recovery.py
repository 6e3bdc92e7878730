"""The start of a worker: registry and disk are made to agree.

A data directory that hangs at the start is recovered when it is back. Until then nobody can say which outputs are
missing, and none is lost but those that are asked for meanwhile.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from shuffle_api.errors import ShuffleError, StaleEpoch, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_api.registry.operations import CommitMapOutput
from shuffle_api.values import MapOutput
from shuffle_server.master.commit_control import commit_all
from shuffle_server.master.master import Master
from shuffle_server.observe.log_context import fields_of, log_context
from shuffle_server.store.format import Description
from shuffle_server.store.store import Store
from shuffle_server.worker.master_session import MasterSession
from shuffle_server.worker.remote_registry_view import RemoteRegistryView

log = logging.getLogger(__name__)

MISSING = "not on disk when the worker started"
LOOK_SECONDS = 0.5  # between two looks whether a directory is back that hung at the start


class LocalRecovery:
    """To a master in the same process: complete outputs on disk are committed, missing ones are lost.

    By `announce`, and by `task` once it is started, for what is found after that.
    """

    def __init__(self, store: Store, master: Master, worker: str) -> None:
        """Raises what `Store.recover` raises."""
        self._store, self._master, self._worker = store, master, worker
        self._found = list(store.recover())
        self.task = PeriodicTask("recovery", self.announce, LOOK_SECONDS)

    def announce(self) -> None:
        """Commit what was found. Raises StorageFailed, StorageFull: the registry cannot record it."""
        whole = self._store.recovery.complete
        self._found += self._store.recovery.take(lambda _: True)
        if not self._found and not whole:
            return
        self._drop_ended()
        held = [each for each in self._found if self._store.catalog.holds(each.shuffle_id, each.output)]
        kept = 0
        for shuffle, outputs in _by_shuffle(held, self._worker).items():
            outcomes = commit_all(self._master, [CommitMapOutput(shuffle, output) for output in outputs])
            stand = [output if outcome is None else outcome for output, outcome in zip(outputs, outcomes, strict=True)]
            kept += _keep(self._store, shuffle, outputs, stand)
        self._found.clear()
        _report_missing(self._store, self._held(), partial(self._master.lose, worker=self._worker), kept)
        if whole:
            self.task.closing.set()

    def _drop_ended(self) -> None:
        """Remove what is here of shuffles that are over."""
        here = self._store.catalog.shuffles()
        with self._master.lock:  # afterwards: the registry knows a shuffle before anything of it is written
            known = set(self._master.registry.shuffle_ids())
        for shuffle in here:
            if shuffle not in known:
                self._store.remove_shuffle(shuffle)

    def _held(self) -> list[tuple[ShuffleId, MapAttempt]]:
        with self._master.lock:
            return [(id, output.output) for id, output in self._master.registry.held_by(self._worker)]


def recover_remote(
    store: Store, session: MasterSession, registry_view: RemoteRegistryView, found: Iterable[Description]
) -> None:
    """To the master that `session` has joined; `found` is what the disk held. Raises what a call raises."""
    kept = 0
    for shuffle, outputs in _by_shuffle(found, session.identity.worker).items():
        kept += _keep(store, shuffle, outputs, registry_view.commit_all(shuffle, outputs))
    _report_missing(store, session.held(), session.lose, kept)
    session.report_losses()


def _report_missing(
    store: Store,
    held: Iterable[tuple[ShuffleId, MapAttempt]],
    lose: Callable[[ShuffleId, MapAttempt, str], object],
    kept: int,
) -> None:
    """Lose what the registry believes to be here and is not, unless it may be in a directory that is not recovered.

    :param kept: outputs that are.
    """
    missing = [(shuffle, output) for shuffle, output in held if not store.catalog.holds(shuffle, output)]
    if not store.recovery.complete:
        log.info("recovered %d map outputs; %d may be in a data directory that hangs", kept, len(missing))
        return
    for shuffle, output in missing:
        lose(shuffle, output, MISSING)
    log.info("recovered %d map outputs, %d lost", kept, len(missing))


def _by_shuffle(found: Iterable[Description], worker: str) -> dict[ShuffleId, list[MapOutput]]:
    held: defaultdict[ShuffleId, list[MapOutput]] = defaultdict(list)
    for each in found:
        held[each.shuffle_id].append(MapOutput(each.output, worker, each.totals))
    return held


def _keep(
    store: Store, shuffle: ShuffleId, outputs: list[MapOutput], outcomes: Sequence[MapOutput | ShuffleError]
) -> int:
    """How many outputs the registry has recorded; the others are deleted."""
    kept = 0
    for output, outcome in zip(outputs, outcomes, strict=True):
        if isinstance(outcome, MapOutput) and outcome.output == output.output:
            kept += 1
            continue
        if isinstance(outcome, (StaleEpoch, StorageFailed, StorageFull)):
            raise outcome  # the registry failed, or does not have this worker: it says nothing of the output
        with log_context(**fields_of(shuffle, output.output)):
            log.warning("dropped %s of %s: %s", output.output, shuffle, _why(outcome))
        store.remove_output(shuffle, output.output)
    return kept


def _why(outcome: MapOutput | ShuffleError) -> str:
    return str(outcome) if isinstance(outcome, ShuffleError) else f"{outcome.output} has won"
