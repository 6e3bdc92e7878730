"""shuffle_plugins.spark.command: the subcommand ``spark-conf``, without the program around it."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from shuffle_plugins.spark import UnsupportedSpark, conf, spark_conf
from shuffle_plugins.spark.command import register

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
def test_spark_conf_prints_what_the_function_returns(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--server", "host:1", "--fallback", "never", "--option", "a=b=c", "--format", "json")
    files = ("--tls-ca", "ca.pem", "--secret-file", "secret")
    assert spark_conf_command(*given, *files) == 0
    expected = spark_conf(
        "host:1", fallback="never", options={"a": "b=c"}, jar=JAR, tls_ca="ca.pem", secret_file="secret"
    )
    assert json.loads(capsys.readouterr().out) == expected


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
