"""Classes that a reader can hold in mind: few arguments to make one, few attributes to follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "facade/flight_shuffle",
    "shuffle_api/shuffle_api",
    "transport/shuffle_transport",
    "plugins/shuffle_plugins",
    "remote_service/shuffle_server",
)
GENERATED = "_pb2"
MOST_ARGUMENTS = 6


def classes() -> Iterator[ast.ClassDef]:
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        if GENERATED not in path.name:
            yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def arguments(made: ast.ClassDef) -> int:
    """Of its constructor, without `self`."""
    for node in made.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1
    return 0


def test_constructors_take_few_arguments() -> None:
    # What belongs together is a value of its own: options, limits, the threads that several share.
    taken = {made.name: arguments(made) for made in classes()}
    assert taken
    assert {name: count for name, count in taken.items() if count > MOST_ARGUMENTS} == {}
