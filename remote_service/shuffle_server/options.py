"""The server's options: what `flight-shuffle server --help` and docs/options.md list."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

from shuffle_api.address import Address, parse_address, parse_host
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_registry
from shuffle_api.options import OptionRow, amount_text, option, option_spelling, options_table
from shuffle_api.values import HOST, check_label, parse_labels
from shuffle_server.registry_names import parse_registries, shown
from shuffle_server.store.device import parse_device


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """One process with a master, a worker, or both."""

    data_dir: str = option(
        area="Storage",
        help="directory of the map outputs and the registry's journal, created if missing; several are separated by"
        " commas: outputs go to the one with most room, the journal to the first",
    )
    listen: str = option(
        "127.0.0.1:9110",
        area="Addresses",
        help="HOST:PORT of the control endpoint, the address users give; default port: 9110, 0: any free one",
    )
    master: str = option(
        "",
        area="Addresses",
        help="HOST:PORT of the master that a worker joins; several masters are separated by commas; of several"
        " registries: a=HOST:PORT,b=HOST:PORT; may be given several times",
    )
    registry: str = option(
        "", area="Cluster", help="name of this master's registry, of several that share the workers; it stays"
    )
    masters: str = option(
        "",
        area="Cluster",
        help="the masters of all registries that share the workers: a=HOST:PORT,b=HOST:PORT; may be given several"
        " times; the same for all masters",
    )
    metadata: str = option(
        "",
        secret=True,
        area="Storage",
        help="postgresql://USER@HOST/DATABASE: keep the registry there, not in --data-dir; of several masters with the"
        " same one leads and the others stand by",
    )
    data_listen: str = option(
        "",
        area="Addresses",
        help="HOST:PORT of the Flight data endpoint; default: --listen's host and port 9111, 0: any free one",
    )
    advertise: str = option(
        "",
        area="Addresses",
        help="host name or IP address under which clients reach this server; default: the host it listens on, or this"
        " machine's name",
    )
    label: str = option(
        "",
        area="Cluster",
        help="labels of this worker, such as rack=a,zone=b, for --copies-apart and clients' near and only; may be"
        " given several times",
    )
    copies_apart: str = option(
        "host",
        area="Cluster",
        help="label, such as rack, in which the workers of two copies of a map output differ if possible; host: their"
        " machines",
    )
    http_listen: str = option(
        "",
        area="Addresses",
        help="HOST:PORT of the page, its API, /metrics, /health and /ready, HTTPS with --tls-cert; default port: 9112,"
        " 0: any free one; default: none",
    )
    memory: int = option(
        1 << 30,
        unit="bytes",
        minimum=16 << 20,
        area="Memory",
        help="budget for data in flight; senders wait when it is used up",
    )
    durability: str = option(
        "written",
        choices=("written", "fsynced"),
        area="Storage",
        help="what a commit survives: written = the process, fsynced = the machine",
    )
    free_floor: float = option(
        1.0,
        unit="percent",
        minimum=0.0,
        maximum=99.0,
        area="Storage",
        help="part of each data directory's file system that stays free",
    )
    app_max_bytes: int = option(
        0, unit="bytes", minimum=0, area="Limits", help="most payload of one application at this worker; 0: no limit"
    )
    app_max_attempts: int = option(
        4096,
        minimum=1,
        area="Limits",
        help="most attempts that one application writes at this worker at once, each an open file",
    )
    app_max_calls: int = option(
        8192,
        minimum=1,
        area="Limits",
        help="most calls of one application to this worker at once, each a thread; counted with tokens only",
    )
    app_max_runs: int = option(1000, minimum=0, area="Limits", help="most runs of one application at once; 0: no limit")
    app_max_shuffles: int = option(
        20_000, minimum=0, area="Limits", help="most shuffles of one application; 0: no limit"
    )
    shuffle_max_blocks: int = option(
        10_000_000_000,
        minimum=0,
        area="Limits",
        help="most blocks, partitions times maps, of a shuffle; 0: no limit",
    )
    disk_timeout: float = option(
        30.0,
        unit="seconds",
        minimum=0.1,
        area="Timeouts",
        help="a data directory is taken out while a call to its file system takes longer; the registry refuses what it"
        " cannot record for so long",
    )
    recycle: int = option(
        1 << 30,
        unit="bytes",
        minimum=0,
        area="Storage",
        help="files of removed shuffles kept for a minute to be overwritten by the same application; 0: none",
    )
    merge_below: int = option(
        1 << 20,
        unit="bytes",
        minimum=0,
        area="Storage",
        help="map outputs up to this size, of many of which pulls take little, are compacted; 0: none are, on any disk",
    )
    device: str = option(
        "auto",
        area="Storage",
        help="the disks of --data-dir: rotational, network, solid, memory, or READS_PER_SECOND:MIB_PER_SECOND; auto:"
        " as the system reports",
    )
    page_cache: int = option(
        0,
        unit="bytes",
        minimum=0,
        area="Memory",
        help="page cache for map outputs: above half of it, they are read from the disk; 0: what the system and the"
        " container's limits leave",
    )
    tier: str = option(
        "",
        secret=True,
        area="Storage",
        help="object store for cold shuffles: s3://bucket/path?region=..., gs://, hdfs://; default: none",
    )
    tier_after: float = option(
        600.0,
        unit="seconds",
        minimum=0.0,
        area="Storage",
        help="a shuffle without writes and reads for so long is cold",
    )
    window: int = option(
        8 << 20, unit="bytes", minimum=1 << 20, area="Memory", help="most payload of a sender under way on one stream"
    )
    peer_max_connections: int = option(
        1000,
        minimum=1,
        area="Limits",
        help="most connections of one host to an endpoint, control or data; more are cut",
    )
    peer_timeout: float = option(
        60.0,
        unit="seconds",
        minimum=3.0,
        area="Timeouts",
        help="a connection whose peer answers nothing for so long, not even the system's probes, is cut",
    )
    peer_max_unread: int = option(
        512 << 20,
        unit="bytes",
        minimum=16 << 20,
        area="Limits",
        help="most bytes that a connection to the data endpoint has sent and no request has taken up, so the largest"
        " message; all together: --memory, or 64 MiB",
    )
    overload_timeout: float = option(
        60.0, unit="seconds", minimum=0.1, area="Timeouts", help="a push that waits for memory for longer is refused"
    )
    relay_timeout: float = option(
        120.0,
        unit="seconds",
        minimum=1.0,
        area="Timeouts",
        help="a relayed shuffle whose writer or reader is missing, silent or stuck for longer fails",
    )
    app_timeout: float = option(
        600.0,
        unit="seconds",
        minimum=1.0,
        area="Timeouts",
        help="an application without heartbeats for longer loses its data",
    )
    worker_timeout: float = option(
        60.0,
        unit="seconds",
        minimum=1.0,
        area="Timeouts",
        help="a worker without heartbeats for longer is lost; a restart of a worker must take less",
    )
    snapshot_every: int = option(
        200_000,
        minimum=1,
        unit="operations",
        area="Storage",
        help="operations between snapshots of the registry, at least as many as the last one holds: fewer make its"
        " restart faster",
    )
    drain: float = option(
        0.0,
        unit="seconds",
        minimum=0.0,
        area="Timeouts",
        help="on SIGTERM migrate all map outputs to other workers, for so long at most; a second signal stops at once",
    )
    staged_timeout: float = option(
        600.0, unit="seconds", minimum=1.0, area="Timeouts", help="an attempt without a writer for longer is dropped"
    )
    tls_cert: str = option(
        "",
        area="Security",
        help="file with the server's certificate (PEM), its signers' behind it: all endpoints use TLS",
    )
    tls_key: str = option("", area="Security", help="file with the private key (PEM) of --tls-cert")
    tls_client_ca: str = option(
        "",
        area="Security",
        help="file with certificates (PEM): clients must show a certificate that one of them signed",
    )
    tls_ca: str = option(
        "",
        area="Security",
        help="file with certificates (PEM) that signed those of the cluster's servers, for TLS among them",
    )
    secret_file: str = option(
        "",
        area="Security",
        help="file with the cluster secret, 32 bytes or more: calls need a token derived from it. Of several, one on"
        " each line, the first makes tokens; read again when it changes",
    )
    revoked_file: str = option(
        "",
        area="Security",
        help="file with names of applications, one on each line, whose tokens are refused; read again when it changes",
    )
    token_file: str = option(
        "",
        area="Security",
        help="file with this worker's own token, of flight-shuffle token --worker, instead of --secret-file: the"
        " master checks others' tokens; read again when it changes",
    )
    control_threads: int = option(
        16, minimum=1, area="Limits", help="changes that the control endpoint works on at once, and as many queries"
    )
    control_calls: int = option(
        1000,
        minimum=8,
        area="Limits",
        help="most calls of one host, or one application, to the control endpoint at once; one in 64 of them may wait"
        " for its message",
    )
    control_connections: int = option(
        10_000,
        minimum=8,
        area="Limits",
        help="most connections to the control endpoint, at most half of the limit of open files",
    )
    app_max_watches: int = option(
        1000,
        minimum=1,
        area="Limits",
        help="most streams on which one application watches losses; four times as many in all",
    )
    log_format: str = option(
        "text", choices=("text", "json"), area="Log", help="lines for people, or one JSON object per line"
    )
    log_file: str = option(
        "",
        area="Log",
        help="append the log to this file instead of standard error; SIGHUP opens it again after a rotation",
    )
    log_level: str = option(
        "info", choices=("debug", "info", "warning", "error"), area="Log", help="lowest level that is logged"
    )


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
        "registry",
        "masters",
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


_ALONE = {
    ("master", "data_dir"): "directory of the registry's journal, created if missing; of several, separated by commas,"
    " the first",
    ("worker", "data_dir"): "directory of the map outputs, created if missing; several are separated by commas: outputs"
    " go to the one with most room",
    ("worker", "data_listen"): "HOST:PORT of the Flight data endpoint, 0: any free one; default: 127.0.0.1:9111",
}
"""Help of options that are something else where a master or a worker runs alone."""


def options_of(role: str) -> list[OptionRow]:
    """The options that `flight-shuffle server`, `master` or `worker` takes; a worker's `master` is required."""
    rows = [replace(row, help=_ALONE.get((role, row.name), row.help)) for row in options_table(ServerOptions)]
    if role == "master":
        return [row for row in rows if row.name not in FOR_WORKERS]
    if role == "worker":
        return [
            replace(row, default="required") if row.name == "master" else row
            for row in rows
            if row.name not in FOR_MASTERS
        ]
    alone = ("master", "registry", "masters", "token_file", "metadata", "metadata_file")
    return [row for row in rows if row.name not in alone]


