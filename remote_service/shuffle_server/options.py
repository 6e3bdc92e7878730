"""The server's options: what `flight-shuffle server --help` and docs/options.md list."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from shuffle_api.address import Address, parse_address, parse_addresses
from shuffle_api.options import OptionRow, amount_text, option, option_spelling, options_table
from shuffle_api.values import parse_labels


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """One process with a master, a worker, or both."""

    data_dir: str = option(
        help="directory of the map outputs and the registry's journal, created if missing; several are separated by"
        " commas: outputs go to the one with most room, the journal to the first"
    )
    listen: str = option(
        "127.0.0.1:9110",
        help="HOST:PORT of the control endpoint, the address users give; an IPv6 address in brackets; a HOST alone"
        " means port 9110, port 0 takes any free one",
    )
    master: str = option(
        "",
        help="HOST:PORT of the master's control endpoint, which a worker joins, of several masters that stand by"
        " for one another separated by commas; for a worker only",
    )
    metadata: str = option(
        "",
        secret=True,
        help="postgresql://USER@HOST/DATABASE: keep the registry there, not in --data-dir; of several masters with the"
        " same one leads and the others stand by",
    )
    data_listen: str = option(
        "",
        help="HOST:PORT of the Flight data endpoint; a HOST alone means port 9111, port 0 takes any free one; default:"
        " --listen's host and 9111, or any free port where --listen takes any",
    )
    advertise: str = option(
        "",
        help="host name or IP address under which clients reach this server; default: the host it listens on, or this"
        " machine's name where that is 0.0.0.0 or [::]",
    )
    label: str = option(
        "",
        help="labels of this worker, KEY=VALUE,KEY=VALUE, such as rack=a,zone=b: for --copies-apart and for the options"
        " near and only of clients; may be given several times",
    )
    copies_apart: str = option(
        "host",
        help="key of the label, such as rack, in which the workers of two copies of a map output differ if possible;"
        " host: their machines",
    )
    http_listen: str = option(
        "",
        help="HOST:PORT of the page, its API, /metrics, /health and /ready over HTTP, with --tls-cert over HTTPS; a"
        " HOST alone means port 9112, port 0 takes any free one; default: none",
    )
    memory: int = option(
        1 << 30, unit="bytes", minimum=16 << 20, help="budget for data in flight; senders wait when it is used up"
    )
    durability: str = option(
        "written",
        choices=("written", "fsynced"),
        help="what a commit survives: written = the process, fsynced = the machine",
    )
    free_floor: float = option(
        1.0, unit="percent", minimum=0.0, help="part of each data directory's file system that stays free"
    )
    app_max_bytes: int = option(
        0, unit="bytes", minimum=0, help="most payload that one application may hold at this worker; 0: no limit"
    )
    app_max_attempts: int = option(
        4096,
        minimum=1,
        help="most attempts of map tasks that one application may write at this worker at once, each with a file open;"
        " no more than the limit of open files leaves room for in any case",
    )
    app_max_calls: int = option(
        8192,
        minimum=1,
        help="most calls to this worker that one application may have under way, each of which has a thread; counted"
        " where tokens are wanted",
    )
    app_max_runs: int = option(
        1000, minimum=0, help="most runs that one application may have registered at once; 0: no limit"
    )
    app_max_shuffles: int = option(
        20_000, minimum=0, help="most shuffles that one application may have registered; 0: no limit"
    )
    shuffle_max_blocks: int = option(
        10_000_000_000,
        minimum=0,
        help="most blocks that a shuffle may be registered for, partitions times maps; 0: no limit",
    )
    disk_timeout: float = option(
        30.0,
        unit="seconds",
        minimum=0.1,
        help="a data directory in which a call to the file system takes longer is taken out until its calls return;"
        " what the registry's journal cannot record for so long is refused",
    )
    recycle: int = option(
        1 << 30,
        unit="bytes",
        minimum=0,
        help="files of removed shuffles kept for a minute to be written over by the same application; 0 keeps none",
    )
    merge_below: int = option(
        1 << 20,
        unit="bytes",
        minimum=0,
        help="where pulls take little of many map outputs that are no larger than this, these are copied into larger"
        " files ordered by partition; 0: no outputs are, whatever the disk",
    )
    device: str = option(
        "auto",
        help="what the disks of --data-dir are: rotational, network, solid, memory, or READS_PER_SECOND:MIB_PER_SECOND;"
        " auto: as the system says. Map outputs with blocks that are small for the disk are copied into files ordered"
        " by partition, unless memory holds them",
    )
    page_cache: int = option(
        0,
        unit="bytes",
        minimum=0,
        help="the page cache that map outputs can count on; where they are more than half of it, they are read from the"
        " disk; 0: what the system and the limits of its container leave",
    )
    tier: str = option(
        "",
        secret=True,
        help="object store that cold shuffles move to: s3://bucket/path?region=..., gs://, hdfs://; default: none",
    )
    tier_after: float = option(
        600.0, unit="seconds", minimum=0.0, help="a shuffle that nobody has written or read for so long is cold"
    )
    window: int = option(
        8 << 20, unit="bytes", minimum=1 << 20, help="most payload a sender may have under way on one stream"
    )
    peer_max_connections: int = option(
        1000, minimum=1, help="most connections of one host to an endpoint, control or data; more are cut"
    )
    peer_timeout: float = option(
        60.0,
        unit="seconds",
        minimum=3.0,
        help="a connection whose peer answers nothing for so long, not even the system's own probes, is cut",
    )
    peer_max_unread: int = option(
        512 << 20,
        unit="bytes",
        minimum=16 << 20,
        help="most that a connection to the data endpoint may have sent before a request takes it up, so the largest"
        " message; with more it is cut. All connections together may have sent as much as --memory, or 64 MiB",
    )
    overload_timeout: float = option(
        60.0, unit="seconds", minimum=0.1, help="how long a push waits for memory before it is refused"
    )
    relay_timeout: float = option(
        120.0,
        unit="seconds",
        minimum=1.0,
        help="how long a relayed shuffle waits for a writer or reader that is missing, silent or stuck before it fails",
    )
    app_timeout: float = option(
        600.0, unit="seconds", minimum=1.0, help="an application silent for longer loses its data"
    )
    worker_timeout: float = option(
        60.0,
        unit="seconds",
        minimum=1.0,
        help="a worker silent for longer is given up; a restart of a worker must take less",
    )
    snapshot_every: int = option(
        200_000,
        minimum=1,
        unit="operations",
        help="after so many, or as many as the last one held if these are more, the registry writes a snapshot: fewer"
        " make its restart faster and its log smaller",
    )
    drain: float = option(
        0.0,
        unit="seconds",
        minimum=0.0,
        help="on SIGTERM hand all map outputs over to other workers before stopping, for so long at most; a second"
        " signal stops at once; 0: stop at once",
    )
    staged_timeout: float = option(
        600.0, unit="seconds", minimum=1.0, help="an attempt that nobody writes to is dropped after this"
    )
    tls_cert: str = option(
        "", help="file with the server's certificate (PEM), who signed it behind it; given: all endpoints use TLS"
    )
    tls_key: str = option("", help="file with the private key (PEM) of --tls-cert")
    tls_client_ca: str = option(
        "", help="file with certificates (PEM); given: clients must show a certificate that one of them signed"
    )
    tls_ca: str = option(
        "",
        help="file with the certificates (PEM) of who signed those of the cluster's servers, for TLS among them",
    )
    secret_file: str = option(
        "",
        help="file with the cluster secret, 32 bytes or more; given: calls need a token derived from it. With several,"
        " one on each line, the first makes tokens and those of all are taken; it is read again when it changes",
    )
    revoked_file: str = option(
        "",
        help="file with the names of applications, one on each line, whose tokens are refused; it is read again when it"
        " changes",
    )
    token_file: str = option(
        "",
        help="file with this worker's own token, of flight-shuffle token --worker, instead of --secret-file: the master"
        " is asked about the tokens of others; it is read again when it changes",
    )
    control_threads: int = option(
        16, minimum=1, help="changes that the control endpoint works on at once, and as many queries"
    )
    control_calls: int = option(
        1000,
        minimum=8,
        help="calls to the control endpoint that one host, or one application, may have under way; one in 64 of"
        " them may wait for its message",
    )
    control_connections: int = option(
        10_000,
        minimum=8,
        help="connections to the control endpoint, at most half of the files that the process may open; those beyond"
        " are closed at once",
    )
    app_max_watches: int = option(
        1000, minimum=1, help="streams of one application on which losses are watched; four times as many in all"
    )
    log_format: str = option(
        "text", choices=("text", "json"), help="lines for people, or one JSON object per line (docs/operations.md)"
    )
    log_file: str = option(
        "", help="file to append the log to, instead of standard error; SIGHUP opens it again, after it was moved away"
    )
    log_level: str = option("info", choices=("debug", "info", "warning", "error"), help="how much goes to the log")


CONTROL_PORT, DATA_PORT, HTTP_PORT = 9110, 9111, 9112  # where an option gives a host alone

ALIASES = {"http_listen": ("--metrics-listen",)}
"""Further names of options on the command line."""


FOR_WORKERS = frozenset(
    (
        "master",
        "token_file",
        "data_listen",
        "label",
        "memory",
        "free_floor",
        "app_max_bytes",
        "app_max_attempts",
        "app_max_calls",
        "tier",
        "tier_file",
        "tier_after",
        "merge_below",
        "device",
        "page_cache",
        "recycle",
        "window",
        "peer_max_unread",
        "overload_timeout",
        "staged_timeout",
        "drain",
    )
)
FOR_MASTERS = frozenset(
    (
        "listen",
        "metadata",
        "metadata_file",
        "app_max_runs",
        "app_max_shuffles",
        "app_max_watches",
        "shuffle_max_blocks",
        "copies_apart",
        "app_timeout",
        "worker_timeout",
        "control_threads",
        "control_calls",
        "control_connections",
        "snapshot_every",
    )
)


def options_of(role: str) -> list[OptionRow]:
    """The options that `flight-shuffle server`, `master` or `worker` takes; a worker's `master` is required."""
    rows = options_table(ServerOptions)
    if role == "master":
        return [row for row in rows if row.name not in FOR_WORKERS]
    if role == "worker":
        return [
            replace(row, default="required") if row.name == "master" else row
            for row in rows
            if row.name not in FOR_MASTERS
        ]
    return [row for row in rows if row.name not in ("master", "token_file", "metadata", "metadata_file")]


