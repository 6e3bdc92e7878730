"""How much of a process's map outputs went over the wire, and how much by file; workers count the latter too."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_transport import messages
from shuffle_transport.flight_client import FlightClient, Pulled
from shuffle_transport.local_files import FetchStream, LocalFileAccess
from shuffle_transport.local_files.access import ACTION_SECONDS
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

REPORT_SECONDS = 5.0
LAST_SECONDS = 2.0  # that a worker may take when nothing is waited for any more


@dataclass(frozen=True, slots=True)
class RemoteStatistics:
    """Stored payload bytes since the plugin was opened.

    `pushed_bytes` went to workers over the wire, `handed_over_bytes` in files that they created; `pulled_bytes` came
    over the wire, `located_bytes` were read from the workers' files. What was written and then not committed counts
    too.
    """

    pushed_bytes: int = 0
    handed_over_bytes: int = 0
    pulled_bytes: int = 0
    located_bytes: int = 0

    def __add__(self, other: RemoteStatistics) -> RemoteStatistics:
        return RemoteStatistics(
            self.pushed_bytes + other.pushed_bytes,
            self.handed_over_bytes + other.handed_over_bytes,
            self.pulled_bytes + other.pulled_bytes,
            self.located_bytes + other.located_bytes,
        )


class RemoteTraffic:
    """Counts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = RemoteStatistics()

    def add(self, more: RemoteStatistics) -> None:
        with self._lock:
            self._total += more

    def located(self, count: int) -> None:
        """So many bytes were read from a file."""
        self.add(RemoteStatistics(located_bytes=count))

    def statistics(self) -> RemoteStatistics:
        """All so far."""
        return self._total


class CountedPull:
    """A pull over the wire whose bytes are counted at its end."""

    def __init__(self, stream: FetchStream, traffic: RemoteTraffic) -> None:
        self._stream, self._traffic = stream, traffic

    def __iter__(self) -> Iterator[Pulled | ShuffleError]:
        count = 0
        try:
            for item in self._stream:
                if isinstance(item, Pulled):
                    count += len(item.payload)
                yield item
        finally:
            self._traffic.add(RemoteStatistics(pulled_bytes=count))

    def cancel(self) -> None:
        self._stream.cancel()


class ReadMetrics:
    """Counts reads of workers' local files, and reports them to the workers every `REPORT_SECONDS`. Thread-safe.

    :param client: the client of a worker. Raises ShuffleError.
    """

    def __init__(self, local_files: LocalFileAccess, client: Callable[[str], FlightClient]) -> None:
        self._local_files, self._client = local_files, client
        self._lock = threading.Lock()
        self._counts: dict[str, dict[ShuffleId, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self._task = PeriodicTask("read-metrics", self._report, REPORT_SECONDS)

    def add(self, worker: str, shuffle: ShuffleId, blocks: int, size: int) -> None:
        """So many blocks and bytes were read."""
        with self._lock:
            counts = self._counts[worker][shuffle]
            counts[0] += blocks
            counts[1] += size
        self._task.start()

    def close(self) -> None:
        """Report the last counts."""
        self._task.close()
        self._report(LAST_SECONDS)

    def _report(self, timeout: float = ACTION_SECONDS) -> None:
        with self._lock:
            counts = dict(self._counts)
            self._counts.clear()
        for worker, shuffles in counts.items():
            reads = [
                pb.FileReads(shuffle=messages.key_of(shuffle), blocks=blocks, bytes=size)
                for shuffle, (blocks, size) in shuffles.items()
            ]
            try:
                client = self._client(worker)
                nonce = self._local_files.nonce(worker, client)
                if nonce is not None:
                    self._local_files.act(client, "tell-reads", pb.TellReadsRequest(nonce=nonce, reads=reads), timeout)
            except ShuffleError as error:  # nobody waits for it
                log.info("worker %s was not told what has been read of its files: %s", worker, error)
