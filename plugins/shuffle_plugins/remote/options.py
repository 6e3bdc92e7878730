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
        help="HOST:PORT of the server's control endpoint, several masters separated by commas, of any registry; needed"
        " to open a master",
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
        help="1 or 2 workers hold each map output of the shuffles registered here: with 2 a worker may be lost",
    )
    block_bytes: int = option(
        1 << 20, unit="bytes", minimum=4 << 10, help="uncompressed bytes of one partition that make a block"
    )
    buffer_bytes: int = option(
        64 << 20, unit="bytes", minimum=1 << 20, help="most uncompressed bytes that a writer gathers before it sends"
    )
    push_bytes: int = option(
        8 << 20,
        unit="bytes",
        minimum=64 << 10,
        help="finished blocks that wait to be sent: half of them gather while the others are sent",
    )
    timeout: float = option(120.0, unit="seconds", minimum=0.1, help="deadline of one call")
    retry: float = option(
        60.0, unit="seconds", minimum=0.0, help="how long a server that cannot be reached is tried again"
    )
    host: str = option(
        "",
        help="this machine's name as the workers on it advertise it: map outputs go to those; default: its host name",
    )
    near: str = option(
        "",
        help="label of workers, such as rack=a, that get map outputs if no worker of this host takes them",
    )
    only: str = option(
        "",
        help="label of workers: only those get map outputs of the application; chosen where the master is opened",
    )
    hand_over: str = option(
        "auto",
        choices=("auto", "off"),
        help="auto: a task that sees its worker's files, on the same host, writes and reads them directly; off: it"
        " uses the network",
    )
    hand_over_from: int = option(
        1 << 20,
        unit="bytes",
        minimum=0,
        help="smaller map outputs are pushed in one request, and those of which a reader takes less than 32 KiB are"
        " pulled",
    )
    hand_over_codec: str = option(
        "none",
        choices=("none", "shuffle"),
        help="compression of local files and of pushes to an address of this host; shuffle: the shuffle's codec, for"
        " readers on other hosts or small disks",
    )
    tls_ca: str = option("", help=CLIENT_OPTIONS["tls_ca"])
    tls_cert: str = option("", help=CLIENT_OPTIONS["tls_cert"])
    tls_key: str = option("", help=CLIENT_OPTIONS["tls_key"])
    secret_file: str = option("", help=CLIENT_OPTIONS["secret_file"])
    token: str = option("", secret=True, unless=("secret_file",), help=CLIENT_OPTIONS["token"])
