"""Bugs to be found: each is the product with one rule left out, patched into a process of the simulation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import shuffle_server.master.commit_control
import shuffle_server.master.membership
import shuffle_server.master.recovery
import tests.faults.simulate.client
from shuffle_api.clock import ServingClock
from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.registry.events import Event
from shuffle_api.registry.operations import UnregisterApp
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.registry.state import Registry
from shuffle_api.values import MapOutput
from shuffle_server.master.files import LocalDirectory, LocalFile
from shuffle_server.master.log import OperationLog, Place, _Switch
from shuffle_server.master.master import Master
from shuffle_server.master.worker_checks import joined_worker
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.catalog import Catalog
from shuffle_server.worker.attempt_sink import AttemptSink
from shuffle_server.worker.worker import Worker
from shuffle_transport.frames import _FRAME, FRAME_SIZE, Frame, FrameFile
from shuffle_transport.resume import HeldBlocks


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug in words, and what patches it in."""

    what: str
    plant: Callable[[], None]


def _set(owner: Any, **values: Any) -> Callable[[], None]:
    """Each of these is there, and becomes the value."""

    def plant() -> None:
        for name, value in values.items():
            getattr(owner, name)
            setattr(owner, name, value)

    return plant


def _nothing(*_: Any, **__: Any) -> None: ...


# ------------------------------------------------------------------ the log and the snapshots


_wait = OperationLog.wait


def _wait_later(self: OperationLog, place: Place | None) -> int | None:
    if place is None or isinstance(place.group.items[place.index], _Switch):
        return _wait(self, place)
    threading.Thread(target=_wait, args=(self, place), daemon=True).start()
    return None


def _frames_unchecked(self: FrameFile) -> Iterator[Frame]:
    while self.end + FRAME_SIZE <= self._size:
        length, _, lsn, _ = _FRAME.unpack(self._file.read(_FRAME.size))
        if self.end + FRAME_SIZE + length > self._size:
            break
        yield Frame(self.end, lsn, self._file.read(length + 1)[:length])
        self.end += FRAME_SIZE + length
    self.torn = self._size - self.end


_frames = FrameFile.frames


def _frames_but_the_last(self: FrameFile) -> Iterator[Frame]:
    frames = list(_frames(self))
    yield from frames[:-1] if len(frames) > 1 and frames[-1].payload else frames


_records = ShuffleOutputs.records


def _records_without_losses(outputs: ShuffleOutputs) -> Iterator[bytes]:
    return _records(replace(outputs, lost={}))


# ------------------------------------------------------------------ the registry's rules


_check = ShuffleOutputs._check


def _check_only_losses(self: ShuffleOutputs, output: MapOutput, winner: MapOutput | None) -> None:
    _check(self, output, None)


_lose = ShuffleOutputs.lose


def _lose_any(self: ShuffleOutputs, attempt: Any, reason: str, worker: str = "") -> Any:
    winner = self.winners.get(attempt.map)
    return _lose(self, attempt if winner is None else winner.output, reason, worker)


def _find_current(self: Registry, id: ShuffleId) -> ShuffleId | None:
    return self._current.get(id.current())


def _unregister_name(self: Registry, operation: UnregisterApp) -> tuple[Event, ...]:
    runs = [run for run in self._apps.live if name_of(run) == name_of(operation.app)]
    events: list[Event] = []
    for run in runs:
        del self._apps.live[run]
        events += self._removed(run, "unregistered")
    return tuple(events)


def _any_incarnation(master: Master, id: str, incarnation: int) -> None:
    joined_worker(master.registry, id)


def _forget_incarnation() -> None:
    for module in (shuffle_server.master.commit_control, shuffle_server.master.membership):
        module.check_present = _any_incarnation  # type: ignore[attr-defined]


# ------------------------------------------------------------------ the worker's rules


def _receive_twice(self: HeldBlocks, count: int) -> tuple[int, HeldBlocks]:
    return 0, HeldBlocks(max(self.held, self.next + count), self.next + count)


def _receive_one_less(self: HeldBlocks, count: int) -> tuple[int, HeldBlocks]:
    after = self.next + count
    skip = min(count, max(0, self.held + (self.next == self.held > 0) - self.next))
    return skip, HeldBlocks(max(self.held, after), after)


