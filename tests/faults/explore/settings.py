"""The options of a schedule's clients."""

from __future__ import annotations

from shuffle_api.interfaces import OptionValue
from tests.faults.explore.cluster import Scene
from tests.faults.explore.schedule import Schedule

CALL_TIMEOUT_S, RETRY_S = 8.0, 8.0


def client_options(schedule: Schedule, scene: Scene) -> dict[str, OptionValue]:
    """What drivers and tasks open their plugin with."""
    return {
        "server": scene.server,
        "host": scene.host,
        "timeout": CALL_TIMEOUT_S,
        "retry": RETRY_S,
        **dict(schedule.options),
    }
