"""`flight-shuffle server`, `master` and `worker`: the commands that serve."""

from __future__ import annotations

import functools
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from shuffle_api.errors import InvalidArgument, ShuffleError, ShuttingDown
from shuffle_api.periodic import aside
from shuffle_server.announced import opened_at
from shuffle_server.expansion import bound_in_program, keep_apart
from shuffle_server.options import ALIASES, ServerOptions, check_options, not_default, options_of
from shuffle_transport.command_line import Command, as_written, option_of, options_given, usage_error, with_origins
from shuffle_transport.option_sources import strongest

STOPPING = (signal.SIGTERM, signal.SIGINT)
LEFT = 0  # what this process puts where the numbers of signals come: it has started, or left its master
START_SECONDS = 5.0  # in which a start that a signal stops may end in order

ROLES = {
    "server": (
        "run a master and a worker in this process",
        "Run a shuffle server: a master and a worker in one process. Further workers may join it.",
    ),
    "master": ("run a master, for workers in other processes", "Run the master of a cluster."),
    "worker": ("run a worker of a master elsewhere", "Run a worker, which joins a master."),
}
log = logging.getLogger(__name__)

T = TypeVar("T")

SOCKET = "NOTIFY_SOCKET"
STATE_READY, STATE_STOPPING = "READY=1", "STOPPING=1"
SEND_SECONDS = 5.0  # for which the manager may be too busy to take it


def role_commands() -> Iterator[click.Command]:
    for role, (short, text) in ROLES.items():
        options = []
        for row in options_of(role):
            option = option_of(ServerOptions, row, ALIASES.get(row.name, ()))
            option.required = row.name == "master"
            options.append(option)
        directory = click.Argument(["dir"], required=False, metavar="[DIR]")
        text = f"{text}\n\nDIR is another way to give --data-dir."
        serve = functools.partial(_serve, role)
        yield Command(role, params=[directory, *options], callback=serve, help=text, short_help=short)


def options_from(role: str, context: click.Context) -> ServerOptions:
    """The options of a role from its parameters. Raises click.UsageError."""
    directories = set(strongest(context, ("dir", "data_dir")).values())
    if len(directories) > 1:
        raise click.UsageError("both DIR and --data-dir are given. To do: leave one of them out", context)
    context.params["data_dir"] = "".join(directories)
    if not context.params["data_dir"]:
        raise click.UsageError(
            f"the data directory is missing. To do: flight-shuffle {role} DIR, or give --data-dir", context
        )
    options = options_given(ServerOptions, context, options_of(role))
    try:
        check_options(options)
    except InvalidArgument as error:
        raise usage_error(error, ServerOptions) from None
    return options


