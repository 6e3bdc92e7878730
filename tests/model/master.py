"""The product's master, and how much work the calls to it are."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.events import Event, LostOutput, WorkerLost
from shuffle_api.values import MapOutput
from shuffle_server.master.client import Identity
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.commit_control import CommitService
from shuffle_server.master.committing import Asked
from shuffle_server.master.control import ControlService
from shuffle_server.master.liveness import AppLiveness
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.options import ServerOptions
from shuffle_server.proto import registry_pb2
from shuffle_transport import messages
from tests.model.clock import Clock

LOOK_SECONDS = 5.0  # between two looks for silent workers and applications
SAMPLE = 10  # of many equal calls
NEVER = 1 << 60  # a snapshot is written beside the work, whose processor time is measured here


@dataclass(slots=True)
class Calls:
    """Those of one method, and their processor time."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class MeasuredMaster:
    """A master with a log that is written and not synced. Requests and replies are bytes, as in gRPC."""

    def __init__(self, directory: Path, clock: Clock, worker_timeout: float) -> None:
        app_timeout = ServerOptions(data_dir="").app_timeout
        liveness = AppLiveness(app_timeout, clock)
        self._master = Master(directory, snapshot_every=NEVER, liveness=liveness)
        self._membership = Membership(self._master, worker_timeout, clock=clock, served=clock)
        heartbeat = max(1, int(app_timeout / 4))
        self._control = ControlService(self._master, Cluster(self._membership, None), "model", heartbeat)
        self._commits = CommitService(self._master, self._membership)
        self._clock = clock
        self.calls: defaultdict[str, Calls] = defaultdict(Calls)
        self.load: Counter[int] = Counter()
        """Calls in each second."""
        self.busy: defaultdict[int, float] = defaultdict(float)
        """Processor time in each second."""
        self.losses: list[tuple[float, float, int]] = []
        """When workers were declared lost, the processor time of that, and how many outputs went with them."""
        self.listener: Callable[[Event], None] = lambda event: None
        """Receives the losses that `maintain` finds."""
        self._events: list[Event] = []
        self._master.subscribe(self._happened)

    @property
    def looked(self) -> int:
        """Workers that were looked at to place map outputs."""
        return self._membership.looked

    def ask(self, method: str, request: Message) -> Any:
        """A call of an application, or of a worker but for `commit`. Raises ShuffleError."""
        service = self._control if hasattr(self._control, method) else self._commits
        data, kind = request.SerializeToString(), type(request)

        def run() -> Any:
            reply = getattr(service, method)(kind.FromString(data))
            reply.SerializeToString()
            return reply

        return self._measured(method, run)

    def ask_often(self, method: str, request: Message, times: int) -> Any:
        """So many equal calls, of which a few are made: the others count as these."""
        made = min(times, SAMPLE)
        calls, before = self.calls[method], self.calls[method].seconds
        replies = [self.ask(method, request) for _ in range(made)]
        rest, spent = times - made, calls.seconds - before
        second = int(self._clock())
        calls.count += rest
        calls.seconds += spent / made * rest
        self.load[second] += rest
        self.busy[second] += spent / made * rest
        return replies[0]

    def commit(self, identity: Identity, commits: Sequence[tuple[ShuffleId, MapOutput]]) -> list[ShuffleError | None]:
        """A request with commits of one worker: why each is refused, None when it stands."""
        request = registry_pb2.CommitRequest(
            identity=identity.message(),
            commits=(
                registry_pb2.Commit(shuffle=messages.key_of(id), output=messages.output_message(output))
                for id, output in commits
            ),
        )
        asked = [Asked(request.SerializeToString())]
        (answer,) = self._measured("Commits", lambda: self._commits.commits(asked))
        if isinstance(answer, ShuffleError):
            return [answer] * len(commits)
        results = registry_pb2.CommitReply.FromString(answer).results
        return [messages.typed_error(each.error) if each.HasField("error") else None for each in results]

    def maintain(self) -> None:
        """Look for silent workers and applications."""
        before = self.calls["expire"].seconds
        events = self._measured("expire", self._look)
        lost = Counter(map(type, events))
        if lost[WorkerLost]:
            spent = self.calls["expire"].seconds - before
            self.losses.append((self._clock(), spent, lost[LostOutput]))
        for event in events:
            self.listener(event)

    def _look(self) -> list[Event]:
        self._events.clear()
        self._master.expire()
        self._membership.expire()
        return list(self._events)

    def _happened(self, event: Event) -> None:
        if isinstance(event, LostOutput | WorkerLost):
            self._events.append(event)

    def _measured(self, method: str, run: Callable[[], Any]) -> Any:
        begun = time.process_time()
        try:
            return run()
        finally:
            spent = time.process_time() - begun
            calls = self.calls[method]
            calls.count += 1
            calls.seconds += spent
            calls.longest = max(calls.longest, spent)
            second = int(self._clock())
            self.load[second] += 1
            self.busy[second] += spent

    def close(self) -> None:
        self._master.close()
