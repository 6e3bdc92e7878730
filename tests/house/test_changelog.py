"""The changelog is short, and fragments of the next section have the names that towncrier reads."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAGMENT = re.compile(r"\d+(\.[\w-]+)*\.(added|changed|fixed|removed)(\.\d+)?\.md")
SECTION_LINES = 60
COLUMNS = 120


def fragments() -> list[Path]:
    return [path for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]


def test_fragments_have_names_that_towncrier_reads() -> None:
    assert [path.name for path in fragments() if not FRAGMENT.fullmatch(path.name)] == []


def test_lines_of_fragments_are_short() -> None:
    lines = {path.name: max(map(len, path.read_text().splitlines())) for path in fragments()}
    assert {name: length for name, length in lines.items() if length > COLUMNS} == {}


def test_a_section_fits_on_a_page() -> None:
    sections = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert sections
    assert [section.splitlines()[0] for section in sections if section.count("\n") > SECTION_LINES] == []
