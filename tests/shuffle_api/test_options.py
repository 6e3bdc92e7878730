"""Options: texts and values in, one frozen dataclass out, errors that say what would fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, UnknownOption
from shuffle_api.options import OptionRow, option, options_table, parse_duration, parse_options, parse_size


@dataclass(frozen=True, slots=True)
class Options:
    server: str = option(help="where the server is")
    codec: str = option("lz4", choices=("none", "lz4"), help="compression")
    window: int = option(1 << 20, unit="bytes", minimum=1024, help="credit")
    timeout: float = option(30.0, unit="seconds", minimum=0, help="wait")
    retries: int = option(3, help="attempts")
    share: float = option(50.0, unit="percent", minimum=0, maximum=100, help="of it")
    verify: bool = option(True, help="check blocks")
    limit: int | None = option(None, unit="bytes", help="quota")
    tags: str = field(default_factory=lambda: "none")
    token: str = option("", secret=True, help="what nobody may see")


def parse(**given: str | int | float | bool) -> Options:
    return parse_options(Options, {"server": "h:1", **given})


def test_defaults_stand_where_nothing_is_given() -> None:
    assert parse() == Options(server="h:1")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("window", "64m", 64 << 20),
        ("window", 4096, 4096),
        ("window", 4096.0, 4096),
        ("timeout", "500ms", 0.5),
        ("timeout", 7, 7.0),
        ("timeout", "2.5", 2.5),
        ("retries", "12", 12),
        ("verify", "no", False),
        ("verify", "TRUE", True),
        ("verify", False, False),
        ("limit", "1g", 1 << 30),
        ("codec", "none", "none"),
        ("tags", "a", "a"),
    ],
)
def test_value_is_parsed_by_type_and_unit(name: str, given: Any, value: object) -> None:
    parsed = getattr(parse(**{name: given}), name)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("codec", "gzip", "none, lz4"),
        ("codec", 1, "a text"),
        ("window", "64x", "a size such as"),
        ("window", "lots", "a size such as"),
        ("window", "12", "1k or more"),
        ("window", 2048.5, "a whole number"),
        ("window", True, "a number"),
        ("timeout", "5 parsecs", "a duration such as"),
        ("timeout", "-1s", "a duration such as"),
        ("timeout", "99999999999d", "use 36500d or less"),
        ("window", "9999999999t", "or less"),
        ("share", 101, "use 100 or less"),
        ("timeout", -1, "0 or more"),
        ("timeout", float("nan"), "a finite number"),
        ("timeout", float("inf"), "a finite number"),
        ("retries", "3.5", "a whole number"),
        ("retries", float("inf"), "a whole number"),
        ("window", "9" * 400, "infinity"),
        ("timeout", 10**400, "too large"),
        ("verify", "perhaps", "true or false"),
        ("verify", 1, "true or false"),
    ],
)
def test_value_that_does_not_fit_is_refused_with_what_would(name: str, given: Any, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=f"option '{name}'") as raised:
        parse(**{name: given})
    assert expected in raised.value.remedy


def test_a_secret_value_is_in_no_repr_and_no_error() -> None:
    assert "4711" not in repr(parse(token="4711"))
    with pytest.raises(InvalidArgument, match="option 'token' cannot be what it is") as refused:
        parse(token=4711)
    assert "4711" not in str(refused.value)


def test_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(UnknownOption, match="'widow'.*did you mean 'window'.*codec.*timeout") as raised:
        parse(widow=1)
    assert raised.value.known == tuple(sorted(row.name for row in options_table(Options)))


def test_missing_option_is_named_with_its_help() -> None:
    with pytest.raises(InvalidArgument, match="'server' is required.*where the server is"):
        parse_options(Options, {})


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("7", 7), ("7b", 7), ("1k", 1024), ("1.5 KiB", 1536), ("2gb", 2 << 30), (" 3T ", 3 << 40), (".5k", 512)],
)
def test_size_is_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 2**53))
def test_size_in_bytes_is_exact(size: int) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("500ms", 0.5), ("250us", 0.00025), ("5min", 300.0), ("5m", 300.0), ("2h", 7200.0), ("1d", 86400.0)],
)
def test_duration_is_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "1e3", "-1", "1 2", "1mb s", "٣"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a size"):
        parse_size(text)


def test_table_has_a_row_per_option_in_order() -> None:
    assert options_table(Options) == [
        OptionRow("server", "str", "required", "", "where the server is"),
        OptionRow("codec", "none | lz4", "lz4", "", "compression"),
        OptionRow("window", "int", "1048576", "bytes", "credit"),
        OptionRow("timeout", "float", "30.0", "seconds", "wait"),
        OptionRow("retries", "int", "3", "", "attempts"),
        OptionRow("share", "float", "50.0", "percent", "of it"),
        OptionRow("verify", "bool", "true", "", "check blocks"),
        OptionRow("limit", "int", "", "bytes", "quota"),
        OptionRow("tags", "str", "none", "", ""),
        OptionRow("token", "str", "", "", "what nobody may see"),
        OptionRow(
            "token_file",
            "str",
            "",
            "",
            "private file with the token; or give it by FLIGHT_SHUFFLE_TOKEN",
        ),
    ]


def test_option_of_a_type_that_texts_cannot_give_is_a_programming_error() -> None:
    @dataclass(frozen=True)
    class Bad:
        paths: list[str] = field(default_factory=list)

    with pytest.raises(TypeError, match="list"):
        options_table(Bad)


def private(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_secret_comes_from_the_option_its_file_or_the_environment(tmp_path: Path) -> None:
    environment = {"FLIGHT_SHUFFLE_TOKEN": "of the environment\n", "FLIGHT_SHUFFLE_CODEC": "none"}
    given: dict[str, str | int | float | bool] = {"server": "h:1"}
    file = {"token_file": private(tmp_path / "t", " of the file\n")}
    assert parse_options(Options, given | {"token": "given"}, environment).token == "given"
    assert parse_options(Options, given | file, environment).token == "of the file"
    assert parse_options(Options, given, environment) == Options(server="h:1", token="of the environment")
    assert parse_options(Options, given | {"token": "", "token_file": ""}, environment).token == "of the environment"
    assert parse_options(Options, given).token == ""


def test_the_environment_does_not_count_where_another_option_stands_for_the_same() -> None:
    @dataclass(frozen=True, slots=True)
    class Either:
        file: str = option("", help="")
        token: str = option("", secret=True, unless=("file",), help="")

    environment = {"FLIGHT_SHUFFLE_TOKEN": "t"}
    assert parse_options(Either, {"file": "f"}, environment).token == ""
    assert parse_options(Either, {"file": ""}, environment).token == "t"
    assert parse_options(Either, {"file": "f", "token": "given"}, environment).token == "given"


def test_a_file_with_a_secret_is_private_and_says_something(tmp_path: Path) -> None:
    for text, mode, words in (
        ("4711", 0o644, "token_file .*/t may be read or written by other users .mode 0644.*chmod 600"),
        ("\n", 0o600, "token_file .*/t is empty"),
    ):
        with pytest.raises(InvalidArgument, match=words) as refused:
            parse(token_file=private(tmp_path / "t", text, mode))
        assert "4711" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="token_file .*/none cannot be read"):
        parse(token_file=str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match="both 'token' and 'token_file' are given"):
        parse(token="4711", token_file=private(tmp_path / "t", "4711"))
    with pytest.raises(UnknownOption, match="token_file"):
        parse(codec_file="x")
