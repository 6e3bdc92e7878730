"""What must hold whatever happens, and what may excuse a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shuffle_api.clock import LOOK_SHARE
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.events import AppRemoved, Event, LostOutput, MapOutputCommitted, OutputMoved, ShuffleRemoved
from shuffle_api.registry.operations import (
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    LoseWorkerOutputs,
    Operation,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.registry.state import Registry
from shuffle_server.master.files import LocalDirectory
from shuffle_server.master.recovery import recover
from tests.faults.simulate.cluster import Cluster, Node
from tests.faults.simulate.locks import Here

SILENCE = 0.8
"""The part of a timeout for which a serving master must have received no heartbeat, before a loss is excused."""


def is_asked_for(operation: Operation, event: Event) -> bool:
    """Whether an operation of the registry may bring this event about: it is of what the operation names."""
    match operation, event:
        case LoseMapOutput(), LostOutput() | OutputMoved():
            return (event.shuffle, event.output.output) == (operation.shuffle, operation.output)
        case LoseWorkerOutputs(), LostOutput() | OutputMoved():
            map = event.output.output.map
            return event.shuffle == operation.shuffle and operation.first <= map < operation.end
        case CommitMapOutput(), MapOutputCommitted() | OutputMoved():
            return (event.shuffle, event.output.output) == (operation.shuffle, operation.output.output)
        case LoseWorker(), LostOutput():
            return operation.worker in event.output.workers
        case UnregisterShuffle(), ShuffleRemoved():
            return event.id == operation.id or (not operation.id.generation and event.id.current() == operation.id)
        case UnregisterApp(), ShuffleRemoved():
            return event.id.app == operation.app
        case UnregisterApp(), AppRemoved():
            return event.app == operation.app
        case ExpireApps(), ShuffleRemoved():
            return event.id.app in operation.apps
        case ExpireApps(), AppRemoved():
            return event.app in operation.apps
    return isinstance(operation, LoseWorker)


class Oracle:
    """The expectations of one schedule. `violations` says which did not hold."""

    def __init__(self, cluster: Cluster, trace: Callable[[str], None]) -> None:
        self._cluster, self._trace = cluster, trace
        self.violations: list[str] = []
        self.workers: dict[str, Node] = {}  # by the id that the registry has for them
        self.excused: dict[str, str] = {}  # nodes and applications that may lose what they have, and why
        self._seen: dict[str, float] = {}  # when the last heartbeat was received
        self._incarnations: dict[str, int] = {}  # that have joined last
        self._pardoned: dict[str, int] = {}  # workers that have begun anew, and when: earlier outputs may be lost
        self._committed: dict[tuple[ShuffleId, MapAttempt, str], int] = {}  # when; all in steps of the scheduler
        self._stands: list[tuple[float, float]] = []  # when the master stood still
        self._since = 0.0
        self.acked: dict[ShuffleId, dict[int, MapAttempt]] = {}  # of shuffles that are in use
        self.runs: set[str] = set()  # that are registered, and not about to end

    def blame(self, what: str) -> None:
        self._trace(f"VIOLATION: {what}")
        self.violations.append(f"{what} (at {Here.scheduler.now:.3f} s)")
        Here.scheduler.end()

    # ------------------------------------------------------------------ who was silent

    def master_stands(self, still: bool) -> None:
        """The master stops serving, or serves again."""
        now = Here.scheduler.now
        if still and self._since == 0.0:
            self._since = now
        elif not still and self._since:
            self._stands.append((self._since, now))
            self._since = 0.0

    def _forgiven(self, since: float, timeout: float) -> float:
        """Seconds after `since` that do not count as silence: each stop of the master, less LOOK_SHARE of `timeout`."""
        stands = [*self._stands, (self._since, Here.scheduler.now)] if self._since else self._stands
        spans = (end - max(start, since) for start, end in stands if end > since)
        return sum(max(0.0, span - LOOK_SHARE * timeout) for span in spans)

    def seen(self, who: str, timeout: float) -> None:
        """A heartbeat was received."""
        self._note(who, timeout)
        self._seen[who] = Here.scheduler.now

    def _note(self, who: str, timeout: float) -> None:
        if who in self._seen:
            silent = Here.scheduler.now - self._seen[who] - self._forgiven(self._seen[who], timeout)
            if silent > SILENCE * timeout:
                self.excused.setdefault(who, f"silent for {silent:.1f} s")

    def handled(self, method: str, request: Any) -> None:
        """The master has carried out a request."""
        shape = self._cluster.shape
        if method == "Beat":
            self.seen(request.identity.worker, shape.worker_timeout)
        elif method == "Join":
            self.seen(request.worker.id, shape.worker_timeout)
            self._joined(request.worker.id, request.incarnation)
        elif method in ("Heartbeat", "RegisterApp"):
            self.seen(request.app, shape.app_timeout)

    def _joined(self, worker: str, incarnation: int) -> None:
        """Why an earlier life of the worker may lose what it has is no excuse for the present one."""
        if incarnation > self._incarnations.get(worker, 0):
            self._incarnations[worker] = incarnation
            if self.excused.pop(worker, None) is not None:
                self._pardoned[worker] = Here.scheduler.steps

    def excuse(self, node: Node, why: str) -> None:
        """What lies at this node may get lost."""
        self.excused.setdefault(node.name, why)

    def in_doubt(self, worker: str) -> None:
        """The answer to a worker's join was lost: a commit that is under way when it joins again may get lost."""
        self.excused.setdefault(worker, "a join was not answered")

    def _excused(self, worker: str, committed: int) -> bool:
        """Whether a worker may lose what was committed there at that step."""
        self._note(worker, self._cluster.shape.worker_timeout)
        node = self.workers.get(worker)
        pardoned = committed <= self._pardoned.get(worker, -1)
        return pardoned or worker in self.excused or node is None or node.name in self.excused

    # ------------------------------------------------------------------ what was promised

    def committed(self, shuffle: ShuffleId, map_id: int, winner: MapAttempt) -> None:
        """A writer was told which attempt has won."""
        promised = self.acked.get(shuffle)
        if promised is None:
            return  # the driver has ended it meanwhile
        before = promised.get(map_id)
        if before not in (None, winner):
            assert before is not None
            if self._losses(shuffle, winner):  # it was lost while the answer was under way, and another one has won
                self._must_be_lost(shuffle, winner, f"map {map_id} is won by {before}")
                return
            self._must_be_lost(shuffle, before, f"map {map_id} was won by {before}, now by {winner}")
        promised[map_id] = winner

    def located(self, shuffle: ShuffleId, winners: dict[int, MapAttempt], lost: set[int]) -> None:
        """A reader was told where the outputs are."""
        for map_id, promised in self.acked.get(shuffle, {}).items():
            if map_id in lost:
                self._must_be_lost(shuffle, promised, f"the output of map {map_id} is lost")
            elif map_id not in winners:
                self.blame(f"{shuffle} map {map_id}: {promised} was acknowledged, and the registry has no record of it")
            elif winners[map_id] != promised:
                self._must_be_lost(shuffle, promised, f"readers of map {map_id} are sent to {winners[map_id]}")

    def _must_be_lost(self, shuffle: ShuffleId, output: MapAttempt, what: str) -> None:
        """The registry has recorded the loss of this attempt, and there was a reason for it."""
        losses = self._losses(shuffle, output)
        if losses is None:
            return
        if not losses:
            self.blame(f"{shuffle} {output} was acknowledged: {what}, and no loss is recorded")
        for event in losses:
            self._check_loss(event)

    def _losses(self, shuffle: ShuffleId, output: MapAttempt) -> list[LostOutput] | None:
        """The losses of an attempt that are recorded; None if that cannot be asked now."""
        registry = self._registry()
        if registry is None:
            return None
        try:
            return [event for event in registry.losses(shuffle) if event.output.output == output]
        except Exception as error:  # noqa: BLE001  # what it is shows elsewhere
            self._trace(f"{shuffle}: {error}")
            return None

    def _check_loss(self, event: LostOutput) -> None:
        shuffle, output = event.shuffle, event.output
        committed = {worker: self._committed.get((shuffle, output.output, worker), 0) for worker in output.workers}
        if not any(self._excused(worker, step) for worker, step in committed.items()):
            self.blame(f"{event.shuffle} {event.output.output} was lost without need: {event.reason}")

    def corrupt(self, worker: str, error: Exception) -> None:
        """A reader got blocks that are not what was written, and noticed."""
        node = self.workers.get(worker)
        if node is None or node.name not in self.excused:
            self.blame(f"worker {worker} serves what was not written there: {error}")

    def refused(self, run: str, error: Exception) -> None:
        """A live driver was told that its application, or its shuffle, is not there."""
        self._note(run, self._cluster.shape.app_timeout)
        if run not in self.excused:
            self.blame(f"live application {run} was dropped: {error}")

    def applied(self, operation: Operation, events: tuple[Event, ...]) -> None:
        """The registry has made a change."""
        if isinstance(operation, CommitMapOutput):
            key = operation.shuffle, operation.output.output, operation.output.worker
            self._committed.setdefault(key, Here.scheduler.steps)
        for event in events:
            if not is_asked_for(operation, event):
                self.blame(f"{operation} brings about {event}")

    # ------------------------------------------------------------------ restarts and the end

    def _registry(self) -> Any:
        server = self._cluster.master.server
        return None if server is None else server._control.master.registry

    def master_started(self) -> None:
        """What was acknowledged is there after a restart."""
        registry = self._registry()
        known = {spec.id for spec in registry.shuffles()}
        for shuffle in self.acked:
            if shuffle not in known:
                self.refused(shuffle.app, RuntimeError(f"shuffle {shuffle} is not there after a restart"))
                continue
            winners = {output.output.map: output.output for output in registry.map_outputs(shuffle)[0]}
            lost = {event.output.output.map for event in registry.lost(shuffle)}
            self.located(shuffle, winners, lost)

    def same_after_replay(self) -> None:
        """The state that the files lead to is the one in memory. Called when nothing is under way."""
        master = self._cluster.master
        if master.server is None:
            return
        live = master.server._control.master.registry.copy()
        master.stop_down()
        master.mend()
        again = recover(LocalDirectory(_journal(master))).registry
        if live != again:
            self.blame("the log and the snapshot do not lead to the registry's state")

    def snapshot_is_whole(self) -> None:
        """The operations that a snapshot of this moment would hold lead to the same state."""
        live = self._registry()
        if live is None:
            return
        again = Registry()
        for operation in live.operations():
            again.apply(operation)
        if again != live:
            self.blame("a snapshot of the registry does not lead to its state")

    def left(self) -> list[str]:
        """The runs that the registry has."""
        registry = self._registry()
        return [] if registry is None else [record.app for record in registry.apps()]

    def nothing_left(self) -> None:
        """All runs have ended, or are dead: the registry has dropped them."""
        if left := self.left():
            self.blame(f"applications that ended, or are dead, do not expire: {', '.join(left)}")


def _journal(master: Node) -> Any:
    from pathlib import Path

    return Path(master.disks[0].path) / "master"
