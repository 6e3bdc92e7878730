"""Finding plugins: by entry point, of installed distributions only, with errors that say which ones there are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument, UnknownOption, UnknownPlugin
from shuffle_api.plugins import GROUP, known_plugins, load_plugin, open_plugin
from shuffle_api.testing import MemoryShuffle

Install = Callable[[str, dict[str, str]], None]
STRANGER = """
from shuffle_api.testing import MemoryShuffle
class Stranger(MemoryShuffle):
    name = "stranger"
class Nameless(MemoryShuffle):
    name = "another"
NOT_A_CLASS = 7
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with these entry points, as pip would leave it, for the length of the test."""
    (tmp_path / "strange_module.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution: str, points: dict[str, str]) -> None:
        info = tmp_path / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {value}\n" for name, value in points.items()]
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")

    yield install
    sys.modules.pop("strange_module", None)


def test_strangers_plugin_is_found_opened_and_listed(install: Install) -> None:
    install("strange", {"stranger": "strange_module:Stranger"})
    assert load_plugin("stranger").name == "stranger"
    assert "stranger" in known_plugins()
    with open_plugin("stranger", {"content": "opaque"}) as plugin:
        assert isinstance(plugin, MemoryShuffle)


def test_options_reach_the_plugin(install: Install) -> None:
    install("strange", {"stranger": "strange_module:Stranger"})
    with pytest.raises(UnknownOption, match="colour"):
        open_plugin("stranger", {"colour": "red"})


def test_unknown_plugin_lists_the_known_ones(install: Install) -> None:
    install("strange", {"stranger": "strange_module:Stranger"})
    with pytest.raises(UnknownPlugin, match="'strangr'.*did you mean 'stranger'") as raised:
        load_plugin("strangr")
    assert raised.value.known == known_plugins()


def test_two_distributions_that_offer_one_name_are_refused(install: Install) -> None:
    install("strange", {"stranger": "strange_module:Stranger"})
    install("stranger-still", {"stranger": "other_module:Stranger"})
    with pytest.raises(InvalidArgument, match="other_module:Stranger, strange_module:Stranger"):
        load_plugin("stranger")


def test_same_plugin_seen_twice_is_no_conflict(install: Install) -> None:
    install("strange", {"stranger": "strange_module:Stranger"})
    install("strange-leftover", {"stranger": "strange_module:Stranger"})
    assert load_plugin("stranger").name == "stranger"


@pytest.mark.parametrize("value", ["no_such_module:X", "strange_module:no_such_class"])
def test_plugin_that_cannot_be_imported_is_named_with_its_entry_point(install: Install, value: str) -> None:
    install("strange", {"broken": value})
    with pytest.raises(InvalidArgument, match=f"'broken' \\({value}\\) cannot be loaded.*no_such"):
        load_plugin("broken")


def test_entry_point_that_is_no_plugin_is_refused(install: Install) -> None:
    install("strange", {"seven": "strange_module:NOT_A_CLASS"})
    with pytest.raises(InvalidArgument, match="'seven'.*not a subclass"):
        load_plugin("seven")


def test_plugin_with_another_name_than_its_entry_point_is_refused(install: Install) -> None:
    install("strange", {"stranger": "strange_module:Nameless"})
    with pytest.raises(InvalidArgument, match="'stranger'.*calls itself 'another'"):
        load_plugin("stranger")
