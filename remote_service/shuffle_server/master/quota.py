"""What a client may register: bounds that its operator sets, asked before each registration."""

from __future__ import annotations

from shuffle_api.errors import QuotaExceeded
from shuffle_api.ids import name_of
from shuffle_api.registry.state import Registry
from shuffle_api.values import ShuffleSpec


def check_quota(registry: Registry, spec: ShuffleSpec, max_shuffles: int, max_blocks: int) -> None:
    """Whether a shuffle may be registered; one that is registered already may. 0: no bound.

    :raises QuotaExceeded: its application has as many as it may, or partitions times maps is too much.
    """
    if registry.has_current(spec.id):
        return
    if max_blocks and spec.partitions * spec.maps > max_blocks:
        raise QuotaExceeded(
            f"{spec.partitions} partitions of {spec.maps} maps are {spec.partitions * spec.maps} blocks,"
            f" a shuffle may have {max_blocks}",
            remedy="register fewer partitions or maps, or raise --shuffle-max-blocks",
            shuffle=spec.id,
        )
    name = name_of(spec.id.app)
    present = registry.shuffles_of(name)
    if max_shuffles and present >= max_shuffles:
        raise QuotaExceeded(
            f"application {name} has {present} shuffles, its quota is {max_shuffles}",
            remedy="unregister shuffles that are no longer read, or raise --app-max-shuffles",
            shuffle=spec.id,
        )
