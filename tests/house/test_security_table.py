"""docs/security.md promises bounds: each row of its last tables names a test, and that test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADING = "## What one client can take"
COLUMNS = ["resource", "bound (default), refusal", "test"]


def tables() -> list[list[list[str]]]:
    """The cells of each table, its head first."""
    text = (ROOT / "docs" / "security.md").read_text().partition(HEADING)[2]
    found: list[list[list[str]]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells == COLUMNS:
            found.append([])
        if line.startswith("|") and not line.startswith("|-"):
            found[-1].append(cells)
    return found


def names_of_tests(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_bound_in_the_security_document_names_a_test_that_exists() -> None:
    found = tables()
    assert len(found) >= 4
    assert all(head == COLUMNS and bounds for head, *bounds in found)
    for row in (row for _, *bounds in found for row in bounds):
        assert len(row) == len(COLUMNS), row
        assert all(row), f"a cell is empty: {row}"
        named = re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", row[-1])
        assert named, f"names no test: {row}"
        for file, test in named:
            assert (ROOT / file).is_file(), f"there is no {file}: {row[0]}"
            assert test in names_of_tests(ROOT / file), f"{file} has no {test}: {row[0]}"
