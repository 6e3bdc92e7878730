"""What all commands of the program `flight-shuffle` have in common: where the values of options come from, how they are
written, the server's address, and credentials.

The value of an option comes from the command line, else from the environment variable `FLIGHT_SHUFFLE_` + its name,
else from the TOML file of `--config`: from the table named as the command, else from the top of the file.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from shuffle_api.address import parse_addresses
from shuffle_api.errors import InvalidArgument
from shuffle_api.options import (
    OptionRow,
    default_text,
    environment_variable,
    file_option,
    option_spelling,
    options_table,
    parse_duration,
    parse_option,
    parse_options,
    parse_size,
)
from shuffle_transport.credential_files import ClientOptions, load_keyring
from shuffle_transport.security import Keyring

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

Amount = TypeVar("Amount", int, float)
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

EXAMPLE = "the address after `control=` in the server's ready line"
_RANKS = (ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """What `flight-shuffle doctor` found: a check, how it ended, what was seen, and how to mend it."""

    check: str
    state: Literal["ok", "warning", "failed", "skipped"]
    seen: str
    fix: str = ""


class Program(click.Group):
    """The program. Packages that add commands to it may also add checks of what they need for `doctor`."""

    checks: list[Callable[[], Iterable[Finding]]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.checks = []


class Command(click.Command):
    """A command whose options also come from the environment and from a file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if isinstance(param, click.Option) and param.envvar is None and not param.hidden:
                param.envvar = [environment_variable(name) for name in _spellings(param)]
        self.params.append(
            click.Option(
                ["--config"],
                metavar="FILE",
                is_eager=True,
                expose_value=False,
                envvar=environment_variable("config"),
                callback=_read_config,
                help="TOML file with values of options; the command line and the environment come before it",
            )
        )


