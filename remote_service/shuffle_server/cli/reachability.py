"""Checks of a server as a client on this machine sees it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shuffle_api.address import Address, parse_addresses
from shuffle_api.errors import ShuffleError
from shuffle_api.tables import time_shown
from shuffle_server import __version__
from shuffle_server.cli.connection import control_client
from shuffle_transport.command_line import Finding
from shuffle_transport.progress import Progress
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Keyring, TlsFiles

if TYPE_CHECKING:
    from shuffle_transport.control_client import ControlClient

MOST_SKEW_SECONDS = 5.0
SOON_SECONDS = 14 * 86400.0  # a certificate that is good for less is worth a warning


def check_server(server: str, keys: Keyring, timeout: float, progress: Progress) -> Iterator[Finding]:
    """Each address, then what the master that leads says of itself and of its workers."""
    addresses = parse_addresses(server, "--server")
    for address in addresses:
        progress.at(0, 1, f"master {address}")
        yield _check_connection(f"master {address}", address, len(addresses) > 1, timeout)
    asked = time.time()
    try:
        with control_client(server, keys.for_cluster(), timeout=timeout) as client:
            hello = client.hello()
            answered = time.time()
            yield from _check_hello(hello, (asked, answered))
            yield from _check_status(client)
    except ShuffleError as error:
        yield Finding("server", "failed", error.message, error.remedy)
        return
    if keys.tls is not None:
        yield _check_certificate(addresses[0], keys.tls, timeout)
    for number, worker in enumerate(hello.workers):
        progress.at(number, len(hello.workers), f"worker {worker.id}")
        yield from _check_worker(worker, addresses, keys.tls, timeout)


def _check_connection(what: str, address: Address, may_stand_by: bool, timeout: float) -> Finding:
    try:
        with socket.create_connection((address.host, address.port), timeout):
            return Finding(what, "ok", "it takes connections")
    except socket.gaierror as error:
        fix = "correct the name, or the name service of this machine"
        return Finding(what, "failed", f"the name {address.host} does not resolve: {error.strerror}", fix)
    except OSError as error:
        seen = f"no connection: {error.strerror or error}"
        if may_stand_by:
            return Finding(what, "warning", seen, "nothing, if it stands by: a standby does not listen")
        return Finding(
            what, "failed", seen, "see that the server runs and listens there, and what the firewall lets in"
        )


def _check_hello(hello: pb.HelloReply, asked: tuple[float, float]) -> Iterator[Finding]:
    release = hello.server.rpartition("/")[2]
    seen = f"server {release}, this machine {__version__}, protocol {hello.protocol}"
    if release == __version__:
        yield Finding("version", "ok", seen)
    else:
        yield Finding("version", "warning", seen, "install the same release on both sides: docs/operations.md")
    if hello.unix_seconds:
        skew = max(0.0, asked[0] - hello.unix_seconds, hello.unix_seconds - asked[1])
        if skew > MOST_SKEW_SECONDS:
            fix = "run a time service on both machines: tokens and certificates expire by the clock"
            yield Finding("clocks", "failed", f"they differ by {skew:.0f} s", fix)
        else:
            yield Finding("clocks", "ok", f"they differ by less than {skew + asked[1] - asked[0] + 0.1:.1f} s")
    if not hello.workers:
        yield Finding("workers", "failed", "none has joined", "start flight-shuffle worker --master with this address")


def _check_status(client: ControlClient) -> Iterator[Finding]:
    """Whether the token is good for a look at everything, and the releases of the workers."""
    try:
        status = client.call("Status", pb.StatusRequest(limit=1))
    except ShuffleError as error:
        yield Finding("token", "warning", error.message, error.remedy)
        return
    yield Finding("token", "ok", "it may look at everything")
    release = status.server.rpartition("/")[2]
    for state in status.states:
        if state.release not in ("", release):
            seen = f"release {state.release}, the master {release}"
            fix = "go on with the upgrade: docs/operations.md has its order"
            yield Finding(f"version of worker {state.worker}", "warning", seen, fix)


def _check_certificate(address: Address, tls: TlsFiles, timeout: float) -> Finding:
    context = ssl.create_default_context(cadata=tls.ca.decode("ascii"))
    try:
        with socket.create_connection((address.host, address.port), timeout) as plain:
            with context.wrap_socket(plain, server_hostname=address.host) as secured:
                certificate = secured.getpeercert() or {}
    except (OSError, ValueError) as error:
        return Finding(
            f"certificate of {address}",
            "failed",
            str(error),
            "give --tls-ca the certificate of who signed the server's, which has to name this host",
        )
    left = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()
    seen = f"it is good for {time_shown(left)} more"
    if left < SOON_SECONDS:
        return Finding(f"certificate of {address}", "warning", seen, "renew it, and restart the server with it")
    return Finding(f"certificate of {address}", "ok", seen)


def _check_worker(
    worker: pb.Worker, masters: tuple[Address, ...], tls: TlsFiles | None, timeout: float
) -> Iterator[Finding]:
    from shuffle_server.security import is_loopback  # loads gRPC

    announced = Address(worker.host, worker.port)
    what = f"worker {worker.id} announced as {announced}"
    if announced.is_wildcard or (is_loopback(worker.host) and not all(is_loopback(each.host) for each in masters)):
        seen = "other machines cannot reach this address"
        yield Finding(
            what, "failed", seen, "start the worker with --advertise: the name or address clients reach it by"
        )
        return
    found = _check_connection(what, announced, False, timeout)
    if found.state == "failed":
        fix = "start the worker with --advertise and a fixed --data-listen port, and let the firewall pass it"
        found = Finding(what, "failed", found.seen, fix)
    yield found
    if worker.silent:
        yield Finding(f"worker {worker.id}", "warning", "it is silent", "see its log, and its way to the master")
    if tls is not None and found.state == "ok":
        yield _check_certificate(announced, tls, timeout)
