"""Where the value of a command's option comes from: the command line, else the environment variable
`FLIGHT_SHUFFLE_` + its name, else the TOML file of `--config`: there from the table named as the command, else from the
top of the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import click
from click.core import ParameterSource

from shuffle_api.options import environment_variable

CONFIG_HELP = "TOML file with values of options; the command line and the environment come before it"
_RANKS = (ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE)
_CONFIG = "flight-shuffle-config"  # in the context: the file that is given before the command
_PLACES = "flight-shuffle-places"  # in the context: where in the file each value stands


def config_option(*, of_program: bool = False) -> click.Option:
    """`--config`, of a command or of the whole program."""
    return click.Option(
        ["--config"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        envvar=None if of_program else environment_variable("config"),
        callback=_keep_config if of_program else _read_config,
        help=CONFIG_HELP,
    )


def strongest(context: click.Context, names: Iterable[str]) -> dict[str, Any]:
    """Of parameters that give the same in several ways, the values from the first of command line, environment and
    file that has any."""
    given = {name: context.params[name] for name in names if context.params.get(name) is not None}
    ranks = {name: _rank(context, name) for name in given}
    return {name: value for name, value in given.items() if ranks[name] == max(ranks.values())}


def origin(context: click.Context, param: click.Parameter) -> str:
    """The environment variable, or the file and the place in it, that gives a parameter; empty for the command line."""
    source = context.get_parameter_source(str(param.name))
    if source is ParameterSource.ENVIRONMENT:
        variables = [param.envvar] if isinstance(param.envvar, str) else param.envvar or ()
        return next((name for name in variables if os.environ.get(name)), "")
    if source is ParameterSource.DEFAULT_MAP:
        return str(context.meta.get(_PLACES, {}).get(param.name, ""))
    return ""


def spellings(option: click.Option) -> list[str]:
    """The names of an option in environment and files, the usual one first."""
    return [name[2:].replace("-", "_") for name in option.opts if name.startswith("--")]


def option_names(command: click.Command) -> set[str]:
    """The names of the options of a command and of those below it."""
    names = set(_named(command))
    if isinstance(command, click.Group):
        names = names.union(*map(option_names, command.commands.values()))
    return names


def _rank(context: click.Context, name: str) -> int:
    source = context.get_parameter_source(name)
    return _RANKS.index(source) if source in _RANKS else 0


def _keep_config(context: click.Context, param: click.Parameter, path: str | None) -> None:
    context.meta[_CONFIG] = path


def _read_config(context: click.Context, param: click.Parameter, path: str | None) -> None:
    if context.get_parameter_source("config") is not ParameterSource.COMMANDLINE:
        path = context.meta.get(_CONFIG) or path
    if path is None or context.resilient_parsing:
        return
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {os.strerror(error.errno or 0)}", context, param) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is no TOML file: {error}", context, param) from None
    try:
        _take(context, path, document)
    except ValueError as error:
        raise click.BadParameter(f"{path} {error}", context, param) from None


def _take(context: click.Context, path: str, document: Mapping[str, Any]) -> None:
    """Let the file's values for this command be its defaults. Raises ValueError naming an entry that is none."""
    root, words = context.find_root().command, _path(context)
    _check_tables(document, root)
    own = _named(context.command)
    table: Mapping[str, Any] = document if words else {}
    for word in words:
        table = table.get(word, {})
    tables = ((document, own.keys() | option_names(root), "at its top"), (table, own.keys(), f"[{'.'.join(words)}]"))
    values, places = {}, {}
    for entries, known, place in tables:
        for key, value in entries.items():
            name = key.replace("-", "_")
            if isinstance(value, dict):
                continue
            if name not in known:
                near = get_close_matches(name, known, 1) or sorted(own)
                raise ValueError(f"has {key!r}, which is no option; there is: {', '.join(near)}")
            if name in own:
                option = own[name]
                if isinstance(value, list) and not option.multiple:
                    raise ValueError(f'has a list for {key!r}; write one text, with commas: {key} = "A,B"')
                values[str(option.name)], places[str(option.name)] = value, f"{path}, {place}"
    context.default_map, context.meta[_PLACES] = values, places


def _check_tables(document: Mapping[str, Any], command: click.Command, above: str = "") -> None:
    """Raise ValueError where a table is named as no command."""
    commands = command.commands if isinstance(command, click.Group) else {}
    for key, value in document.items():
        if isinstance(value, dict):
            if key not in commands:
                raise ValueError(f"has the table [{above}{key}]; known: {', '.join(sorted(commands)) or 'none here'}")
            _check_tables(value, commands[key], f"{above}{key}.")


def _path(context: click.Context) -> list[str]:
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return words


def _named(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their names in environment and files."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: option for option in options for name in spellings(option)}
