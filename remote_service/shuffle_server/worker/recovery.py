"""The start of a worker: registry and disk are made to agree."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable

from shuffle_api.errors import ShuffleError, StaleEpoch, StorageFailed, StorageFull
from shuffle_api.ids import ShuffleId
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


def recover_local(store: Store, master: Master, worker: str) -> None:
    """To a master in the same process: complete outputs on disk are committed, missing ones are lost."""
    registry = master.registry
    known = {spec.id for spec in registry.shuffles()}
    for shuffle in store.shuffles():
        if shuffle not in known:
            store.remove_shuffle(shuffle)
    held = _by_shuffle(store.recover(), worker)
    kept = set()
    for shuffle, outputs in held.items():
        outcomes = commit_all(master, [CommitMapOutput(shuffle, output) for output in outputs])
        stand = [output if outcome is None else outcome for output, outcome in zip(outputs, outcomes, strict=True)]
        kept |= _kept(store, shuffle, outputs, stand, worker)
    missing = [(id, output) for id, output in registry.held_by(worker) if (id, output.output) not in kept]
    for shuffle, output in missing:
        master.lose(shuffle, output.output, MISSING, worker)
    log.info("recovered %d map outputs, %d lost", len(kept), len(missing))


def recover_remote(
    store: Store, session: MasterSession, registry_view: RemoteRegistryView, found: Iterable[Description]
) -> None:
    """To the master that `session` has joined; `found` is what the disk held. Raises what a call raises."""
    worker = session.identity.worker
    kept = set()
    for shuffle, outputs in _by_shuffle(found, worker).items():
        kept |= _kept(store, shuffle, outputs, registry_view.commit_all(shuffle, outputs), worker)
    missing = [(id, output) for id, output in session.held() if not store.catalog.holds(id, output)]
    for shuffle, output in missing:
        session.lose(shuffle, output, MISSING)
    session.report_losses()
    log.info("recovered %d map outputs, %d lost", len(kept), len(missing))


def _by_shuffle(found: Iterable[Description], worker: str) -> dict[ShuffleId, list[MapOutput]]:
    held: defaultdict[ShuffleId, list[MapOutput]] = defaultdict(list)
    for each in found:
        held[each.shuffle_id].append(MapOutput(each.output, worker, each.totals))
    return held


def _kept(
    store: Store, shuffle: ShuffleId, outputs: list[MapOutput], outcomes: list[MapOutput | ShuffleError], worker: str
) -> set[tuple[ShuffleId, object]]:
    """The outputs that the registry has recorded; the others are deleted."""
    kept: set[tuple[ShuffleId, object]] = set()
    for output, outcome in zip(outputs, outcomes, strict=True):
        if isinstance(outcome, MapOutput) and outcome.output == output.output:
            kept.add((shuffle, output.output))
            continue
        if isinstance(outcome, (StaleEpoch, StorageFailed, StorageFull)):
            raise outcome  # the registry failed, or does not have this worker: it says nothing of the output
        with log_context(**fields_of(shuffle, output.output)):
            log.warning("dropped %s of %s: %s", output.output, shuffle, _why(outcome))
        store.remove_output(shuffle, output.output)
    return kept


def _why(outcome: MapOutput | ShuffleError) -> str:
    return str(outcome) if isinstance(outcome, ShuffleError) else f"{outcome.output} has won"
