"""The driver's side: registers shuffles with the embedded registry of its process."""

from __future__ import annotations

import threading

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.interfaces import ShuffleMaster
from shuffle_api.values import MapOutput, ShuffleHandle, ShuffleSpec
from shuffle_plugins.pipelined.driver_registry import DriverRegistry
from shuffle_plugins.pipelined.stream_config import StreamConfig

NAME = "pipelined"


class PipelinedMaster(ShuffleMaster):
    """Registers a run of its application when made. Its shuffles live as long as its process.

    :param endpoint: where tasks of other processes reach the coordinator.
    """

    def __init__(
        self, driver_registry: DriverRegistry, run: str, config: StreamConfig, codec: str, content: str, endpoint: str
    ) -> None:
        self._coordinator, self._run, self._config = driver_registry, run, config
        self._codec, self._content, self._endpoint = codec, content, endpoint
        self._lock = threading.Lock()
        self._next, self._closed = 0, False
        driver_registry.register_app(self._run)

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        with self._lock:
            if self._closed:
                raise InvalidArgument(f"the master of application {name_of(self._run)!r} is closed")
            number = self._next if shuffle is None else shuffle
            id = ShuffleId(self._run, number).anew()
            spec = ShuffleSpec(id, partitions, maps, self._codec, self._content)
            spec = self._coordinator.register_shuffle(spec, self._config)
            self._next = max(self._next, number + 1)
        return ShuffleHandle(NAME, spec, self._endpoint)

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return self._coordinator.map_outputs(handle.spec.id)

    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        self._coordinator.unregister_shuffle(handle.spec.id)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._coordinator.unregister_app(self._run)
