"""Classes that a reader can hold in mind: few arguments to make one, few attributes to follow."""

from __future__ import annotations

import ast

from tests.house.packages import modules

MOST_ARGUMENTS = 6


def arguments(made: ast.ClassDef) -> int:
    """Of its constructor, without `self`."""
    for node in made.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1
    return 0


def test_constructors_take_few_arguments() -> None:
    # What belongs together is a value of its own: options, limits, the threads that several share.
    classes = [node for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    taken = {made.name: arguments(made) for made in classes}
    assert taken
    assert {name: count for name, count in taken.items() if count > MOST_ARGUMENTS} == {}
