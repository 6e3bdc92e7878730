"""A master behind gRPC, for tests of those who talk to it."""

from __future__ import annotations

from shuffle_api.values import MapOutput
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.control import ControlOptions, ControlService
from shuffle_server.master.endpoint import CALLS, Limits, start_control
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.master.recovery import recover
from shuffle_server.master.serving import ServedTime
from shuffle_server.master.watching import MAX_WATCHES
from shuffle_server.security import OPEN, ServerSecurity
from tests.shuffle_server.master.scene import BEGIN, SHUFFLE
from tests.shuffle_server.master.simulated import SimulatedDirectory


class Scene:
    """A master behind gRPC, and its directory, which is simulated."""

    def __init__(
        self,
        security: ServerSecurity = OPEN,
        *,
        threads: int = 16,
        calls: int = CALLS,
        watches: int = MAX_WATCHES,
        per_host: int = 1000,
        served: ServedTime | None = None,
    ) -> None:
        self._served = served
        self.directory = SimulatedDirectory()
        self.master = Master(self.directory, sync=True)
        self.master.apply_all(BEGIN)
        self._security, self._watches = security, watches
        self._limits = Limits(threads, calls, per_host=per_host)
        self._serve(0)

    def _serve(self, port: int) -> None:
        membership = Membership(self.master, 60)
        service = ControlService(
            self.master, Cluster(membership, None), "0", 1, ControlOptions(max_watches=self._watches)
        )
        self.server, bound = start_control(
            service, membership, "127.0.0.1", port, self._limits, self._security, served=self._served
        )
        self.port, self.address = bound, f"127.0.0.1:{bound}"

    def serve_again(self) -> None:
        """Stop to listen, and listen at the same port."""
        self.server.stop(5).wait()
        self._serve(self.port)

    def close(self) -> None:
        self.server.stop(5).wait()
        self.master.close()

    def durable(self) -> list[MapOutput]:
        return recover(self.directory.after_power_cut()).registry.map_outputs(SHUFFLE)[0]
