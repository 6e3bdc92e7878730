"""Where the values of a command's options come from, and how they are written."""

from __future__ import annotations

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
@click.option("--room", type=Size(), default="1k")
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
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong_in_it(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "options.toml"
    file.write_text(text)
    with pytest.raises(click.UsageError) as refused:
        run("--config", str(file))
    assert words in refused.value.format_message()
    assert refused.value.exit_code == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="cannot be read: No such file"):
        run("--config", str(tmp_path / "none.toml"))


@pytest.mark.parametrize("given", ["a:1", "a:1,b:2", "[::1]:9110", "my_host:7"])
def test_addresses_are_taken_as_they_are_written(given: str) -> None:
    assert Addresses().convert(given, None, None) == given
    assert server_of(None, given) == given == server_of(given, given)


def test_there_is_one_address() -> None:
    with pytest.raises(click.UsageError, match="address is missing"):
        server_of(None, "")
    with pytest.raises(click.UsageError, match="two addresses"):
        server_of("a:1", "b:1")


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