class _Signals:
    """The signals that this process gets, as bytes in a pipe.

    The handlers do nothing: they run in the middle of whatever the main thread does, and could not even set an Event
    it waits for, whose lock may be held just then. The main thread waits for a byte in the pipe.

    :param hung_up: called, in the main thread, for SIGHUP.
    """

    def __init__(self, hung_up: Callable[[], None]) -> None:
        self._hung_up = hung_up
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        signal.set_wakeup_fd(self._writing)
        for number in (*STOPPING, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._stopping = False

    def stopping(self) -> bool:
        """Whether this process is to stop: `wait` has got a signal."""
        return self._stopping

    def wait(self) -> int:
        """Wait for a signal that stops this process, or LEFT; which it is."""
        while not self._stopping:
            number = self._next()
            if number == LEFT:
                return LEFT
            self._stopping = number != signal.SIGHUP
        return signal.SIGTERM

    def wait_seconds(self, seconds: float) -> None:
        """Wait so long, or until the next byte."""
        if select.select([self._reading], [], [], seconds)[0]:
            self._next()

    def left(self) -> None:
        os.write(self._writing, bytes([LEFT]))

    def ignore(self) -> None:
        for number in (*STOPPING, signal.SIGHUP):
            # Python takes handlers of its own away while it ends: a second signal would kill this process then.
            signal.signal(number, signal.SIG_IGN)

    def _next(self) -> int:
        number = os.read(self._reading, 1)[0]
        if number == signal.SIGHUP:
            self._hung_up()
        return number


def _serve(role: str, **_: Any) -> int:
    options = options_from(role, click.get_current_context())
    bound_in_program(bool(options.tier))  # before anything loads Arrow
    from shuffle_transport.grpc_polling import poll_in_program

    poll_in_program()  # before anything loads gRPC
    from shuffle_server.observe.logs import reopen_log, set_up_logging
    from shuffle_server.server import MasterServer, Running, Server, WorkerServer  # loads gRPC and Arrow
    from shuffle_server.store.directories import keep_private

    set_up_logging(options.log_format, options.log_level, file=options.log_file)
    keep_apart()
    keep_private()
    signals = _Signals(reopen_log)
    stands_by = functools.partial(notify, STATE_READY, "STATUS=stands by for the master that leads")
    roles: dict[str, Callable[[ServerOptions], Running]] = {
        "server": Server,
        "master": functools.partial(MasterServer, stopping=signals.stopping, stands_by=stands_by),
        "worker": functools.partial(WorkerServer, stopping=signals.stopping),
    }
    try:
        server = _started(functools.partial(roles[role], options), signals)
    except ShuffleError as error:
        if isinstance(error, ShuttingDown) and signals.stopping():
            return 0
        click.echo(f"flight-shuffle: {with_origins(as_written(str(error), ServerOptions))}", err=True)
        return 1
    _log_start(role, server.ready, options)
    announced = _announce(server.ready)
    if announced:
        notify(STATE_READY, f"STATUS=serves at {_listed(server.ready)}")
        _advise(role, dict(server.ready), options)
    if announced and isinstance(server, WorkerServer):
        server.when_left(signals.left)
    asked = announced and signals.wait() != LEFT
    notify(STATE_STOPPING)
    if asked and options.drain and isinstance(server, WorkerServer):
        server.begin_drain()
        signals.wait_seconds(options.drain)  # until it has left, or another signal comes
    signals.ignore()
    server.stop()
    logging.getLogger(__name__).info("the %s has stopped", role)
    logging.shutdown()
    # Everything that must be closed is. Threads of cut streams and uploads may still be inside Arrow and gRPC, and at
    # the usual end of a process those free what such threads use.
    os._exit(0 if announced else 1)


def _started(make: Callable[[], T], signals: _Signals) -> T:
    """What `make` returns or raises, in a thread of its own: this one ends the process at a signal, also while a call
    to a disk, a database or a name server does not return."""
    made = aside("start", make)
    made.add_done_callback(lambda _: signals.left())
    if signals.wait() != LEFT:
        signals.wait_seconds(START_SECONDS)  # until it has ended in order, or another signal comes
        if not made.done():
            os._exit(0)  # as after a power cut: every file is whole, or as it was
    return made.result()


def _log_start(role: str, ready: Sequence[tuple[str, str]], options: ServerOptions) -> None:
    from shuffle_server import __version__

    logging.getLogger(__name__).info(
        "flight-shuffle %s %s serves: %s; options: %s", __version__, role, _listed(ready), not_default(options)
    )


def _announce(ready: Sequence[tuple[str, str]]) -> bool:
    """Print the ready line. False: its reader is gone, so no process looks after this server."""
    try:
        print(f"ready {_listed(ready)}", flush=True)
    except OSError as error:
        logging.getLogger(__name__).error("the ready line cannot be written, so this server stops: %s", error)
        return False
    return True


def _listed(ready: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{name}={address}" for name, address in ready)


def _advise(role: str, ready: dict[str, str], options: ServerOptions) -> None:
    """At a terminal: where to look, and the next command."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return
    if "metrics" in ready:
        scheme = "https" if options.tls_cert else "http"
        url = f"{scheme}://{opened_at(ready['metrics'], options.advertise)}"
        page = f"page: {url}/   " if "control" in ready else ""  # a worker has none
        click.echo(f"{page}metrics: {url}/metrics", err=True)
    if "control" in ready:
        click.echo(f"next: flight-shuffle status --server {ready['control']}", err=True)
        click.echo(f"      flight-shuffle spark-conf --server {ready['control']}", err=True)
    click.echo(f"Ctrl-C stops this {role}.", err=True)


def notify(*states: str) -> bool:
    """Report to systemd, for a unit of `Type=notify`, at the socket that NOTIFY_SOCKET names.

    Send the states, which are `NAME=VALUE`. False: there is no manager, or it does not answer, which is logged.
    """
    path = os.environ.get(SOCKET, "")
    if not path:
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(SEND_SECONDS)
            sending.sendto("\n".join(states).encode(), address)
    except OSError as error:
        log.warning("the service manager at %s=%s was not told %s: %s", SOCKET, path, ", ".join(states), error)
        return False
    return True
