"""Reports reads of workers' local files to the workers now and then, so that they count them as reads."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_transport import messages
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.local_files import LocalFileAccess
from shuffle_transport.local_files.access import ACTION_SECONDS
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

REPORT_SECONDS = 5.0
LAST_SECONDS = 2.0  # that a worker may take when nothing is waited for any more


class ReadMetrics:
    """Counts, and reports every `REPORT_SECONDS`. Thread-safe.

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
