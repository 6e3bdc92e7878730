"""Packages of the Spark plugin: each is one part, small, and uses only the parts below it."""

import re
from collections import Counter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "plugins/spark/src"
BASE = "org.apache.spark.shuffle.flight"
MOST_FILES = 15
# From the bottom up. `SPI` is the package itself: what Spark calls and users name. All may use the generated messages.
SPI = "SPI"
GENERATED = "proto"
MAY_USE: dict[str, set[str]] = {
    "wire": set(),
    "metrics": set(),
    "rows": set(),
    "client": set(),
    "blocks": set(),
    "conf": {"client"},
    "version": {"conf"},
    "local": {"wire", "client", "blocks"},
    "push": {"wire", "metrics", "client", "blocks", "conf", "local"},
    "fetch": {"wire", "client", "blocks", "local"},
    "read": {"metrics", "blocks", "fetch"},
    "ui": {"metrics"},
    "driver": {"wire", "metrics", "client", "blocks", "conf", "ui"},
    "realtime": {"wire", "rows", "client", "conf", "push"},
    SPI: {
        *("wire", "metrics", "rows", "client", "blocks", "conf", "version"),
        *("local", "push", "fetch", "read", "driver", "realtime"),
    },
}
JAVA = sorted(path for path in SOURCES.rglob("*.java") if "test" not in path.relative_to(SOURCES).parts)


def package(source: str) -> str:
    [name] = re.findall(rf"^package {re.escape(BASE)}(?:\.(\w+))?;$", source, re.MULTILINE)
    return str(name) or SPI


def used(source: str) -> set[str]:
    """The other packages of ours that a source file names, in imports or in full, outside of its texts."""
    code = re.sub(r'"(?:\\.|[^"\\\n])*"', "", re.sub(r"^package .*;$", "", source, flags=re.MULTILINE))
    named = re.findall(rf"{re.escape(BASE)}\.(\w+)", code)
    return {name if name[0].islower() else SPI for name in named} - {package(source), GENERATED}


def test_every_package_is_a_part() -> None:
    assert {package(path.read_text()) for path in JAVA} == set(MAY_USE)


def test_no_package_has_many_files() -> None:
    # Those of all lines of Spark together; the variants of a file for two lines count twice.
    files = Counter(package(path.read_text()) for path in JAVA)
    assert {name: count for name, count in files.items() if count > MOST_FILES} == {}


def test_parts_go_one_way() -> None:
    order = list(MAY_USE)
    wrong = [(part, name) for part in order for name in MAY_USE[part] if order.index(name) >= order.index(part)]
    assert wrong == []


@pytest.mark.parametrize("part", MAY_USE)
def test_part_uses_only_those_below_it(part: str) -> None:
    sources = {path.name: path.read_text() for path in JAVA}
    wrong = {name: used(text) - MAY_USE[part] for name, text in sources.items() if package(text) == part}
    assert {name: names for name, names in wrong.items() if names} == {}


def test_names_in_full_and_static_imports_count_and_texts_do_not() -> None:
    source = f"""package {BASE}.rows;
import static {BASE}.wire.BlockBatch.MOST;
import {BASE}.proto.Totals;
class A {{ {BASE}.FlightExecutor executor; String rule = "{BASE}.driver.Rule"; {BASE}.rows.B b; }}
"""
    assert package(source) == "rows"
    assert used(source) == {"wire", SPI}
