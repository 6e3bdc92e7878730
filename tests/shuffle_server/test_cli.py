"""`flight-shuffle server` as whoever starts it sees it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.options import options_table
from shuffle_api.values import parse_labels
from shuffle_server.cli import main, program
from shuffle_server.cli.roles import options_from
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer
from shuffle_transport.option_sources import option_names
from shuffle_transport.tokens import app_token, cluster_token, expiry_of, worker_token
from tests.certificates import make_party
from tests.shuffle_server.secured import Secured
from tests.shuffle_server.test_server import run_cli

SECRET = bytes(range(33, 65))


def options_of(role: str, *arguments: str) -> ServerOptions:
    """The options of a server that is started with these arguments."""
    command = program().commands[role]
    with command.make_context(role, list(arguments)) as context:
        return options_from(role, context)


def test_a_server_whose_ready_line_nobody_reads_ends_and_says_why(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "shuffle_server", "server", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    try:
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    finally:
        os.close(writing)
    assert ended.returncode != 0
    assert "the ready line cannot be written" in ended.stderr


def test_a_server_that_is_told_to_stop_again_and_again_ends_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shuffle_server", "server", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready ")
        deadline = time.monotonic() + 240
        while server.poll() is None and time.monotonic() < deadline:  # also while the interpreter ends
            server.send_signal(signal.SIGTERM)
            time.sleep(0.0005)
        server.kill()
    assert server.returncode == 0


def test_secrets_of_a_role_come_from_files_and_the_environment_those_of_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tier"
    file.write_text("s3://key:secret@bucket/path\n")
    file.chmod(0o600)
    monkeypatch.setenv("FLIGHT_SHUFFLE_METADATA", "postgresql://u:p@h/d")
    monkeypatch.setenv("FLIGHT_SHUFFLE_TIER", "gs://bucket")
    assert options_of("server", "d") == ServerOptions(data_dir="d", tier="gs://bucket")
    assert options_of("server", "d", "--tier-file", str(file)).tier == "s3://key:secret@bucket/path"
    assert options_of("master", "--data-dir", "d") == ServerOptions("d", metadata="postgresql://u:p@h/d")
    assert "s3:" not in repr(options_of("worker", "d", "--master", "h:1", "--tier-file", str(file)))


@pytest.mark.parametrize(
    ("whose", "make"),
    [
        (["--app", "a"], lambda expires: app_token(SECRET, "a", expires)),
        (["--worker", "w-1"], lambda expires: worker_token(SECRET, "w-1", expires)),
        (["--cluster"], lambda expires: cluster_token(SECRET, expires)),
    ],
)
def test_tokens_are_printed_of_the_first_secret_and_expire_if_they_should(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], whose: list[str], make: Callable[[int], str]
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n" + b"y" * 40)
    file.chmod(0o600)
    arguments = ["token", "--secret-file", str(file), *whose]
    assert main(arguments) == 0
    assert capsys.readouterr().out == make(0) + "\n"
    before = int(time.time())
    assert main([*arguments, "--valid", "12h"]) == 0
    token = capsys.readouterr().out.strip()
    assert before + 12 * 3600 <= expiry_of(token) <= time.time() + 12 * 3600
    assert token == make(expiry_of(token))
    for wrong in ("soon", "0s", "-1h", "99999999d"):
        assert main([*arguments, f"--valid={wrong}"]) == 2
        assert "--valid" in capsys.readouterr().err


def texts_of_help(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.get_help(click.Context(command, info_name=path))
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from texts_of_help(below, f"{path} {name}")


def test_help_names_options_as_they_are_written_and_each_default() -> None:
    texts = dict(texts_of_help(program(), "flight-shuffle"))
    assert len(texts) > 15
    names = {name for name in option_names(program()) if "_" in name}
    for path, text in texts.items():
        assert not re.findall(rf"\b({'|'.join(names)})\b", text), path
    assert "(default: 50)" in texts["flight-shuffle events"]
    assert "FLIGHT_SHUFFLE_TOKEN" not in texts["flight-shuffle spark-conf"]
    assert "--listen" not in texts["flight-shuffle worker"]
    assert "map outputs" not in texts["flight-shuffle master"].partition("--data-dir")[2].partition("\n  --")[0]
    assert texts["flight-shuffle scrub"].startswith("Usage: flight-shuffle scrub [OPTIONS]\n")


def test_options_of_a_server_are_shown_by_areas() -> None:
    text = dict(texts_of_help(program(), "flight-shuffle"))["flight-shuffle server"]
    places = [("Storage", "--data-dir"), ("Addresses", "--listen"), ("Memory", "--memory"), ("Security", "--tls-cert")]
    for area, option in places:
        section = text.partition(f"\n{area}:\n")[2].partition("\n\n")[0]
        assert f"  {option} " in section, area
    for row in options_table(ServerOptions):
        assert row.area, row.name


def test_the_command_line_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHT_SHUFFLE_DATA_DIR", "/a")
    assert options_of("server").data_dir == "/a"
    assert options_of("server", "/b").data_dir == options_of("server", "--data-dir", "/b").data_dir == "/b"


def test_a_wrong_value_says_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(*arguments: str) -> str:
        assert main(["server", "d", *arguments]) == 2
        return capsys.readouterr().err

    monkeypatch.setenv("FLIGHT_SHUFFLE_MEMORY", "1x")
    assert "(from FLIGHT_SHUFFLE_MEMORY)" in refusal()
    monkeypatch.delenv("FLIGHT_SHUFFLE_MEMORY")
    monkeypatch.setenv("FLIGHT_SHUFFLE_ADVERTISE", "a b")
    assert "(--advertise is from FLIGHT_SHUFFLE_ADVERTISE)" in refusal()
    monkeypatch.delenv("FLIGHT_SHUFFLE_ADVERTISE")
    monkeypatch.setenv("FLIGHT_SHUFFLE_SECRET_FILE", str(tmp_path / "none"))
    refused = run_cli("server", str(tmp_path / "d"), "--listen", "127.0.0.1:0")
    assert f"--secret-file {tmp_path / 'none'} cannot be read" in refused.stderr
    assert "(--secret-file is from FLIGHT_SHUFFLE_SECRET_FILE)" in refused.stderr
    monkeypatch.delenv("FLIGHT_SHUFFLE_SECRET_FILE")
    file = tmp_path / "options.toml"
    for text, words in (
        ("memory = true", "expected a number, not true or false (from {}, [server])"),
        ("log_file = 7", "expected a text, not a number: write it in quotes (from {}, [server])"),
        ('listen = "h:x"', "(--listen is from {}, [server])"),
        ('data_dir = ["a", "b"]', "{} has a list for 'data_dir'; write one text, with commas: data_dir = "),
    ):
        file.write_text(f"[server]\n{text}\n")
        assert words.format(file) in " ".join(refusal("--config", str(file)).split())


def test_refusals_of_tls_and_tokens_name_options_as_they_are_written(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_party(tmp_path / "other")
    at, names = ("--server", secured.server.control, "--timeout", "60s"), option_names(program())
    trusted = ("--tls-ca", str(secured.party.ca))
    for arguments, word in (
        (("status", *at, "--tls-ca", str(other.ca)), "--tls-ca must hold"),
        (("status", *at), "it may want TLS: then set --tls-ca"),
        (("status", *at, *trusted), "--token"),
        (("status", *at, *trusted, "--token", "wrong"), "token"),
        (("doctor", *at, "--tls-ca", str(other.ca)), "--tls-ca"),
    ):
        assert main(arguments) == 1
        said = "".join(capsys.readouterr())
        assert word in said, arguments
        assert "SSL" not in said
        for name in names:
            assert "_" not in name or name not in said, said


def test_a_demo_through_a_server_with_tls_and_a_secret(
    secured: Secured, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHT_SHUFFLE_TOKEN", "of-something-else")
    files = ("--tls-ca", str(secured.party.ca), "--secret-file", str(secured.secret_file))
    assert main(["demo", "--server", secured.server.control, "--timeout", "120s", *files]) == 0
    shown = capsys.readouterr().out
    assert "All counts are right." in shown
    assert f"next: flight-shuffle spark-conf --server {secured.server.control}\n" in shown
    assert "flight-shuffle server" not in shown


def test_a_server_that_is_not_there_is_named_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        nobody = f"[::1]:{taken.getsockname()[1]}"
    for verb in ("status", "scrub", "demo"):
        assert main([verb, "--server", nobody]) == 1
        said = capsys.readouterr().err
        assert f"nobody answers at {nobody}: no process listens there (connection refused). To do: " in said
        assert "%5B" not in said


def test_help_is_also_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert "Commands:" in capsys.readouterr().out
    assert main(["help", "token"]) == 0
    assert "--secret-file" in capsys.readouterr().out


def test_a_worker_whose_id_no_header_takes_has_no_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    file.chmod(0o600)
    for id in ("", "a b", "w\u00e4"):
        assert main(["token", "--secret-file", str(file), "--worker", id]) == 2
        assert "no worker's id" in capsys.readouterr().err


def test_a_command_takes_its_token_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_bytes(SECRET)
    secret_file.chmod(0o600)
    server = MasterServer(ServerOptions(str(tmp_path / "m"), "127.0.0.1:0", secret_file=str(secret_file)))
    try:
        monkeypatch.setenv("FLIGHT_SHUFFLE_TOKEN", cluster_token(SECRET))
        assert main(["status", server.control_address]) == 0
        assert "epoch" in capsys.readouterr().out
        monkeypatch.setenv("FLIGHT_SHUFFLE_TOKEN", "wrong")
        assert main(["status", server.control_address]) == 1
        assert main(["status", server.control_address, "--secret-file", str(secret_file)]) == 0
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--label", "zone=b", "--label", "rack=a"], {}),
        (["--label", "rack=a,zone=b"], {}),
        ([], {"FLIGHT_SHUFFLE_LABEL": "rack=a,zone=b"}),
    ],
)
def test_labels_are_given_one_by_one_or_as_a_list(
    arguments: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    options = options_of("worker", "--data-dir", "d", "--master", "h:1", *arguments)
    assert parse_labels(options.label) == ("rack=a", "zone=b")


def test_labels_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('label = "rack=a,zone=b"\n')
    options = options_of("worker", "--data-dir", "d", "--master", "h:1", "--config", str(tmp_path / "config.toml"))
    assert parse_labels(options.label) == ("rack=a", "zone=b")


@pytest.mark.parametrize("wrong", ["rack", "host=h", "rack=a,rack=b", "a b=c", ",".join(f"k{n}=v" for n in range(9))])
def test_labels_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="label"):
        parse_labels(wrong)
