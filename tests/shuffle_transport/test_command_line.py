"""Where the values of a command's options come from, and how they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from shuffle_transport.command_line import (
    Addresses,
    Command,
    Duration,
    Program,
    Size,
    as_written,
    credential_options,
    keyring_of,
    server_of,
    server_option,
)
from shuffle_transport.credential_files import ClientOptions

TAKEN: list[dict[str, Any]] = []


@click.command(cls=Command)
@server_option()
@click.option("--room", type=Size(), default="1k", help="bytes of it")
@click.option("--wait", type=Duration(), default="1s")
@click.option("--json", "as_json", is_flag=True)
@credential_options(("tls_ca", "token"))
def take(**given: Any) -> None:
    TAKEN.append(given)


def run(*arguments: str) -> dict[str, Any]:
    program = Program("program")
    program.add_command(take)
    program.main(["take", *arguments], standalone_mode=False)
    return TAKEN.pop()


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "options.toml"
    file.write_text('room = "3k"\nwait = 7\n[take]\nserver = "file:1"\njson = true\n')
    config = ("--config", str(file))
    assert run(*config) | {"server": "file:1", "room": 3072, "wait": 7.0, "as_json": True} == run(*config)
    monkeypatch.setenv("FLIGHT_SHUFFLE_SERVER", "environment:1")
    monkeypatch.setenv("FLIGHT_SHUFFLE_ROOM", "2k")
    assert run(*config)["room"] == 2048
    assert run(*config, "--room", "64")["room"] == 64
    assert run(*config)["server"] == "environment:1"
    monkeypatch.setenv("FLIGHT_SHUFFLE_CONFIG", str(file))
    assert run()["wait"] == 7.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("romm = 1", "'romm', which is no option; there is: room"),
        ("[take]\nrates = 1", "'rates', which is no option"),
        ("room = ", "is no TOML file"),
        ('room = "many"', "--room"),
        ('server = "host"', "'host' is not HOST:PORT"),
        ("[takes]\nroom = 1", "has the table [takes]; known: take"),
        ("[take.deep]\nroom = 1", "has the table [take.deep]"),
        ('server = ["a:1", "b:1"]', "has a list for 'server'; write one text, with commas: server = "),
        ('[take]\nroom = "many"', "options.toml, [take])"),
        ('room = "many"', "options.toml, at its top)"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong_in_it(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "options.toml"
    file.write_text(text)
    with pytest.raises(click.UsageError) as refused:
        run("--config", str(file))
    assert words in refused.value.format_message()
    assert refused.value.exit_code == 2


def test_a_wrong_value_says_which_environment_variable_it_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHT_SHUFFLE_ROOM", "many")
    with pytest.raises(click.UsageError) as refused:
        run()
    assert refused.value.format_message().endswith("(from FLIGHT_SHUFFLE_ROOM)")
    assert run("--room", "2k")["room"] == 2048


def test_a_file_may_be_named_before_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, room in (("before", 2), ("behind", 3), ("environment", 4)):
        (tmp_path / name).write_text(f"room = {room}\n")
    monkeypatch.setenv("FLIGHT_SHUFFLE_CONFIG", str(tmp_path / "environment"))
    program = Program("program")
    program.add_command(take)
    before, behind = (("--config", str(tmp_path / name)) for name in ("before", "behind"))
    for arguments, room in (((*before, "take"), 2), ((*before, "take", *behind), 3), (("take",), 4)):
        program.main([*arguments], standalone_mode=False)
        assert TAKEN.pop()["room"] == room


def test_an_option_that_is_missing_is_explained() -> None:
    @click.command(cls=Command)
    @click.option("--place", required=True, metavar="DIR", help="where it is")
    def put(place: str) -> None: ...

    with pytest.raises(click.MissingParameter) as missing:
        put.main([], standalone_mode=False)
    assert "To do: give --place: where it is" in missing.value.format_message()


def test_help_shows_defaults_and_the_areas_of_options() -> None:
    text = take.get_help(click.Context(take, info_name="take"))
    assert "(default: 1k)" in text
    assert text.index("--room") < text.index("Security:") < text.index("--tls-ca")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="cannot be read: No such file"):
        run("--config", str(tmp_path / "none.toml"))


@pytest.mark.parametrize("given", ["a:1", "a:1,b:2", "[::1]:9110", "my_host:7"])
def test_addresses_are_taken_as_they_are_written(given: str) -> None:
    assert Addresses().convert(given, None, None) == given


def test_an_ipv6_address_without_brackets_is_refused_with_them() -> None:
    with pytest.raises(click.BadParameter, match=re.escape("[::1]:9110")):
        Addresses().convert("::1:9110", None, None)


@click.command(cls=Command)
@server_option(also_alone=True)
@click.pass_context
def look(context: click.Context, /, **_: str) -> str:
    return server_of(context)


def test_there_is_one_address_and_the_command_line_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def address(*arguments: str) -> Any:
        return look.main([*arguments], standalone_mode=False)

    with pytest.raises(click.UsageError, match="address is missing"):
        address()
    with pytest.raises(click.UsageError, match="two addresses are given, "):
        address("a:1", "--server", "b:1")
    assert address("a:1") == address("--server", "a:1") == address("a:1", "--server", "a:1") == "a:1"
    monkeypatch.setenv("FLIGHT_SHUFFLE_SERVER", "environment:1")
    assert address() == "environment:1"
    assert address("a:1") == address("--server", "a:1") == "a:1"


def test_the_address_without_an_option_is_not_shown() -> None:
    text = look.get_help(click.Context(look, info_name="look"))
    assert text.splitlines()[0] == "Usage: look [OPTIONS]"
    assert "[HOST:PORT]" not in text


def test_sizes_and_times_are_taken_as_people_write_them() -> None:
    assert (Size().convert("1g", None, None), Size().convert(5, None, None)) == (1 << 30, 5)
    assert (Duration().convert("10m", None, None), Duration().convert(3, None, None)) == (600.0, 3.0)
    for kind in (Size(), Duration()):
        with pytest.raises(click.BadParameter, match="expected a"):
            kind.convert("soon", None, None)


def test_options_are_named_as_they_are_written_on_a_command_line() -> None:
    text = "tls_cert or 'tls_key' without --tls-ca; /etc/tls_ca.pem is the secret_file."
    assert as_written(text, ClientOptions) == (
        "--tls-cert or --tls-key without --tls-ca; /etc/tls_ca.pem is the --secret-file."
    )


def test_credentials_that_do_not_fit_are_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command(cls=Command)
    @credential_options()
    @click.pass_context
    def keys(context: click.Context, /, **_: str) -> str:
        return keyring_of(context).token

    def show(*arguments: str) -> Any:
        return keys.main([*arguments], standalone_mode=False)

    with pytest.raises(click.UsageError, match="--tls-cert or --tls-key without --tls-ca"):
        show("--tls-cert", "c")
    file = tmp_path / "token"
    file.write_text("from-file")
    file.chmod(0o600)
    monkeypatch.setenv("FLIGHT_SHUFFLE_TOKEN", "from-environment")
    assert show() == "from-environment"
    assert show("--token-file", str(file)) == "from-file"
    with pytest.raises(click.UsageError, match="both --token and --token-file"):
        show("--token", "t", "--token-file", str(file))
