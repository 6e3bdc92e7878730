"""What a client may register: bounds that its operator sets, asked before each registration."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_api.errors import QuotaExceeded
from shuffle_api.ids import name_of
from shuffle_api.registry.operations import Operation, RegisterApp, RegisterShuffle
from shuffle_api.registry.state import Registry
from shuffle_api.values import ShuffleSpec


@dataclass(frozen=True, slots=True)
class Quotas:
    """Per application: runs that are registered at once and the shuffles of all of them; per shuffle: partitions times
    maps. 0: no bound.
    """

    runs: int = 0
    shuffles: int = 0
    blocks: int = 0

    def check(self, registry: Registry, operation: Operation) -> None:
        """Check that an application or a shuffle may be registered; a registered one passes.

        :raises QuotaExceeded: it names the bound, the present count and the option.
        """
        if isinstance(operation, RegisterApp):
            self._check_run(registry, operation.app)
        elif isinstance(operation, RegisterShuffle) and not registry.has_current(operation.spec.id):
            self._check_shuffle(registry, operation.spec)

    def _check_run(self, registry: Registry, app: str) -> None:
        name = name_of(app)
        present = registry.runs_of(name)
        if self.runs and present >= self.runs and not registry.has_app(app):
            raise QuotaExceeded(
                f"application {name} has {present} runs, its quota is {self.runs}",
                remedy="unregister runs that have ended, or raise --app-max-runs",
            )

    def _check_shuffle(self, registry: Registry, spec: ShuffleSpec) -> None:
        if self.blocks and spec.partitions * spec.maps > self.blocks:
            raise QuotaExceeded(
                f"{spec.partitions} partitions of {spec.maps} maps are {spec.partitions * spec.maps} blocks,"
                f" a shuffle may have {self.blocks}",
                remedy="register fewer partitions or maps, or raise --shuffle-max-blocks",
                shuffle=spec.id,
            )
        name = name_of(spec.id.app)
        present = registry.shuffles_of(name)
        if self.shuffles and present >= self.shuffles:
            raise QuotaExceeded(
                f"application {name} has {present} shuffles, its quota is {self.shuffles}",
                remedy="unregister shuffles without readers, or raise --app-max-shuffles",
                shuffle=spec.id,
            )


NO_QUOTAS = Quotas()
