"""A pull that ends early when the registry knows that it leads nowhere.

A worker that is stopped or cut off neither answers nor breaks the connection, so that a reader would wait for its
deadline. The master gives such a worker up sooner, and says so to those who watch. A pull that lasts listens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator

from shuffle_api.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    MapOutputLost,
    ShuffleError,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import StreamThread
from shuffle_api.values import LostMapOutput, MapOutput
from shuffle_plugins.remote.shuffle_events import ShuffleEvents
from shuffle_transport.flight_client import Pulled
from shuffle_transport.local_files import FetchStream

log = logging.getLogger(__name__)

SUBSCRIBE_SECONDS = 2.0  # most pulls are over by then, and cost the master nothing


class CancellableFetch:
    """The items of one pull of `outputs` from `worker`, once.

    :param start: begins it; may block for as long as a call may take.
    :param located: where the outputs lie now, others among them; may block, and raise ShuffleError.
    """

    def __init__(
        self,
        events: ShuffleEvents,
        shuffle: ShuffleId,
        worker: str,
        outputs: Collection[MapAttempt],
        start: Callable[[], FetchStream],
        located: Callable[[], Iterable[MapOutput]],
    ) -> None:
        self._events, self._shuffle, self._worker, self._start = events, shuffle, worker, start
        self._outputs, self._located = frozenset(outputs), located
        self._changed = threading.Condition()
        self._stream: FetchStream | None = None
        self._failure: ShuffleError | None = None  # of the start
        self._began = False
        self._reason: ShuffleError | None = None
        self._over = threading.Event()

    def __iter__(self) -> Iterator[Pulled | ShuffleError]:
        """Raises what the pull raises; MapOutputLost when an output of it is lost, StreamBroken when one has moved."""
        # Not joined: nothing ends a call to a worker that does not answer before its deadline does.
        StreamThread(f"pull-{self._worker}", self._fetch, self._failed).start()
        try:
            yield from self._started()
        except (StreamBroken, DeadlineExceeded) as error:
            if self._reason is not None:
                raise self._reason from error
            raise
        finally:
            self._over.set()
            self._events.leave(self._shuffle, self)
            if self._stream is not None:
                self._stream.cancel()

    def _started(self) -> FetchStream:
        with self._changed:
            began = self._changed.wait_for(lambda: self._began, SUBSCRIBE_SECONDS)
        if not began:
            self._listen()
        with self._changed:
            self._changed.wait_for(lambda: self._began or self._reason is not None)
            if self._stream is not None:
                return self._stream
            raise self._failure or self._reason or InternalError(f"the pull from worker {self._worker} did not begin")

    def _fetch(self) -> None:
        self._stream = self._start()
        with self._changed:
            self._began = True
            self._changed.notify()
        if self._over.is_set():  # nobody waits any more
            self._stream.cancel()
        elif not self._over.wait(SUBSCRIBE_SECONDS):
            self._listen()

    def _failed(self, error: ShuffleError) -> None:
        with self._changed:
            self._failure, self._began = error, True
            self._changed.notify()

    def _listen(self) -> None:
        try:
            self._events.listen(self._shuffle, self)
        except InvalidArgument:  # the plugin was closed: so is the reader
            return
        if self._over.is_set():
            self._events.leave(self._shuffle, self)

    def _break(self, error: ShuffleError) -> None:
        with self._changed:
            self._reason = self._reason or error
            self._changed.notify()
            if self._stream is not None:
                self._stream.cancel()

    # ------------------------------------------------------------------ for the news desk

    def lost(self, output: LostMapOutput) -> None:
        if output.output in self._outputs:
            self._break(
                MapOutputLost(
                    f"map {output.output.map} attempt {output.output.attempt} is lost: {output.reason}",
                    remedy="run this map again as a new attempt",
                    worker=output.worker.id,
                    shuffle=self._shuffle,
                    output=output.output,
                )
            )

    def began(self) -> None:
        # It may have moved before this pull listened, or while the master was away. The news do not wait for a call.
        StreamThread(f"look-{self._worker}", self._look, self._unknown).start()

    def _look(self) -> None:
        for output in self._located():
            self.moved(output)

    def _unknown(self, error: ShuffleError) -> None:
        """The pull goes on without: its own deadline ends it."""
        log.info("it is not known whether outputs of %s have moved: %s", self._shuffle, error)

    def moved(self, output: MapOutput) -> None:
        if output.output in self._outputs and self._worker not in output.workers:
            self._break(StreamBroken(f"{output.output} has left worker {self._worker}"))

    def ended(self, error: ShuffleError) -> None:
        """The pull goes on without: its own deadline ends it."""
