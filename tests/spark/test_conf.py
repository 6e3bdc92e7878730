"""shuffle_plugins.spark.conf: the settings, and their three forms as text."""

import json
import re
import shlex
from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_plugins.spark import conf_lines, spark_conf

JAR = Path("/opt/jars/flight-shuffle-spark_4.3-0.1.0.jar")


def test_spark_conf_names_manager_jar_server_and_policy() -> None:
    assert spark_conf("host:7070", jar=JAR) == {
        "spark.shuffle.manager": "org.apache.spark.shuffle.flight.FlightShuffleManager",
        "spark.shuffle.sort.io.plugin.class": "org.apache.spark.shuffle.flight.FlightShuffleDataIO",
        "spark.jars": str(JAR),
        "spark.shuffle.flight.server": "host:7070",
        "spark.shuffle.flight.fallback": "auto",
    }


def test_spark_conf_for_spark_3_5_has_the_jar_on_the_class_path_of_executors() -> None:
    added = {"spark.executor.extraClassPath": f"{JAR}:{JAR.name}"}
    assert spark_conf("host:7070", jar=JAR, spark_version="3.5.1") == spark_conf("host:7070", jar=JAR) | added


def test_spark_conf_prefixes_further_options_and_writes_booleans_as_spark_does() -> None:
    conf = spark_conf("host:7070", jar=JAR, options={"anything": True, "size": "64m", "count": 3})
    assert conf["spark.shuffle.flight.anything"] == "true"
    assert conf["spark.shuffle.flight.size"] == "64m"
    assert conf["spark.shuffle.flight.count"] == "3"


def test_spark_conf_names_the_files_of_credentials_wherever_spark_runs_and_holds_no_secret() -> None:
    files = {"tls_ca": "ca.pem", "tls_cert": "cert.pem", "tls_key": Path("/k/key.pem"), "secret_file": "secret"}
    conf = spark_conf("host:7070", jar=JAR, **files)  # type: ignore[arg-type]
    assert {key: value for key, value in conf.items() if ".tls." in key or ".token." in key} == {
        "spark.shuffle.flight.tls.ca": f"{Path.cwd()}/ca.pem",
        "spark.shuffle.flight.tls.cert": f"{Path.cwd()}/cert.pem",
        "spark.shuffle.flight.tls.key": "/k/key.pem",
        "spark.shuffle.flight.token.secretFile": f"{Path.cwd()}/secret",
    }
    assert spark_conf("h:1", jar=JAR, token_file="t")["spark.shuffle.flight.token.file"] == f"{Path.cwd()}/t"
    relative = spark_conf("h:1", jar=JAR, options={"tls.ca": "ca.pem"})
    assert relative["spark.shuffle.flight.tls.ca"] == "ca.pem"


def test_spark_conf_for_real_time_mode_names_its_manager_too_and_wants_a_spark_that_has_it() -> None:
    conf = spark_conf("host:7070", jar=JAR, real_time=True, spark_version="4.3.1")
    added = {"spark.shuffle.manager.incremental": "org.apache.spark.shuffle.flight.FlightPipelinedShuffleManager"}
    assert conf == spark_conf("host:7070", jar=JAR) | added
    assert conf == spark_conf("host:7070", jar=JAR, real_time=True, spark_version="4.10.0")
    for version in ("4.2.0", "3.5.9"):
        with pytest.raises(InvalidArgument, match=rf"needs Spark 4\.3 or later, and this is {version}"):
            spark_conf("host:7070", jar=JAR, real_time=True, spark_version=version)


@pytest.mark.parametrize("server", ["127.0.0.1:7070", "shuffle-1.example.org:65535", "[::1]:7070"])
def test_spark_conf_takes_names_and_both_kinds_of_address(server: str) -> None:
    assert spark_conf(server, jar=JAR)["spark.shuffle.flight.server"] == server


@pytest.mark.parametrize(
    "server", ["", "host", "host:", ":7070", "host:0", "host:65536", "host:7a", "http://host:7070", "::1:7070", "a b:1"]
)
def test_spark_conf_refuses_what_is_no_address_and_says_it(server: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        spark_conf(server, jar=JAR)
    assert repr(server) in str(caught.value)


def test_spark_conf_lists_the_policies_when_given_another() -> None:
    with pytest.raises(InvalidArgument, match=r"'sometimes'.*auto, never, always"):
        spark_conf("host:7070", fallback="sometimes", jar=JAR)


CONF = {"spark.shuffle.flight.server": "host:7070", "spark.jars": "/with space/a.jar", "x": "back\\slash"}


def test_conf_lines_as_options_survive_a_shell() -> None:
    words = shlex.split(conf_lines(CONF, "conf").replace("\n", " "))
    assert words[::2] == ["--conf"] * 3
    assert dict(word.split("=", 1) for word in words[1::2]) == CONF


def test_conf_lines_as_defaults_are_a_properties_file() -> None:
    assert conf_lines(CONF, "defaults").splitlines() == [
        "spark.shuffle.flight.server host:7070",
        "spark.jars /with space/a.jar",
        "x back\\\\slash",
    ]


def read_properties(text: str) -> dict[str, str]:
    """As ``java.util.Properties`` does, of lines ``key=value`` with escapes."""
    escapes = {"n": "\n", "r": "\r", "t": "\t"}
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"((?:\\.|[^\\=:\s])+)=((?:\\.|[^\\])*)", line)
        assert match is not None, line
        key, value = (re.sub(r"\\(.)", lambda at: escapes.get(at[1], at[1]), part) for part in match.groups())
        found[key] = value
    return found


def test_conf_lines_as_a_file_keep_values_with_blanks_and_lines() -> None:
    conf = CONF | {"opts": '-Da=1 -Db="x y"', "lead": "  two", "lines": "a\nb\tc\r", "odd key:=": "#!"}
    assert read_properties(conf_lines(conf, "file")) == conf
    assert "lead=\\ \\ two" in conf_lines(conf, "file").splitlines()


def test_conf_lines_as_json_are_the_same_dict() -> None:
    assert json.loads(conf_lines(CONF, "json")) == CONF


def test_conf_lines_list_the_formats_when_given_another() -> None:
    with pytest.raises(InvalidArgument, match=r"'yaml'.*conf, defaults, file, json"):
        conf_lines(CONF, "yaml")
