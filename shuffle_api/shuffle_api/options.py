"""Options: one frozen dataclass per area, parsed once at the door and passed down as a value.

    @dataclass(frozen=True, slots=True)
    class ReadOptions:
        window: int = option(8 << 20, unit="bytes", minimum=1, help="payload in flight per reader")
        timeout: float = option(30.0, unit="seconds", help="how long a reader waits for data")

    parse_options(ReadOptions, {"window": "64m", "timeout": "1500ms"})

Arguments of a program are seen by every user of the machine (`ps`) and end up in histories and logs. So the value of
an option that is `secret`, say `token`, may also come from a private file, by the option `token_file`, or from the
environment variable `FLIGHT_SHUFFLE_TOKEN`, where the program lets options be taken from there.

A field's type (str, int, float or bool, each perhaps `| None`) and its unit say which texts it takes:
unit "bytes" takes sizes (`64m`, powers of 1024), unit "seconds" takes durations (`500ms`, `30s`, `5min`, `2h`).
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from shuffle_api.errors import InvalidArgument, UnknownOption
from shuffle_api.private_file import read_private

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

NO_ENVIRONMENT: Mapping[str, str] = types.MappingProxyType({})

_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)")
_SIZES = {"": 1, "b": 1} | {
    suffix: 1024**power for power, letter in enumerate("kmgt", 1) for suffix in (letter, letter + "b", letter + "ib")
}
_DURATIONS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST = {"seconds": 36_500 * 86_400.0, "bytes": float(1 << 60)}
"""The longest time and the largest size, of 100 years and 1 EiB: clocks and file systems count not much further."""
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def option(
    default: Any = MISSING,
    *,
    help: str,
    unit: str = "",
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    area: str = "",
    secret: bool = False,
    unless: Sequence[str] = (),
) -> Any:
    """A dataclass field with the metadata that parsing and documentation use. No default: the option must be given.

    `area`: the heading under which `--help` shows it. The value of a `secret` one, a text, is in no repr and no error.
    The environment does not count for it when one of the options `unless`, other ways to give the same, is given.
    """
    metadata = {"help": help, "unit": unit, "choices": tuple(choices), "minimum": minimum, "maximum": maximum}
    metadata |= {"area": area, "secret": secret, "unless": tuple(unless)}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One line of an options table; all texts. `type` lists the choices if there are any, `default` is
    "required" if there is none, `area` is the heading under which `--help` shows it."""

    name: str
    type: str
    default: str
    unit: str
    help: str
    area: str = ""


def parse_options(
    cls: type[T], given: Mapping[str, str | int | float | bool], environment: Mapping[str, str] = NO_ENVIRONMENT
) -> T:
    """An instance of the dataclass `cls` with `given` in place of its defaults.

    :param environment: where the values of secret options may come from.
    :raises UnknownOption: a key that is no option of `cls`; lists those that are.
    :raises InvalidArgument: a value that does not fit, a file that cannot be used, or a required option that is not
        given.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in given:
        if name not in fields and name not in map(file_option, _secret(cls)):
            raise UnknownOption(name, [*fields, *map(file_option, _secret(cls))])
    given = dict(given)
    for name in _secret(cls):
        _take_secret(fields[name], given, environment)
    missing = [field.name for field in fields.values() if _required(field) and field.name not in given]
    if missing:
        raise InvalidArgument(f"option {missing[0]!r} is required", remedy=f"set it: {_help(fields[missing[0]])}")
    hints = get_type_hints(cls)
    return cls(**{name: _parse(fields[name], _plain_type(hints[name]), value) for name, value in given.items()})


def parse_option(cls: type[DataclassInstance], name: str, value: str | int | float | bool) -> Any:
    """The value of one option of the dataclass `cls`, or the path of a file that holds a secret one.

    :raises UnknownOption: there is none of this name.
    :raises InvalidArgument: it does not fit.
    """
    for field in dataclasses.fields(cls):
        if field.name == name:
            return _parse(field, _plain_type(get_type_hints(cls)[name]), value)
    if name in map(file_option, _secret(cls)):
        return str(value)
    raise UnknownOption(name, [field.name for field in dataclasses.fields(cls)])


def options_table(cls: type[DataclassInstance]) -> list[OptionRow]:
    """The options of the dataclass `cls` in the order of its fields, for documentation and `--help`."""
    hints = get_type_hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        rows.append(
            OptionRow(
                name=field.name,
                type=" | ".join(field.metadata.get("choices", ())) or _plain_type(hints[field.name]).__name__,
                default="required" if _required(field) else _show(_default(field)),
                unit=field.metadata.get("unit", ""),
                help=_help(field),
                area=field.metadata.get("area", ""),
            )
        )
        if field.metadata.get("secret"):
            text = f"private file with the {field.name}; or give it by {environment_variable(field.name)}"
            rows.append(OptionRow(file_option(field.name), "str", "", "", text, rows[-1].area))
    return rows


def default_text(row: OptionRow) -> str:
    """The default of an option as a person writes it."""
    if row.unit not in ("bytes", "seconds") or row.default in ("", "required"):
        return row.default
    return amount_text(float(row.default), row.unit)


def file_option(name: str) -> str:
    """The option by which the secret option `name` is taken from a file."""
    return f"{name}_file"


def option_spelling(name: str) -> str:
    """The option as an argument of a program."""
    return "--" + name.replace("_", "-")


def environment_variable(name: str) -> str:
    """The environment variable that holds the option `name`."""
    return f"FLIGHT_SHUFFLE_{name.upper()}"


def _secret(cls: type[DataclassInstance]) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.metadata.get("secret")]


def _take_secret(field: Field[Any], given: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Put the value of a secret option into `given`, from where it is."""
    name, file = field.name, file_option(field.name)
    path = given.pop(file, "")
    if path and given.get(name):
        raise InvalidArgument(f"both {name!r} and {file!r} are given", remedy="one is enough: leave out the other")
    if path:
        given[name] = read_private(str(path), file).decode("utf-8", "replace").strip()
        if not given[name]:
            raise InvalidArgument(f"{file} {path} is empty", remedy=f"write {name} into it")
    elif not any(given.get(other) for other in (name, *field.metadata["unless"])):
        found = environment.get(environment_variable(name), "").strip()
        if found:
            given[name] = found


