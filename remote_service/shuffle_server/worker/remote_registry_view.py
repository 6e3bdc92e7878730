"""The registry as a worker in another process sees it: it asks the master, and caches facts that cannot change."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace

from shuffle_api.errors import MapOutputLost, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_server.master.client import Identity, RegistryClient
from shuffle_server.store.catalog import Catalog
from shuffle_server.worker.master_session import MasterSession
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials

RETRY_SECONDS = 60.0
"""How long a request waits for a master that is away: it may be restarting, and then running jobs wait and go on."""

KEPT_SPECS = 10_000
KEPT_HOLDERS = 10_000


class RemoteRegistryView:
    """A `Coordinator` for a worker at the master at `address`. Close it at the end.

    :param held: the worker's files: a shuffle is registered for as long as the worker keeps it.
    """

    def __init__(self, address: str, session: MasterSession, held: Catalog, credentials: Credentials) -> None:
        self._session, self._held = session, held
        self._control = ControlClient(
            address, client="flight-shuffle-worker", retry=RETRY_SECONDS, credentials=credentials
        )
        self._registry = RegistryClient(address, retry=RETRY_SECONDS, credentials=credentials)
        self._lock = threading.Lock()
        self._specs: dict[ShuffleId, ShuffleSpec] = {}
        self._holders: dict[str, WorkerInfo] = {}

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        self._session.check_taking()
        self._session.report_losses(shuffle, RETRY_SECONDS)  # what is gone from here must not be taken for committed
        spec, outputs, _ = self._page(shuffle, map_id, map_id + 1)
        return spec, outputs[0] if outputs else None

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        with self._lock:
            spec = self._specs.get(shuffle)
        if spec is not None and shuffle in self._held:
            return spec
        return self._page(shuffle, 0, 1)[0]

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        outputs = self._page(shuffle, map_id, map_id + 1)[1]
        return outputs[0] if outputs else None

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        found: list[MapOutput] = []
        first: int | None = 0
        while first is not None:
            _, outputs, first = self._page(shuffle, first, 0)
            found += outputs
        return found

    def shuffles(self) -> list[ShuffleId]:
        """Those of which this worker has files; some may be over."""
        return self._held.shuffles()

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        self._session.check_taking()

        def ask(identity: Identity) -> MapOutput:
            # A worker that was given up drops its outputs before it has its next identity. So what this one still holds
            # is there, or this identity is refused.
            if not self._held.holds(shuffle, output.output):
                raise MapOutputLost(
                    f"{output.output} was dropped when it was committed: the worker had been given up",
                    remedy="write this map again as a new attempt",
                    worker=output.worker,
                    shuffle=shuffle,
                    output=output.output,
                )
            return self._registry.commit(shuffle, output, identity)

        winner = self._session.as_joined(ask, RETRY_SECONDS)
        self._session.settle()
        return winner

    def commit_all(self, shuffle: ShuffleId, outputs: Sequence[MapOutput]) -> list[MapOutput | ShuffleError]:
        """What became of each of many: its output, that of the attempt that had won its map, or why it is refused."""
        return self._registry.commit_all(shuffle, outputs, self._session.identity)

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        self._session.lose(shuffle, output, reason)

    def place(self, shuffle: ShuffleId, avoid: Collection[str]) -> list[WorkerInfo]:
        """Up to three workers that take a copy of a map output, best first; those to avoid come last."""
        avoid = list(avoid)[-messages.MOST_AVOIDED :]
        request = pb.PlaceRequest(shuffle=messages.key_of(shuffle), avoid=avoid)

        def ask(identity: Identity) -> pb.PlaceReply:
            request.copy_from = identity.worker
            reply: pb.PlaceReply = self._control.call("Place", request)
            return reply

        reply = self._session.as_joined(ask, RETRY_SECONDS)
        return [messages.worker_info(worker) for worker in reply.workers]

    def holder(self, worker: str) -> WorkerInfo | None:
        with self._lock:
            return self._holders.get(worker)

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._registry.close()
        self._control.close()

    def _page(self, shuffle: ShuffleId, first: int, end: int) -> tuple[ShuffleSpec, list[MapOutput], int | None]:
        """The shuffle, a page of its outputs and where the next one begins."""
        request = pb.LocateRequest(shuffle=messages.key_of(shuffle), first_map=first, end_map=end)
        reply: pb.LocateReply = self._control.call("Locate", request)
        whole = replace(shuffle, generation=reply.generation)
        spec = ShuffleSpec(whole, reply.partitions, reply.maps, reply.codec, reply.content, reply.replicas or 1)
        with self._lock:
            if len(self._specs) >= KEPT_SPECS:
                self._specs.clear()
            self._specs[whole] = spec
            if len(self._holders) >= KEPT_HOLDERS:
                self._holders.clear()
            self._holders.update({worker.id: messages.worker_info(worker) for worker in reply.workers})
        return spec, list(map(messages.map_output, reply.outputs)), reply.next_map if reply.more else None
