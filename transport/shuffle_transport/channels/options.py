"""How a channel behaves."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_api.options import option


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """One end's choices. `codec`, `resume` and `keepalive` are the client's; the server follows."""

    window: int = option(64 << 20, unit="bytes", minimum=1 << 20, help="most credit this end grants a channel")
    codec: str = option("none", help="what blocks are compressed with while they would have to wait for credit")
    resume: bool = option(False, help="survive a broken connection: both ends keep what is not acknowledged")
    resume_timeout: float = option(30.0, unit="seconds", minimum=0, help="how long a broken channel may be away")
    keepalive: float = option(
        10.0,
        unit="seconds",
        minimum=0,
        help="a client says something this often; who is silent for 3 times that is taken for dead; 0: off",
    )
    relay_wait: float = option(
        0.0, unit="seconds", minimum=0, help="how long who is called through a relay may take to be known there"
    )


DEFAULT_OPTIONS = ChannelOptions()
