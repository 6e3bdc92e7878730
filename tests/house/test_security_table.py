"""docs/security.md promises bounds: each of them names a test, and that test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADING = "## What one client can take"
PARTIES = 5


def bounds() -> list[str]:
    """The items of the lists below the heading, a line each."""
    text = (ROOT / "docs" / "security.md").read_text().partition(HEADING)[2].partition("What remains")[0]
    assert text.count("\nBy a") == PARTIES
    return [" ".join(item.split()) for item in re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)]


def names_of_tests(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_bound_in_the_security_document_names_a_test_that_exists() -> None:
    found = bounds()
    assert len(found) > 40
    for bound in found:
        resource, _, promise = bound.partition(": ")
        assert promise, f"names no bound: {bound}"
        named = re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", promise)
        assert named, f"names no test: {bound}"
        for file, test in named:
            assert (ROOT / file).is_file(), f"there is no {file}: {resource}"
            assert test in names_of_tests(ROOT / file), f"{file} has no {test}: {resource}"