def split_directories(text: str) -> list[Path]:
    """The paths of a list `A,B,C`; asks no disk. Raises InvalidArgument when one is empty or named twice."""
    paths = [Path(part.strip()) for part in text.split(",")]
    if not all(part.strip() for part in text.split(",")) or len(set(map(os.path.abspath, paths))) < len(paths):
        raise InvalidArgument(
            f"--data-dir {text!r} names a directory twice, or an empty one",
            remedy="list different directories, commas between them",
        )
    return paths


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


def check_options(options: ServerOptions) -> None:
    """:raises InvalidArgument: a directory, an address, a label or a disk is none; the option is named."""
    parse_labels(options.label)
    split_directories(options.data_dir)
    _check_copies_apart(options.copies_apart)
    parse_device(options.device)
    if options.advertise:
        parse_host(options.advertise, "--advertise")
    control_listen(options)
    data_listen(options)
    if options.http_listen:
        http_listen(options.http_listen)
    if options.master:
        parse_registries(options.master, "--master")
    if options.registry:
        check_registry(options.registry)
    if options.masters and options.registry not in (found := parse_registries(options.masters, "--masters")):
        raise InvalidArgument(
            f"--masters {options.masters!r} does not have {shown(options.registry)}, which is this master's",
            remedy=f"give --registry one of these names: {', '.join(map(repr, found))}; or add it to --masters",
        )


def _check_copies_apart(key: str) -> None:
    try:
        if key != HOST:
            check_label(f"{key}=x")
    except InvalidArgument:
        raise InvalidArgument(
            f"--copies-apart {key!r} is no name of a label", remedy=f"give the KEY of a --label KEY=VALUE, or {HOST}"
        ) from None


def not_default(options: ServerOptions) -> str:
    """The options that differ from their defaults as they are given, those with secrets without their values."""
    rows, shown = {row.name: row for row in options_table(ServerOptions)}, []
    for field in fields(ServerOptions):
        value = getattr(options, field.name)
        if value != field.default:
            text = "***" if field.metadata["secret"] else amount_text(value, rows[field.name].unit)
            shown.append(f"{option_spelling(field.name)} {text}")
    return ", ".join(shown)
