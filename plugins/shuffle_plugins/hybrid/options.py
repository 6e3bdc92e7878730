"""Options of the `hybrid` plugin: those of `remote`, and how blocks are offered beside."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from shuffle_api.interfaces import Options
from shuffle_api.options import option
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_transport.credential_files import CLIENT_OPTIONS


@dataclass(frozen=True, slots=True)
class HybridOptions(RemoteOptions):
    """How this process writes to the store and offers the same to readers that are there."""

    live_host: str = option("127.0.0.1", help="the address at which this process serves its outputs")
    relay: str = option(
        "",
        help="HOST:PORT of a worker's data endpoint: this process is reached through it, and listens nowhere itself",
    )
    memory: int = option(
        256 << 20,
        unit="bytes",
        minimum=16 << 20,
        help="budget of blocks that wait for live readers, and of their windows",
    )
    lane_bytes: int = option(
        16 << 20,
        unit="bytes",
        minimum=64 << 10,
        help="most data that one writer keeps for live readers beside the store",
    )
    wait: float = option(
        10.0,
        unit="seconds",
        minimum=0.01,
        help="a live reader that takes no blocks for longer reads them from the store",
    )
    flush_timeout: float = option(
        0.1,
        unit="seconds",
        minimum=0.001,
        help="how long a record waits for its block to fill while a live reader waits for it",
    )
    window: int = option(
        4 << 20, unit="bytes", minimum=1 << 20, help="most data of one map that a reader holds and has not processed"
    )
    keepalive: float = option(
        10.0, unit="seconds", minimum=0.05, help="a peer that is silent for 3 times that has failed"
    )
    linger: float = option(
        5.0,
        unit="seconds",
        minimum=0.0,
        help="how long close waits for live readers of committed data; they read the rest from the store",
    )
    local: bool = option(True, help="read this process's outputs without a connection")
    tls_client_ca: str = option(
        "", help="file with certificates (PEM): peers need a certificate that one of them signed"
    )

    def store(self) -> Options:
        """The options of the plugin `remote`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(RemoteOptions)}

    def live(self) -> PipelinedOptions:
        """What an endpoint of the plugin `pipelined` is to know. Nobody waits for it as long as for the store."""
        return PipelinedOptions(
            content=self.content,
            host=self.live_host,
            relay=self.relay,
            memory=self.memory,
            window=self.window,
            timeout=min(self.timeout, 3 * self.keepalive),
            keepalive=self.keepalive,
            linger=self.linger,
            local=self.local,
            tls_client_ca=self.tls_client_ca,
            **{name: getattr(self, name) for name in CLIENT_OPTIONS},
        )
