"""Options of the `pipelined` plugin."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_api.options import option
from shuffle_api.streaming import Alignment, Guarantee
from shuffle_api.values import CONTENTS
from shuffle_transport.credential_files import CLIENT_OPTIONS


@dataclass(frozen=True, slots=True)
class PipelinedOptions:
    """How this process streams. `guarantee` and `alignment` are chosen where the shuffle is registered."""

    guarantee: str = option(
        Guarantee.AT_LEAST_ONCE.value,
        choices=[guarantee.value for guarantee in Guarantee],
        help="what may happen to a record when a task fails",
    )
    alignment: str = option(
        Alignment.ALIGNED.value,
        choices=[alignment.value for alignment in Alignment],
        help="how barriers cut several inputs at once; with exactly_once",
    )
    alignment_timeout: float = option(1.0, unit="seconds", minimum=0.0, help="barriers overtake after so long")
    content: str = option(
        "records", choices=CONTENTS, help="what the shuffles registered here hold; write_batch needs arrow"
    )
    host: str = option("127.0.0.1", help="the address at which this process serves its outputs")
    relay: str = option(
        "",
        help="HOST:PORT of a worker's data endpoint: this process is reached through it, and listens nowhere itself",
    )
    memory: int = option(
        512 << 20, unit="bytes", minimum=16 << 20, help="budget of all queues, logs and windows of this plugin"
    )
    block_bytes: int = option(
        32 << 10, unit="bytes", minimum=64, help="records of one partition that make a block; a fuller one is sent"
    )
    flush_timeout: float = option(
        0.01, unit="seconds", minimum=0.0, help="how long a record may wait for its block to fill"
    )
    queue_bytes: int = option(
        4 << 20, unit="bytes", minimum=4 << 10, help="most unsent data of a writer before its writes wait"
    )
    log_bytes: int = option(
        32 << 20,
        unit="bytes",
        minimum=0,
        help="most data that a writer keeps in memory, sent and not acknowledged, to be replayed",
    )
    log_dir: str = option(
        "", help="directory in which writers keep data that was sent and is not acknowledged; empty: in memory only"
    )
    log_disk_bytes: int = option(
        1 << 30, unit="bytes", minimum=1 << 20, help="most data that a writer keeps in log_dir: the oldest goes first"
    )
    window: int = option(
        4 << 20, unit="bytes", minimum=1 << 20, help="most data of one map that a reader holds and has not processed"
    )
    debloat_target: float = option(
        1.0,
        unit="seconds",
        minimum=0.0,
        help="time in which a reader is to process the data on its way to it: windows shrink to that; 0: they stay",
    )
    codec: str = option("none", help="compression of blocks that have to wait anyway")
    timeout: float = option(
        60.0,
        unit="seconds",
        minimum=0.1,
        help="how long a write waits for room, and a read for a producer or data; half of it for the disk of log_dir",
    )
    keepalive: float = option(
        10.0, unit="seconds", minimum=0.05, help="a peer that is silent for 3 times that has failed"
    )
    linger: float = option(
        10.0, unit="seconds", minimum=0.0, help="how long close waits for connected readers of committed data"
    )
    local: bool = option(True, help="read this process's outputs without a connection")
    tls_ca: str = option("", help="file with certificates (PEM) that signed the other tasks': all connections use TLS")
    tls_cert: str = option("", help="file with this process's certificate (PEM), which names the option host")
    tls_key: str = option("", help=CLIENT_OPTIONS["tls_key"])
    tls_client_ca: str = option(
        "", help="file with certificates (PEM): peers need a certificate that one of them signed"
    )
    secret_file: str = option("", help=CLIENT_OPTIONS["secret_file"])
    token: str = option("", secret=True, unless=("secret_file",), help="the application's token")
