"""docs/security.md promises bounds: each row of its last table names a test, and that test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADING = "## What one client can take"
COLUMNS = ["resource", "who can take it", "bound", "default", "refusal", "test"]


def rows() -> list[list[str]]:
    """The cells of the table, its head first."""
    text = (ROOT / "docs" / "security.md").read_text().partition(HEADING)[2]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [found[0], *found[2:]]


def names_of_tests(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_bound_in_the_security_document_names_a_test_that_exists() -> None:
    head, *bounds = rows()
    assert head == COLUMNS
    assert bounds
    for row in bounds:
        assert len(row) == len(COLUMNS), row
        assert all(row), f"a cell is empty: {row}"
        named = re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", row[-1])
        assert named, f"names no test: {row}"
        for file, test in named:
            assert (ROOT / file).is_file(), f"there is no {file}: {row[0]}"
            assert test in names_of_tests(ROOT / file), f"{file} has no {test}: {row[0]}"