def control_listen(options: ServerOptions) -> Address:
    """Where the control endpoint listens. Raises InvalidArgument naming the option."""
    return parse_address(options.listen, "--listen", any_port=True, port=CONTROL_PORT)


def data_listen(options: ServerOptions) -> Address:
    """Where the data endpoint listens. Raises InvalidArgument naming the option."""
    if options.data_listen:
        return parse_address(options.data_listen, "--data-listen", any_port=True, port=DATA_PORT)
    control = control_listen(options)
    return Address(control.host, DATA_PORT if control.port else 0)


def http_listen(listen: str) -> Address:
    """Where `--http-listen` says. Raises InvalidArgument naming the option."""
    return parse_address(listen, "--http-listen", any_port=True, port=HTTP_PORT)


def check_addresses(options: ServerOptions) -> None:
    """:raises InvalidArgument: an address or a label is none; the option is named."""
    parse_labels(options.label)
    control_listen(options)
    data_listen(options)
    if options.http_listen:
        http_listen(options.http_listen)
    if options.master:
        parse_addresses(options.master, "--master")


def not_default(options: ServerOptions) -> str:
    """The options that differ from their defaults as they are given, those with secrets without their values."""
    rows, shown = {row.name: row for row in options_table(ServerOptions)}, []
    for field in fields(ServerOptions):
        value = getattr(options, field.name)
        if value != field.default:
            text = "***" if field.metadata["secret"] else amount_text(value, rows[field.name].unit)
            shown.append(f"{option_spelling(field.name)} {text}")
    return ", ".join(shown)
