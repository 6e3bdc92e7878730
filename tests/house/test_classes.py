"""Classes that a reader can hold in mind: few arguments to make one, few attributes to follow."""

from __future__ import annotations

import ast

from tests.house.packages import modules

MOST_ARGUMENTS = 6
MOST_ATTRIBUTES = 16


def arguments(made: ast.ClassDef) -> int:
    """Of its constructor, without `self`."""
    for node in made.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1
    return 0


def attributes(made: ast.ClassDef) -> set[str]:
    """That its methods assign to `self`."""
    found = set()
    for method in (node for node in made.body if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                found.add(node.attr)
    return found


def classes() -> list[ast.ClassDef]:
    return [node for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_constructors_take_few_arguments() -> None:
    # What belongs together is a value of its own: options, limits, the threads that several share.
    taken = {made.name: arguments(made) for made in classes()}
    assert taken
    assert {name: count for name, count in taken.items() if count > MOST_ARGUMENTS} == {}


def test_objects_have_few_attributes() -> None:
    # What belongs together is an object of its own, with the methods that use only that: a clock, a reservation.
    assigned = {made.name: attributes(made) for made in classes()}
    assert max(map(len, assigned.values())) > MOST_ATTRIBUTES // 2
    assert {name: len(found) for name, found in assigned.items() if len(found) > MOST_ATTRIBUTES} == {}


def test_attributes_are_counted_in_all_methods() -> None:
    [made] = ast.parse(
        "class A:\n"
        "    def __init__(self):\n        self.a, self._b = self.c = 1, 2\n"
        "        self.d: int = 3\n        other.e = 4\n"
        "    def f(self):\n        self.g += 1\n        print(self.h)\n"
    ).body
    assert isinstance(made, ast.ClassDef)
    assert attributes(made) == {"a", "_b", "c", "d", "g"}
