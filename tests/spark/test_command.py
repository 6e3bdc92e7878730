"""shuffle_plugins.spark.command: the subcommand ``spark-conf``, without the program around it."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from shuffle_plugins.spark import UnsupportedSpark, conf, spark_conf
from shuffle_plugins.spark.command import register
from tests.certificates import make_party, make_secret

JAR = Path("/jars/flight-shuffle-spark_4.3-0.1.0.jar")


def spark_conf_command(*arguments: str) -> int:
    program = click.Group("flight-shuffle")
    register(program)
    done: Any = program.main(["spark-conf", *arguments], standalone_mode=False)
    return int(done or 0)


@pytest.fixture
def built_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "find_jar", lambda version: JAR)


@pytest.mark.usefixtures("built_jar")
def test_spark_conf_prints_what_the_function_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca, secret = make_party(tmp_path / "tls").ca, make_secret(tmp_path / "secret")
    given = ("--server", "host:1", "--fallback", "never", "--option", "a=b=c", "--format", "json")
    files = ("--tls-ca", str(ca), "--secret-file", str(secret))
    assert spark_conf_command(*given, *files) == 0
    expected = spark_conf("host:1", fallback="never", options={"a": "b=c"}, jar=JAR, tls_ca=ca, secret_file=secret)
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("--tls-ca", "nope.pem"), "--tls-ca nope.pem cannot be read"),
        (("--tls-key", "key.pem"), "--tls-key without --tls-ca"),
        (("--token-file", "nope"), "--token-file nope cannot be read"),
    ],
)
def test_spark_conf_refuses_files_that_are_missing(files: tuple[str, ...], words: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        spark_conf_command("--server", "host:1", *files)
    assert words in refused.value.format_message()


@pytest.mark.usefixtures("built_jar")
def test_spark_conf_warns_of_quotes_that_a_shell_would_keep(capsys: pytest.CaptureFixture[str]) -> None:
    assert spark_conf_command("--server", "host:1", "--option", "app=my app") == 0
    assert "spark.shuffle.flight.app is printed in quotes" in (warned := capsys.readouterr().err)
    assert "--format file" in warned
    for harmless in (("app=mine", "conf"), ("app=my app", "file")):
        assert spark_conf_command("--server", "host:1", "--option", harmless[0], "--format", harmless[1]) == 0
        assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("built_jar")
def test_spark_conf_prints_options_of_spark_submit_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert spark_conf_command("--server", "host:1") == 0
    assert "--conf spark.shuffle.flight.server=host:1\n" in capsys.readouterr().out


@pytest.mark.usefixtures("built_jar")
def test_spark_conf_refuses_an_option_without_value() -> None:
    with pytest.raises(click.UsageError, match="'a' is not NAME=VALUE"):
        spark_conf_command("--server", "host:1", "--option", "a")


def test_spark_conf_refuses_another_spark_version() -> None:
    with pytest.raises(UnsupportedSpark, match=r"Spark 3\.4\.1"):
        spark_conf_command("--server", "host:1", "--spark-version", "3.4.1")
