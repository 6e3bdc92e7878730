"""The registries that a worker serves, as one: each call about an application goes to the registry of that one."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from shuffle_api.errors import InvalidArgument, ShuttingDown
from shuffle_api.ids import MapAttempt, ShuffleId, registry_of
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_server.registry_names import shown
from shuffle_server.store.format import Description
from shuffle_server.worker.joined_registry import AGAIN_SECONDS, JoinedRegistry
from shuffle_server.worker.master_session import Incarnations
from shuffle_server.worker.remote_registry_view import RemoteRegistryView
from shuffle_server.worker.runtime import WorkerRuntime
from shuffle_transport.security import Credentials

log = logging.getLogger(__name__)


class JoinedRegistries:
    """A `RegistryView` of all registries. `serve`, then `join`; `end` and `close` at the end. Thread-safe.

    :param masters: the addresses of the masters of each, by its name.
    :param left: called when the worker has left all of them.
    """

    def __init__(
        self,
        masters: Mapping[str, str],
        data: WorkerRuntime,
        incarnation_file: Path,
        credentials: Credentials,
        left: Callable[[], object],
    ) -> None:
        self._data, self._left = data, left
        self._changed = threading.Condition()
        incarnations = Incarnations(incarnation_file)
        self.all = [
            JoinedRegistry(name, address, data, incarnations, credentials, self._has_changed)
            for name, address in masters.items()
        ]
        self._by_name = {each.name: each for each in self.all}

    # ------------------------------------------------------------------ joining and leaving

    def serve(self) -> None:
        """The worker listens."""
        for each in self.all:
            each.serve(self.begin_drain)

    def join(self, found: Sequence[Description], seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        """Return when one registry has been joined, and each of the others has been, or was away when asked: these are
        joined as soon as they are there.

        :param found: what is on the disks.
        :param stopping: asked while no registry has been joined.
        :raises ServerUnreachable, DeadlineExceeded: all were away for so many seconds.
        :raises ShuttingDown: the same, or `stopping` said so.
        :raises StaleEpoch: another process has this worker's id.
        :raises InvalidArgument: a master is of another registry.
        """
        self._report_strangers(found)
        for each in self.all:
            each.begin([one for one in found if registry_of(one.shuffle_id.app) == each.name])
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._is_settled(time.monotonic() > deadline):
                if stopping():
                    raise ShuttingDown("this worker stops before it has joined a master", remedy="start it again")
                self._changed.wait(AGAIN_SECONDS)
        for each in self.all:
            if each.failure is not None and (each.is_refused or not any(one.joined for one in self.all)):
                raise each.failure
        self._report_unjoined()

    def _report_unjoined(self) -> None:
        if missing := {name for each in self.all for name in each.session.registries} - set(self._by_name):
            log.warning(
                "this worker does not join %s, which shares the other workers; to do: name all in --master",
                ", ".join(map(shown, sorted(missing))),
            )

    def _has_changed(self) -> None:
        with self._changed:
            self._changed.notify_all()
        if self.drained:
            self._left()

    def _is_settled(self, late: bool) -> bool:
        return any(each.is_refused for each in self.all) or (
            all(each.joined or each.failure for each in self.all) and (late or any(each.joined for each in self.all))
        )

    def _report_strangers(self, found: Sequence[Description]) -> None:
        names = Counter(registry_of(each.shuffle_id.app) for each in found)
        for name in names.keys() - self._by_name.keys():
            log.warning(
                "%d map outputs are of %s, which this worker does not join: they stay, and nobody reads them; to do:"
                " name it in --master",
                names[name],
                shown(name),
            )

    def begin_drain(self) -> None:
        """Migrate what is held, then leave all registries; does not wait."""
        for each in self.all:
            each.drain.begin()

    @property
    def drained(self) -> bool:
        """Whether the worker has left all of them."""
        return all(each.has_left for each in self.all)

    def absent(self) -> str:
        """Why no master may count on this worker, empty while one does."""
        reasons = [each.session.absent() for each in self.all]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""

    def counted_on(self) -> dict[str, bool]:
        """Of each registry, by its name, whether its master counts on this worker."""
        return {each.name: not each.session.absent() for each in self.all}

    def end(self) -> None:
        """Begin nothing any more; idempotent."""
        for each in self.all:
            each.end()

    def close(self) -> None:
        """Close the connections; idempotent."""
        for each in self.all:
            each.close()

    # ------------------------------------------------------------------ RegistryView

    def _of(self, shuffle: ShuffleId) -> RemoteRegistryView:
        name = registry_of(shuffle.app)
        joined = self._by_name.get(name)
        if joined is None:
            raise InvalidArgument(
                f"application {shuffle.app!r} is of {shown(name)}, and this worker has joined"
                f" {', '.join(map(shown, self._by_name))}",
                remedy="name that registry in --master of this worker",
                shuffle=shuffle,
            )
        return joined.view

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        return self._of(shuffle).spec(shuffle)

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        return self._of(shuffle).opening(shuffle, map_id)

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        return self._of(shuffle).winner(shuffle, map_id)

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        return self._of(shuffle).outputs(shuffle)

    def shuffles(self) -> list[ShuffleId]:
        """Those of which this worker has files; some may be over."""
        return self._data.held_shuffles()

    def holder(self, worker: str) -> WorkerInfo | None:
        found = (each.view.holder(worker) for each in self.all)
        return next((info for info in found if info is not None), None)

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        return self._of(shuffle).commit(shuffle, output)

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        if registry_of(shuffle.app) in self._by_name:  # others learn of it when they are joined
            self._of(shuffle).lose(shuffle, output, reason)

    def place(self, shuffle: ShuffleId, avoid: Collection[str]) -> list[WorkerInfo]:
        """Up to three workers that take a copy of a map output, best first; those to avoid come last."""
        return self._of(shuffle).place(shuffle, avoid)
