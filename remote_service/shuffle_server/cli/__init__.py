"""The command `flight-shuffle`. Other packages add subcommands: entry point group `flight_shuffle.commands`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

import click
from click.shell_completion import get_completion_class

from shuffle_api.errors import ShuffleError
from shuffle_server import __version__
from shuffle_server.cli.doctor import doctor
from shuffle_server.cli.drain import drain
from shuffle_server.cli.events import events
from shuffle_server.cli.forget import forget
from shuffle_server.cli.roles import role_commands
from shuffle_server.cli.scrub import scrub
from shuffle_server.cli.status import shuffles, status
from shuffle_server.cli.token import token
from shuffle_server.cli.top import top
from shuffle_transport.command_line import Program, with_spellings
from shuffle_transport.option_sources import option_names

PROGRAM = "flight-shuffle"
COMMANDS_GROUP = "flight_shuffle.commands"
COMPLETION = "_FLIGHT_SHUFFLE_COMPLETE"
INTERRUPTED = 130
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 failed (the reason is on standard error), 2 wrong usage."""
    try:
        given = None if arguments is None else list(arguments)
        status = program().main(given, prog_name=PROGRAM, complete_var=COMPLETION, standalone_mode=False)
        return int(status or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except ShuffleError as error:
        text = with_spellings(str(error), option_names(program()))  # it may name options as Python programs do
        click.echo(f"{PROGRAM}: {text}", err=True)
        return FAILED
    except BrokenPipeError:
        # The reader of what is printed has ended, `head` for example. Python would fail again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


@functools.cache
def program() -> Program:
    """The command with all its subcommands."""
    group = Program(
        PROGRAM,
        help="A pluggable shuffle service on Arrow Flight. Options also come from environment variables, --app-timeout"
        " from FLIGHT_SHUFFLE_APP_TIMEOUT, and from the TOML file of --config.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")(group)
    own = (status, top, shuffles, events, drain, scrub, forget, doctor, token, completion)
    for command in (*role_commands(), *own):
        group.add_command(command)
    for point in sorted(entry_points(group=COMMANDS_GROUP), key=lambda p: p.name):
        point.load()(group)
    return group


@click.command(short_help="print the script by which a shell completes commands and options")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes commands and options of this program.

    For bash: eval "$(flight-shuffle completion bash)"
    """
    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(program(), {}, PROGRAM, COMPLETION).source())
