"""Options of the `remote` plugin."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_api.options import option
from shuffle_api.values import CONTENTS
from shuffle_transport.credential_files import CLIENT_OPTIONS


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How this process shuffles through a server."""

    server: str = option(
        "",
        help="HOST:PORT of the server's control endpoint, of several masters separated by commas; needed where a master"
        " is opened",
    )
    codec: str = option(
        "lz4", help="compression of blocks: none, lz4, zstd or zstd:LEVEL; chosen where the shuffle is registered"
    )
    content: str = option(
        "records", choices=CONTENTS, help="what the shuffles registered here hold; write_batch needs arrow"
    )
    replicas: int = option(
        1,
        minimum=1,
        help="workers that hold each map output of the shuffles registered here, 1 or 2: with 2 a worker may be lost",
    )
    block_bytes: int = option(
        1 << 20, unit="bytes", minimum=4 << 10, help="uncompressed bytes of one partition that make a block"
    )
    buffer_bytes: int = option(
        64 << 20, unit="bytes", minimum=1 << 20, help="most uncompressed bytes that one writer gathers before it sends"
    )
    push_bytes: int = option(
        8 << 20,
        unit="bytes",
        minimum=64 << 10,
        help="finished blocks that wait to be sent: half of them gather while the others are sent in one call",
    )
    timeout: float = option(120.0, unit="seconds", minimum=0.1, help="deadline of one call")
    retry: float = option(
        60.0, unit="seconds", minimum=0.0, help="how long to keep trying to reach a server that is away (restarting)"
    )
    host: str = option(
        "",
        help="name of this machine as the workers on it advertise it: map outputs go to those; default: its host name",
    )
    near: str = option(
        "",
        help="label of workers, KEY=VALUE, such as rack=a: where no worker of this host takes map outputs, they go to"
        " workers with this label if there are some",
    )
    only: str = option(
        "",
        help="label of workers, KEY=VALUE: only workers with it get map outputs of the application; chosen where the"
        " master is opened",
    )
    hand_over: str = option(
        "auto",
        choices=("auto", "off"),
        help="auto: a task that sees its worker's files, because it is on that host, writes and reads them instead of"
        " sending data over the network; off: it sends it all the same",
    )
    hand_over_from: int = option(
        1 << 20,
        unit="bytes",
        minimum=0,
        help="map outputs with less are pushed, which is one request; those of which a reader takes less than 32 KiB"
        " are pulled",
    )
    hand_over_codec: str = option(
        "none",
        choices=("none", "shuffle"),
        help="compression of what a task hands over, or pushes to an address of its own host: none, since no network"
        " is saved; shuffle: as the shuffle says, where most readers are on other hosts, or disks are small",
    )
    tls_ca: str = option("", help=CLIENT_OPTIONS["tls_ca"])
    tls_cert: str = option("", help=CLIENT_OPTIONS["tls_cert"])
    tls_key: str = option("", help=CLIENT_OPTIONS["tls_key"])
    secret_file: str = option("", help=CLIENT_OPTIONS["secret_file"])
    token: str = option("", secret=True, unless=("secret_file",), help=CLIENT_OPTIONS["token"])
