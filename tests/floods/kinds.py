"""Every kind of flood, by its name. Those that begin with `tenant-` have the token of one application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.floods import strangers, tenants, vanished
from tests.floods.hostile import Press
from tests.network_namespace import why_not


@dataclass(frozen=True, slots=True)
class Kind:
    """A flood.

    :ivar scene: which servers it is for (scene.SCENES).
    :ivar unbounded: why its memory has no bound; empty when it has.
    :ivar least_seconds: that it takes.
    :ivar needs: says what is missing for it.
    """

    name: str
    flood: Callable[[Press], None]
    scene: str = "server"
    unbounded: str = ""
    least_seconds: float = 0.0
    needs: Callable[[], str] = lambda: ""


VANISHED_SECONDS = 75.0  # a minute for the server to miss its peer, and then some
BY_GRPC = "gRPC expands a message before any code of this project sees it (docs/security.md)"
BY_FLIGHT = "Flight gives a stream its thread before any code of this project sees its token (docs/security.md)"
BY_LOOKS = "more may come between two looks at a connection than the bound says (docs/security.md)"

_ALL = (
    Kind("headers-control", strangers.headers_control),
    Kind("headers-data", strangers.headers_data),
    Kind("streams-data", strangers.streams_data, unbounded=BY_FLIGHT),
    Kind("connections", strangers.connections),
    Kind("bodies-control", strangers.bodies_control),
    Kind("bodies-data", strangers.bodies_data, unbounded=BY_LOOKS),
    Kind("bodies-whole", strangers.bodies_whole),
    Kind("bodies-in-bytes", strangers.bodies_in_bytes, unbounded=BY_LOOKS),
    Kind("http2", strangers.http2),
    Kind("resets", strangers.resets),
    Kind("pings", strangers.pings),
    Kind("monitoring", strangers.monitoring),
    Kind("tokens", strangers.tokens),
    Kind("compressed-control", strangers.compressed_control),
    Kind("compressed-data", strangers.compressed_data, unbounded=BY_GRPC),
    Kind("handshakes", strangers.handshakes, scene="tls"),
    Kind("token-questions", strangers.tokens, scene="cluster"),
    Kind("vanished", vanished.vanish, least_seconds=VANISHED_SECONDS, needs=why_not),
    Kind("tenant-idle-pushes", tenants.idle_pushes),
    Kind("tenant-silent-streams", tenants.silent_streams),
    Kind("tenant-silent-calls", tenants.silent_calls),
    Kind("tenant-pulls", tenants.pulls),
    Kind("tenant-bodies", tenants.bodies),
    Kind("tenant-connections", tenants.connections),
    Kind("tenant-listens", tenants.listens),
    Kind("tenant-attempts", tenants.attempts),
    Kind("tenant-watches", tenants.watches),
    Kind("tenant-registrations", tenants.registrations),
    Kind("tenant-statuses", tenants.statuses),
    Kind("tenant-heartbeats", tenants.heartbeats),
    Kind("tenant-reports", tenants.reports),
    Kind("tenant-lookups", tenants.lookups),
    Kind("tenant-compressed", tenants.compressed, unbounded=BY_GRPC),
    Kind("tenant-arrow-compressed", tenants.arrow_compressed),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