class _Amount(click.ParamType[Amount]):
    """A number, or a text with a unit."""

    kind: type[Amount]
    parse: Callable[[str], Amount]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Amount:
        try:
            return self.kind(value) if isinstance(value, (int, self.kind)) else self.parse(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Size(_Amount[int]):
    """Bytes, written as `64m`."""

    name, kind, parse = "size", int, staticmethod(parse_size)


class Duration(_Amount[float]):
    """Seconds, written as `30s` or `10m`."""

    name, kind, parse = "time", float, staticmethod(parse_duration)


class Addresses(click.ParamType[str]):
    """HOST:PORT, of several masters separated by commas."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return ",".join(map(str, parse_addresses(str(value), "server address")))
        except InvalidArgument as error:
            self.fail(f"{error.message}; use {EXAMPLE}", param, ctx)


class Value(click.ParamType[Any]):
    """The value of an option of a dataclass, with the checks that this makes."""

    name = "value"

    def __init__(self, cls: type[DataclassInstance], row: OptionRow) -> None:
        self._cls, self._row = cls, row

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_option(self._cls, self._row.name, value)
        except InvalidArgument as error:
            self.fail(f"{value!r}: {error.remedy}", param, ctx)


def option_of(cls: type[DataclassInstance], row: OptionRow, also: Sequence[str] = ()) -> click.Option:
    """The option of a command for an option of the dataclass `cls`; `also`: further names of it."""
    choices = row.type.split(" | ") if " | " in row.type else ()
    default = default_text(row)
    note = f" (default: {default})" if default not in ("", "required") else ""
    last = row.name.rpartition("_")[2]
    metavar = None if choices else _METAVARS.get(row.unit) or _METAVARS.get(last, last.upper())
    kind = JoinedOption if row.name in _REPEATED else click.Option
    return kind(
        [option_spelling(row.name), *also, row.name],
        type=click.Choice(choices) if choices else Value(cls, row),
        metavar=metavar,
        help=row.help + note,
    )


_REPEATED = frozenset(("label", "master", "masters"))
"""Options that may be given several times: their values are joined with commas."""


class JoinedOption(click.Option):
    """An option that may be given several times, with values that are lists; its value is the whole list."""

    def __init__(self, names: Sequence[str], **more: Any) -> None:
        more |= {"multiple": True, "callback": lambda context, param, value: ",".join(value) or None}
        super().__init__(names, **more)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        return ((value,) if isinstance(value, str) else value), source


_METAVARS = {
    "label": "KEY=VALUE",
    "bytes": "SIZE",
    "seconds": "TIME",
    "percent": "PERCENT",
    "operations": "COUNT",
    "listen": "HOST:PORT",
    "master": "HOST:PORT",
    "masters": "NAME=HOST:PORT",
}


def options_given(cls: type[T], context: click.Context, rows: Sequence[OptionRow]) -> T:
    """The options of the dataclass `cls` from the parameters of a command. Raises click.UsageError.

    Of options that give the same in other ways, those count that come from the first of command line, environment and
    file.
    """
    given = {row.name: context.params[row.name] for row in rows if context.params.get(row.name) is not None}
    for group in _alternatives(cls):
        present = {name: _RANKS.index(_source(context, name)) for name in group if name in given}
        for name, rank in present.items():
            if rank < max(present.values()):
                del given[name]
    try:
        return parse_options(cls, given)
    except InvalidArgument as error:
        raise usage_error(error, cls) from None


def usage_error(error: InvalidArgument, cls: type[DataclassInstance]) -> click.UsageError:
    """An error in the use of options, which it names as they are written on a command line."""
    text = f"{error.message}. To do: {error.remedy}" if error.remedy else error.message
    return click.UsageError(as_written(text, cls), click.get_current_context(silent=True))


def as_written(text: str, cls: type[DataclassInstance]) -> str:
    """A text in which options of `cls` are named as they are written on a command line."""
    for row in options_table(cls):
        spelling = option_spelling(row.name)
        text = text.replace(f"'{row.name}'", spelling)
        if "_" in row.name:  # the others are words of the language
            text = re.sub(rf"(?<![\w/.-]){row.name}(?![\w/])", spelling, text)
    return text


def server_option() -> Callable[[Decorated], Decorated]:
    """`--server`, the one way to name the master or the masters."""

    def add(function: Decorated) -> Decorated:
        return click.option(
            "--server",
            type=Addresses(),
            metavar="HOST:PORT",
            help="control address of the server; of several masters, separated by commas",
        )(function)

    return add


def server_of(*given: str | None, what: str = "--server HOST:PORT") -> str:
    """The one address among those that were given. Raises click.UsageError."""
    addresses = list(dict.fromkeys(address for address in given if address))
    if len(addresses) == 1:
        return addresses[0]
    wrong = "two addresses are given" if addresses else "the server's address is missing"
    raise click.UsageError(f"{wrong}. To do: give {what}, {EXAMPLE}", click.get_current_context(silent=True))


def credential_options(names: Sequence[str] | None = None) -> Callable[[Decorated], Decorated]:
    """The options by which a command is given its credentials; `names`: only these."""

    def add(function: Decorated) -> Decorated:
        for row in reversed(options_table(ClientOptions)):
            if names is None or row.name in names:
                made = option_of(ClientOptions, row)
                click.option(*made.opts, row.name, type=made.type, metavar=made.metavar, help=made.help)(function)
        return function

    return add


def keyring_of(context: click.Context) -> Keyring:
    """What those options name. Raises click.UsageError naming the option or file that is wrong."""
    options = options_given(ClientOptions, context, options_table(ClientOptions))
    try:
        return load_keyring(**dataclasses.asdict(options))
    except InvalidArgument as error:
        raise usage_error(error, ClientOptions) from None


def timeout_option(default: float, help: str) -> Callable[[Decorated], Decorated]:
    """`--timeout`."""
    shown = default_text(OptionRow("timeout", "float", str(default), "seconds", ""))
    return click.option(
        "--timeout", type=Duration(), default=default, metavar="TIME", help=f"{help} (default: {shown})"
    )


def _alternatives(cls: type[DataclassInstance]) -> Iterator[set[str]]:
    for field in dataclasses.fields(cls):
        if field.metadata.get("secret"):
            yield {field.name, file_option(field.name), *field.metadata["unless"]}


def _source(context: click.Context, name: str) -> ParameterSource:
    source = context.get_parameter_source(name)
    return source if source in _RANKS else ParameterSource.DEFAULT_MAP


def _read_config(context: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is None or context.resilient_parsing:
        return
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {os.strerror(error.errno or 0)}", context, param) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is no TOML file: {error}", context, param) from None
    context.default_map = _values(context, param, path, document)


def _values(context: click.Context, param: click.Parameter, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What the file has for this command."""
    own_names = _named(context.command)
    names = own_names.keys()
    top = {key.replace("-", "_"): value for key, value in document.items() if not isinstance(value, dict)}
    everything = names | _all_options(context.find_root().command)
    table: Any = document
    for word in _path(context):
        table = table.get(word, {}) if isinstance(table, dict) else {}
    own = table.items() if isinstance(table, dict) and table is not document else ()
    mine = {key.replace("-", "_"): value for key, value in own if not isinstance(value, dict)}
    for key, known in (*((key, everything) for key in top), *((key, names) for key in mine)):
        if key not in known:
            near = get_close_matches(key, known, 1) or sorted(names)
            raise click.BadParameter(
                f"{path} has {key!r}, which is no option; there is: {', '.join(near)}", context, param
            )
    return {own_names[key]: value for key, value in (top | mine).items() if key in names}


def _path(context: click.Context) -> list[str]:
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return words


def _spellings(option: click.Option) -> list[str]:
    """The names of an option in environment and files, the usual one first."""
    return [name[2:].replace("-", "_") for name in option.opts if name.startswith("--")]


def _named(command: click.Command) -> dict[str, str]:
    """The parameters of a command by the names of its options."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: str(option.name) for option in options for name in _spellings(option)}


def _all_options(command: click.Command) -> set[str]:
    names = set(_named(command))
    if isinstance(command, click.Group):
        names = names.union(*map(_all_options, command.commands.values()))
    return names
