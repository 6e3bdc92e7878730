"""The programs in docs/api.md and docs/plugin.md run as they are printed, and tables name things that exist."""

from __future__ import annotations

import re

import pytest

from shuffle_api import columnar, errors, interfaces, values
from shuffle_api.testing import ShufflePluginTests
from tests.documents import ROOT, blocks

DOCS = ROOT / "docs"
TEXT = (DOCS / "api.md").read_text()
PROGRAMS = [
    block.text
    for page in ("docs/api.md", "docs/plugin.md")
    for block in blocks(page)
    if block.language == "python" and "HOST:PORT" not in block.text  # dask's and Ray's
]


@pytest.mark.parametrize("program", PROGRAMS, ids=[str(n) for n in range(len(PROGRAMS))])
def test_program_runs(program: str) -> None:
    exec(compile(program, "docs", "exec"), {"__name__": "docs"})


def test_first_program_prints_what_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAMS[0], "docs/api.md", "exec"), {})
    assert capsys.readouterr().out == "0 ['be', 'be', 'is', 'it', 'or', 'that', 'to', 'to']\n1 ['not']\n"


def test_example_of_the_exam_is_one() -> None:
    names: dict[str, object] = {"__name__": "docs"}
    [program] = [program for program in PROGRAMS if "ShufflePluginTests" in program]
    exec(compile(program, "docs/api.md", "exec"), names)
    assert issubclass(names["TestMyShuffle"], ShufflePluginTests)  # type: ignore[arg-type]


def test_every_error_value_and_ability_named_exists() -> None:
    known = {**vars(errors), **vars(values), **vars(interfaces), **vars(columnar)}
    rows = "\n".join(line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([A-Z]\w+)", rows))
    assert {"ShuffleId", "MapOutputLost", "UnknownCodec"} <= named
    assert named - known.keys() == set()


@pytest.mark.parametrize("field", ["ShuffleSpec", "ShuffleHandle", "Totals", "MapOutput", "WorkerInfo"])
def test_fields_are_those_of_the_value(field: str) -> None:
    [fields] = re.findall(rf"`{field}\((.*?)\)`", TEXT)
    assert fields.split(", ") == list(getattr(values, field).__dataclass_fields__)


def test_every_code_is_in_the_table_of_troubleshooting() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    codes = re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)
    assert sorted(codes) == sorted(code.name for code in errors.ErrorCode)
    for name in re.findall(r"^\| `([A-Z][a-z]\w+)` \|", text, re.MULTILINE):
        assert issubclass(getattr(errors, name), errors.ShuffleError)
