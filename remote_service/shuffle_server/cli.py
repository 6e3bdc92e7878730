"""The command `flight-shuffle`. Other packages add subcommands: entry point group `flight_shuffle.commands`."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from shuffle_api.errors import ShuffleError, ShuttingDown
from shuffle_api.options import environment_variable, parse_options
from shuffle_server import __version__
from shuffle_server.drain_command import add_drain
from shuffle_server.expansion import bound_in_program, keep_apart
from shuffle_server.options import ServerOptions, options_of
from shuffle_server.print_token import add_token
from shuffle_server.scrub_command import add_scrub
from shuffle_server.status import add_status

COMMANDS_GROUP = "flight_shuffle.commands"
STOPPING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 failed (the reason is on standard error), 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="flight-shuffle", description="A pluggable shuffle service on Arrow Flight.")
    parser.add_argument("--version", action="version", version=f"flight-shuffle {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_role(
        commands,
        "server",
        "run a master and a worker in this process",
        "Run a shuffle server: a master and a worker in one process. Further workers may join it.",
    )
    _add_role(commands, "master", "run a master, for workers in other processes", "Run the master of a cluster.")
    _add_role(commands, "worker", "run a worker of a master elsewhere", "Run a worker, which joins a master.")
    add_status(commands)
    add_scrub(commands)
    add_drain(commands)
    add_token(commands)
    for point in sorted(entry_points(group=COMMANDS_GROUP), key=lambda p: p.name):
        point.load()(commands)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed) or 0)
    except ShuffleError as error:
        print(f"flight-shuffle: {error}", file=sys.stderr)
        return 1


def _add_role(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], role: str, short: str, description: str
) -> None:
    parser = commands.add_parser(role, help=short, description=description)
    for row in options_of(role):
        note = f" (default: {row.default})" if row.default not in ("", "required") else ""
        parser.add_argument(
            "--" + row.name.replace("_", "-"),
            dest=row.name,
            metavar=(row.unit or row.name).upper(),
            required=row.default == "required",
            default=argparse.SUPPRESS,
            help=row.help + note.replace("%", "%%"),
        )
    parser.set_defaults(run=functools.partial(_serve, role))


def _serve(role: str, parsed: argparse.Namespace) -> int:
    given = {name: value for name, value in vars(parsed).items() if name != "run"}
    options = server_options(role, given, os.environ)
    bound_in_program(bool(options.tier))  # before anything loads Arrow
    from shuffle_transport.grpc_polling import poll_in_program

    poll_in_program()  # before anything loads gRPC
    from shuffle_server.observe.logs import set_up_logging
    from shuffle_server.server import MasterServer, Running, Server, WorkerServer  # loads gRPC and Arrow
    from shuffle_server.store.private import keep_private

    set_up_logging(options.log_format, options.log_level)
    keep_apart()
    keep_private()
    # The handlers do nothing: they run in the middle of whatever the main thread does, and could not even set an Event
    # it waits for, whose lock may be held just then. The main thread waits for a byte in this pipe.
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    for number in STOPPING:
        signal.signal(number, lambda *_: None)

    def stopping() -> bool:
        return bool(select.select([signals], [], [], 0)[0])

    roles: dict[str, Callable[[ServerOptions], Running]] = {
        "server": Server,
        "master": functools.partial(MasterServer, stopping=stopping),
        "worker": WorkerServer,
    }
    try:
        server = roles[role](options)
    except ShuttingDown:
        return 0
    announced = _announce(server.ready)
    if announced and isinstance(server, WorkerServer):
        server.when_left(lambda: os.write(wakeup, b"\0"))
    asked = announced and os.read(signals, 1) != b"\0"
    if asked and options.drain and isinstance(server, WorkerServer):
        server.begin_drain()
        select.select([signals], [], [], options.drain)  # until it has left, or another signal comes
    status = 0 if announced else 1
    for number in STOPPING:
        # Python takes handlers of its own away while it ends: a second signal would kill this process then.
        signal.signal(number, signal.SIG_IGN)
    server.stop()
    logging.shutdown()
    # Everything that must be closed is. Threads of cut streams and uploads may still be inside Arrow and gRPC, and at
    # the usual end of a process those free what such threads use.
    os._exit(status)


def server_options(role: str, given: Mapping[str, str], environment: Mapping[str, str]) -> ServerOptions:
    """The options of `flight-shuffle server`, `master` or `worker`. Raises what `parse_options` raises."""
    taken = {environment_variable(row.name) for row in options_of(role)}
    return parse_options(ServerOptions, given, {name: environment[name] for name in taken & environment.keys()})


def _announce(ready: Sequence[tuple[str, str]]) -> bool:
    """Print the ready line. False: its reader is gone, so no process looks after this server."""
    try:
        print("ready " + " ".join(f"{name}={address}" for name, address in ready), flush=True)
    except OSError as error:
        logging.getLogger(__name__).error("the ready line cannot be written, so this server stops: %s", error)
        return False
    return True