def parse_size(text: str) -> int:
    """Bytes in a text such as `4096`, `64k`, `1.5g`, `2 GiB` (powers of 1024).

    :raises ValueError: not a size.
    """
    return int(_amount(text, _SIZES, "a size such as 4096, 64m or 2g"))


def parse_duration(text: str) -> float:
    """Seconds in a text such as `30`, `500ms`, `5min`, `2h`.

    :raises ValueError: not a duration.
    """
    return _amount(text, _DURATIONS, "a duration such as 500ms, 30s, 5min, 12h or 30d")


def amount_text(value: float, unit: str) -> str:
    """A number as people write it who give an option of this unit: `64m` bytes, `10m` or `500ms` of time."""
    if unit == "bytes":
        steps = [(1024.0**power, letter) for power, letter in ((4, "t"), (3, "g"), (2, "m"), (1, "k"))]
    elif unit == "seconds":
        steps = [(86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms")]
    else:
        return f"{value:g}" if isinstance(value, float) else str(value)
    for size, suffix in steps if value else ():
        count = round(value / size, 6)
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{suffix}"
    return f"{value:g}"


def check_range(value: float, unit: str = "", minimum: float | None = None, maximum: float | None = None) -> None:
    """:raises ValueError: a value that is out of its range, or a time or size that no machine can count to."""
    maximum = MOST.get(unit) if maximum is None else maximum
    if minimum is not None and value < minimum:
        raise ValueError(f"use {amount_text(minimum, unit)} or more")
    if maximum is not None and value > maximum:
        raise ValueError(f"use {amount_text(maximum, unit)} or less")


def _amount(text: str, units: Mapping[str, float], expected: str) -> float:
    match = _AMOUNT.fullmatch(text.strip().lower())
    if not match or match[2] not in units:
        raise ValueError(f"expected {expected}")
    return float(match[1]) * units[match[2]]


def _parse(field: Field[Any], kind: type, value: str | int | float | bool) -> Any:
    try:
        parsed = _convert(kind, field.metadata.get("unit", ""), value)
        _check(field, parsed)
    except (ValueError, OverflowError) as error:
        shown = "what it is" if field.metadata.get("secret") else repr(value)
        raise InvalidArgument(f"option {field.name!r} cannot be {shown}", remedy=str(error)) from None
    return parsed


def _convert(kind: type, unit: str, value: str | int | float | bool) -> Any:
    if kind is bool:
        if isinstance(value, str) and value.lower() in _BOOLS:
            return _BOOLS[value.lower()]
        return _same(bool, value, "true or false")
    if kind is str:
        return _same(str, value, "a text")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a number, not {_kind_of(value)}")
    if isinstance(value, str):
        value = _number(kind, unit, value)
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError("expected a whole number")
    return kind(value)


def _number(kind: type, unit: str, text: str) -> float:
    if unit == "bytes":
        return parse_size(text)
    if unit == "seconds":
        return parse_duration(text)
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        raise ValueError(f"expected {'a whole number' if kind is int else 'a number'}") from None


def _same(kind: type, value: object, expected: str) -> Any:
    if not isinstance(value, kind):
        quoted = ": write it in quotes" if kind is str and isinstance(value, int | float) else ""
        raise ValueError(f"expected {expected}, not {_kind_of(value)}{quoted}")
    return value


def _kind_of(value: object) -> str:
    """What a value is that a file or a program gave, for people."""
    named = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table", str: "a text"}
    return named.get(type(value), f"a {type(value).__name__}")


def _check(field: Field[Any], value: Any) -> None:
    choices = field.metadata.get("choices", ())
    if choices and value not in choices:
        raise ValueError(f"use one of: {', '.join(choices)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    if isinstance(value, int | float):
        of = field.metadata
        check_range(value, of.get("unit", ""), of.get("minimum"), of.get("maximum"))


def _plain_type(hint: Any) -> type:
    if get_origin(hint) in (Union, types.UnionType):
        [hint] = [arg for arg in get_args(hint) if arg is not types.NoneType]
    if hint not in (str, int, float, bool):
        raise TypeError(f"an option is a str, int, float or bool, not {hint}")
    return hint  # type: ignore[no-any-return]


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _show(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _help(field: Field[Any]) -> str:
    return str(field.metadata.get("help", ""))
