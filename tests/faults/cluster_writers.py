"""Writes a workload to a cluster in which things fail, as an engine would: lost outputs are written again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt
from shuffle_api.testing.oracle import Workload, fill
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle

WRITERS, ATTEMPTS = 4, 10


def write_all(
    plugin: RemoteShuffle,
    handle: ShuffleHandle,
    workload: Workload,
    committing: Callable[[MapAttempt], object] = lambda attempt: None,
) -> list[MapAttempt]:
    """The attempts that were told they have won, in the order of the maps.

    :param committing: called with each attempt just before it commits.
    :raises TimeoutError: a map was lost in each of its attempts.
    """

    def write_map(map_id: int) -> MapAttempt:
        for attempt in range(ATTEMPTS):
            try:
                with plugin.writer(handle, MapAttempt(map_id, attempt)) as writer:
                    fill(writer, workload.written(MapAttempt(map_id, attempt)))
                    committing(MapAttempt(map_id, attempt))
                    return writer.commit().output
            except MapOutputLost:  # what its worker held of it is gone
                continue
        raise TimeoutError(f"map {map_id} was lost {ATTEMPTS} times")

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(write_map, range(workload.maps)))
