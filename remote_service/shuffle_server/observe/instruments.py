"""What the server's code reports to: one object per server, passed down; nothing global."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from shuffle_api.errors import ShuffleError
from shuffle_api.registry.events import AppRemoved, Event, LostOutput, WorkerLost
from shuffle_server.observe import families
from shuffle_server.observe.families import BOTH, Family, Parts
from shuffle_server.observe.traffic import Traffic

T = TypeVar("T")


class Push:
    """One push stream, while it is open."""

    outcome = "broken"

    def completed(self) -> None:
        self.outcome = "completed"

    def refused(self) -> None:
        self.outcome = "refused"


class Instruments:
    """Counters and histograms that are fed where things happen. Thread-safe. `registry` has those of `parts`, the parts
    of a server that run in this process."""

    def __init__(self, parts: Parts = BOTH) -> None:
        self.parts = parts
        self.registry = CollectorRegistry()
        self.traffic = Traffic()
        self.commit_seconds = self._histogram(families.COMMIT_SECONDS)
        # By outcome, looked up once: a label's lookup costs as much as what it is looked up for.
        push_seconds = self._histogram(families.PUSH_SECONDS)
        self._push_seconds = {outcome: push_seconds.labels(outcome) for outcome in families.PUSH_OUTCOMES}
        self._first_byte = self._histogram(families.PULL_FIRST_BYTE)
        self._control_seconds = self._histogram(families.CONTROL_SECONDS)
        commits = self._counter(families.COMMITS)
        self._commits = {outcome: commits.labels(outcome) for outcome in families.COMMIT_OUTCOMES}
        self._refusals = self._counter(families.REFUSALS)
        self._lost = self._counter(families.OUTPUTS_LOST)
        self._workers_lost = self._counter(families.WORKERS_LOST)
        self._apps_removed = self._counter(families.APPS_REMOVED)
        self._monitoring_cut = self._counter(families.MONITORING_CUT)
        self._bodies_refused = self._counter(families.BODIES_REFUSED)

    @contextmanager
    def push(self) -> Iterator[Push]:
        """A push stream is open inside. It counts as broken unless the body says how it ended."""
        push, started = Push(), time.monotonic()
        with self.traffic.push():
            try:
                yield push
            finally:
                self._push_seconds[push.outcome].observe(time.monotonic() - started)

    def pull(self, messages: Generator[T, None, None], started: float) -> Iterator[T]:
        """The same messages, watched. `started` is when the pull was asked for (time.monotonic).

        Flight draws them from threads of its own: they are made in the context in which this was called.
        """
        return self._watched(messages, started, contextvars.copy_context())

    @contextmanager
    def whole_pull(self) -> Iterator[None]:
        """A pull that is answered at once is made inside."""
        started = time.monotonic()
        with self.traffic.pull():
            yield
        self._first_byte.observe(time.monotonic() - started)

    def _watched(self, messages: Generator[T, None, None], started: float, context: contextvars.Context) -> Iterator[T]:
        with self.traffic.pull():
            first = True
            try:
                while (message := context.run(next, messages, None)) is not None:
                    if first:
                        self._first_byte.observe(time.monotonic() - started)
                        first = False
                    yield message
            finally:
                messages.close()

    def committed(self, outcome: str) -> None:
        """A commit was answered: "won", "repeated" or "superseded"."""
        self._commits[outcome].inc()

    def refused(self, endpoint: str, error: ShuffleError) -> None:
        """The "data" or "control" endpoint refused something."""
        self._refusals.labels(endpoint, error.code.name).inc()

    def monitoring_cut(self) -> None:
        """A connection to the endpoint for monitoring was closed before it was answered."""
        self._monitoring_cut.inc()

    def body_refused(self) -> None:
        """A batch was refused since Arrow has compressed its body."""
        self._bodies_refused.inc()

    def control_call(self, method: str, seconds: float) -> None:
        """A control call was answered. `method` is one that the service has."""
        self._control_seconds.labels(method).observe(seconds)

    def happened(self, event: Event) -> None:
        """A listener for the master's events."""
        if isinstance(event, LostOutput):
            self._lost.inc()
        elif isinstance(event, WorkerLost) and not event.drained:
            self._workers_lost.inc()
        elif isinstance(event, AppRemoved):
            self._apps_removed.labels(event.reason).inc()

    def _counter(self, family: Family) -> Counter:
        counter = Counter(family.name, family.help, family.labels, registry=self._registry_of(family))
        for values in family.combinations():
            counter.labels(*values)
        return counter

    def _histogram(self, family: Family) -> Histogram:
        histogram = Histogram(
            family.name, family.help, family.labels, registry=self._registry_of(family), buckets=families.SECONDS
        )
        for values in family.combinations():
            histogram.labels(*values)
        return histogram

    def _registry_of(self, family: Family) -> CollectorRegistry | None:
        return self.registry if set(family.parts) & set(self.parts) else None
