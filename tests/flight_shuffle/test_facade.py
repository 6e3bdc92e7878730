"""The package `flight_shuffle`: the public names of the others, under that of the distribution."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import flight_shuffle
import flight_shuffle.errors
import shuffle_api
from shuffle_plugins import spark


def test_it_has_the_public_names_and_the_version() -> None:
    assert set(shuffle_api.__all__) < set(flight_shuffle.__all__)
    assert all(hasattr(flight_shuffle, name) for name in flight_shuffle.__all__)
    assert flight_shuffle.open_plugin is shuffle_api.open_plugin
    assert flight_shuffle.RemoteShuffle is shuffle_api.load_plugin("remote")
    assert (flight_shuffle.spark_conf, flight_shuffle.find_jar) == (spark.spark_conf, spark.find_jar)
    assert flight_shuffle.__version__ == version("flight-shuffle")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = flight_shuffle.other


@pytest.mark.parametrize("name", ["columnar", "errors", "sorting", "streaming"])
def test_its_modules_are_those_of_the_api(name: str) -> None:
    module, own = import_module(f"flight_shuffle.{name}"), import_module(f"shuffle_api.{name}")
    assert set(own.__all__) <= set(module.__all__)
    assert all(getattr(module, each) is getattr(own, each) for each in own.__all__)


def test_every_error_may_be_caught_by_its_name() -> None:
    raised = {name for name, each in vars(shuffle_api.errors).items() if not name.startswith("_") and is_error(each)}
    assert raised <= set(flight_shuffle.errors.__all__)


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, shuffle_api.ShuffleError)


def test_plugins_are_loaded_when_they_are_asked_for() -> None:
    loaded = "{'grpc', 'dask', 'pandas', 'shuffle_plugins.spark'} & set(sys.modules)"
    run("-c", f"import sys, flight_shuffle; assert not {loaded}, 'loaded'")


def test_the_package_is_the_command_line() -> None:
    assert run("-m", "flight_shuffle", "--version") == f"flight-shuffle {flight_shuffle.__version__}\n"
    assert "spark-conf" in run("-m", "flight_shuffle", "--help")


def run(*arguments: str) -> str:
    """What Python prints; it must succeed."""
    command = [sys.executable, *arguments]
    path = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(command, check=True, timeout=240, env=path, stdout=subprocess.PIPE, text=True).stdout


def test_the_reference_has_what_is_loaded_on_demand() -> None:
    text = (Path(__file__).parents[2] / "docs" / "python-reference.md").read_text()
    [members] = re.findall(r"^::: flight_shuffle\n(?:    .*\n)*?      members: \[(.*)\]$", text, re.MULTILINE)
    assert set(flight_shuffle._ON_DEMAND) < set(members.split(", ")) < set(flight_shuffle.__all__)
