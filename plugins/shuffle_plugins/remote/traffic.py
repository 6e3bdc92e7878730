"""How much of a process's map outputs went over the wire, and how much by file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from shuffle_api.errors import ShuffleError
from shuffle_transport.flight_client import Pulled
from shuffle_transport.local_files import FetchStream


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
