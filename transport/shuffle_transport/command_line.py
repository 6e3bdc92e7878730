"""What all commands of the program `flight-shuffle` have in common: how options are written and shown, the server's
address, and credentials.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from shuffle_api.address import parse_addresses
from shuffle_api.errors import InvalidArgument
from shuffle_api.options import (
    OptionRow,
    amount_text,
    check_range,
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
from shuffle_transport.option_sources import config_option, origin, spellings, strongest
from shuffle_transport.security import Keyring

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

LEAST_SECONDS = 0.1  # to wait for an answer
Amount = TypeVar("Amount", int, float)
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

EXAMPLE = "the address after `control=` in the server's ready line"


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
        self.params.append(config_option(of_program=True))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)


class Option(click.Option):
    """An option of a command. `area` is the heading under which `--help` shows it."""

    def __init__(self, names: Sequence[str], *, area: str = "", **more: Any) -> None:
        super().__init__(names, **more)
        self.area = area


class Command(click.Command):
    """A command whose options also come from the environment and from a file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if isinstance(param, click.Option) and not param.hidden:
                if param.envvar is None:
                    param.envvar = [environment_variable(name) for name in spellings(param)]
                param.help = _with_default(param)
        self.params.append(config_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if not isinstance(error.param, click.Option):
                raise
            remedy = f"To do: give {error.param.opts[0]}: {error.param.help}"
            raise click.MissingParameter(remedy, ctx, error.param) from None
        except click.BadParameter as error:
            where = "" if error.param is None else origin(ctx, error.param)
            if not where:
                raise
            raise click.BadParameter(f"{error.message} (from {where})", ctx, error.param) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        areas: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                areas.setdefault(getattr(param, "area", "") or "Options", []).append(record)
        for area, records in areas.items():
            with formatter.section(area):
                formatter.write_dl(records)


def _with_default(option: click.Option) -> str:
    """The help of an option, with its default unless that says itself what happens without it."""
    default, text = option.default, option.help or ""
    if isinstance(default, bool) or not isinstance(default, str | int | float) or default == "" or "default" in text:
        return text
    if isinstance(option.type, _Amount) and not isinstance(default, str):
        default = amount_text(default, option.type.unit)
    return f"{text} (default: {default})"


class _Amount(click.ParamType[Amount]):
    """A number, or a text with a unit."""

    unit: str
    kind: type[Amount]
    parse: Callable[[str], Amount]

    def __init__(self, least: float = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Amount:
        try:
            amount = self.kind(value) if isinstance(value, (int, self.kind)) else self.parse(str(value))
            check_range(amount, self.unit, self._least)
            return amount
        except (ValueError, OverflowError) as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Size(_Amount[int]):
    """Bytes, written as `64m`."""

    name, unit, kind, parse = "size", "bytes", int, staticmethod(parse_size)


class Duration(_Amount[float]):
    """Seconds, written as `30s` or `10m`."""

    name, unit, kind, parse = "time", "seconds", float, staticmethod(parse_duration)


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


def option_of(cls: type[DataclassInstance], row: OptionRow, also: Sequence[str] = ()) -> Option:
    """The option of a command for an option of the dataclass `cls`; `also`: further names of it."""
    choices = row.type.split(" | ") if " | " in row.type else ()
    default = default_text(row)
    note = f" (default: {default})" if default not in ("", "required") else ""
    kind = JoinedOption if row.name in _REPEATED else Option
    return kind(
        [option_spelling(row.name), *also, row.name],
        type=click.Choice(choices) if choices else Value(cls, row),
        metavar=None if choices else _metavar(row),
        help=as_written(row.help, cls) + note,
        area=row.area,
    )


def _metavar(row: OptionRow) -> str:
    last = row.name.rpartition("_")[2]
    return _METAVARS.get(row.unit) or _METAVARS.get(last) or ("COUNT" if row.type == "int" else last.upper())


_REPEATED = frozenset(("label", "master", "masters"))
"""Options that may be given several times: their values are joined with commas."""


class JoinedOption(Option):
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
    "advertise": "HOST",
    "apart": "KEY",
    "ca": "FILE",
    "cert": "FILE",
    "key": "FILE",
    "device": "KIND",
    "metadata": "URL",
    "registry": "NAME",
    "tier": "URL",
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
        weaker = (group & given.keys()) - strongest(context, group).keys()
        for name in weaker:
            del given[name]
    try:
        return parse_options(cls, given)
    except InvalidArgument as error:
        raise usage_error(error, cls) from None


def usage_error(error: InvalidArgument, cls: type[DataclassInstance]) -> click.UsageError:
    """An error in the use of options, which it names as they are written on a command line, and where they are from."""
    return click.UsageError(with_origins(as_written(str(error), cls)), click.get_current_context(silent=True))


def with_origins(text: str) -> str:
    """A text with where the options in it are from, if that is not the command line of the present command."""
    context = click.get_current_context(silent=True)
    for param in () if context is None else context.command.params:
        where = "" if context is None else origin(context, param)
        if where and re.search(rf"(?<![\w-]){param.opts[0]}(?![\w-])", text):
            text += f" ({param.opts[0]} is from {where})"
    return text


def as_written(text: str, cls: type[DataclassInstance]) -> str:
    """A text in which options of `cls` are named as they are written on a command line."""
    names = [row.name for row in options_table(cls)]
    for name in names:
        text = text.replace(f"'{name}'", option_spelling(name))
    return with_spellings(text, names)


def with_spellings(text: str, names: Iterable[str]) -> str:
    """A text in which those of these options whose names are no words of the language are named as they are written on
    a command line."""
    names = "|".join(sorted((name for name in names if "_" in name), key=len, reverse=True))
    return re.sub(rf"(?<![\w/.-])({names})(?![\w/])", lambda found: option_spelling(found[0]), text) if names else text


class _OldAddress(click.Argument):
    """The server's address without `--server`: taken, and not shown."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


def server_option(*, also_alone: bool = False) -> Callable[[Decorated], Decorated]:
    """`--server`, the one way to name the master or the masters; `also_alone`: the address is taken without it too."""

    def add(function: Decorated) -> Decorated:
        if also_alone:
            click.argument("address", cls=_OldAddress, required=False, metavar="HOST:PORT", type=Addresses())(function)
        return click.option(
            "--server",
            type=Addresses(),
            metavar="HOST:PORT",
            help="control address of the server; of several masters, separated by commas",
        )(function)

    return add


def server_of(context: click.Context) -> str:
    """The one address that a command is given. Raises click.UsageError."""
    addresses = list(dict.fromkeys(strongest(context, ("server", "address", "master")).values()))
    if len(addresses) == 1:
        return str(addresses[0])
    wrong = f"two addresses are given, {' and '.join(addresses)}" if addresses else "the server's address is missing"
    raise click.UsageError(f"{wrong}. To do: give one as --server HOST:PORT, {EXAMPLE}", context)


def credential_options(names: Sequence[str] | None = None) -> Callable[[Decorated], Decorated]:
    """The options by which a command is given its credentials; `names`: only these."""

    def add(function: Decorated) -> Decorated:
        for row in reversed(options_table(ClientOptions)):
            if names is None or row.name in names:
                made = option_of(ClientOptions, row)
                if names is not None and row.name == file_option("token") and "token" not in names:
                    made.help = "private file with the token"  # not also in an environment variable
                given = {"type": made.type, "metavar": made.metavar, "help": made.help, "area": made.area}
                click.option(*made.opts, row.name, cls=Option, **given)(function)
        return function

    return add


def client_options(context: click.Context) -> ClientOptions:
    """The values of those options. Raises click.UsageError."""
    return options_given(ClientOptions, context, options_table(ClientOptions))


def keyring_of(context: click.Context) -> Keyring:
    """What those options name. Raises click.UsageError naming the option or file that is wrong."""
    try:
        return load_keyring(**dataclasses.asdict(client_options(context)))
    except InvalidArgument as error:
        raise usage_error(error, ClientOptions) from None


def timeout_option(default: float, help: str) -> Callable[[Decorated], Decorated]:
    """`--timeout`."""
    return click.option("--timeout", type=Duration(LEAST_SECONDS), default=default, metavar="TIME", help=help)


def _alternatives(cls: type[DataclassInstance]) -> Iterator[set[str]]:
    for field in dataclasses.fields(cls):
        if field.metadata.get("secret"):
            yield {field.name, file_option(field.name), *field.metadata["unless"]}