def _unchecked_totals(receive: Callable[..., Any]) -> Callable[[], None]:
    def plant() -> None:
        HeldBlocks.receive = receive  # type: ignore[method-assign]
        AttemptSink.end = _nothing  # type: ignore[method-assign]

    return plant


def _claim_always(self: Catalog, shuffle: Any, claimed: Any) -> bool:
    self._shuffles[shuffle][claimed.output.map] = replace(claimed, ready=False)
    return True


_seal = AttemptWriter.seal


def _seal_without_sync(self: AttemptWriter, turn: int, sync: bool) -> Any:
    return _seal(self, turn, False)


def _give_up_quietly(self: Worker, shuffle: Any, output: Any, reason: str, within: float = 0.0) -> bool:
    return self._store.remove_output(shuffle, output, within)


def _publish_early(self: Worker, writer: AttemptWriter, turn: int, *, copy: bool = False) -> MapOutput:
    description = self._store.publish(writer, turn)
    output = MapOutput(writer.output, self.info.id, description.totals if description else writer.totals)
    threading.Thread(target=self._registry.commit, args=(writer.shuffle, output)).start()
    return output


def _wall(self: ServingClock) -> float:
    return time.time()


def _uncapped(self: ServingClock) -> float:
    return self._source()


PLANTS: dict[str, Plant] = {
    "wall-clock-expiry": Plant("silence is measured with the wall clock", _set(ServingClock, __call__=_wall)),
    "count-standstill": Plant(
        "a master counts the time in which it stood still", _set(ServingClock, __call__=_uncapped)
    ),
    "no-expiry": Plant("applications that are dead do not expire", _set(Master, expire=_nothing)),
    "acknowledge-before-durable": Plant(
        "the master answers before the log is written", _set(OperationLog, wait=_wait_later)
    ),
    "no-log-sync": Plant("the log is written and not synced", _set(LocalFile, sync=_nothing)),
    "no-directory-sync": Plant("the name of a new log or snapshot is not synced", _set(LocalDirectory, sync=_nothing)),
    "skip-frame-crc": Plant(
        "a frame of the log is read without its checksum", _set(FrameFile, frames=_frames_unchecked)
    ),
    "keep-torn-tail": Plant(
        "a torn tail is not cut off the log", _set(shuffle_server.master.recovery, _finish=_nothing)
    ),
    "drop-last-frame": Plant("recovery takes the last frame for torn", _set(FrameFile, frames=_frames_but_the_last)),
    "snapshot-without-losses": Plant(
        "a snapshot leaves lost outputs out", _set(ShuffleOutputs, records=_records_without_losses)
    ),
    "superseded-wins": Plant(
        "a later attempt takes the place of the winner", _set(ShuffleOutputs, _check=_check_only_losses)
    ),
    "lose-any-attempt": Plant("the loss of an old attempt drops the new one", _set(ShuffleOutputs, lose=_lose_any)),
    "forget-generation": Plant(
        "a late request is taken for the shuffle that has its number now", _set(Registry, _find=_find_current)
    ),
    "forget-incarnation": Plant(
        "a request of an earlier life of a worker is carried out in the present one's name", _forget_incarnation
    ),
    "forget-instance": Plant(
        "the end of a run ends all runs of its name",
        lambda: Registry._HANDLERS.update({UnregisterApp: _unregister_name}),
    ),
    "repeat-blocks": Plant("blocks sent again after a reconnect are held twice", _unchecked_totals(_receive_twice)),
    "drop-block-on-reconnect": Plant("a block is dropped after a reconnect", _unchecked_totals(_receive_one_less)),
    "two-attempts-published": Plant("a worker publishes two attempts of a map", _set(Catalog, claim=_claim_always)),
    "no-data-sync": Plant("a map output is published and not synced", _set(AttemptWriter, seal=_seal_without_sync)),
    "commit-in-background": Plant(
        "a worker answers before the registry has the commit", _set(Worker, commit=_publish_early)
    ),
    "skip-block-crc": Plant(
        "a reader takes blocks without their checksum", _set(tests.faults.simulate.client, verify=False)
    ),
    "loss-not-told": Plant("a worker drops an output and tells nobody", _set(Worker, give_up=_give_up_quietly)),
}
