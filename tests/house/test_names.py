"""Names: a class is found by its name alone."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.house.packages import ROOT, modules


def test_class_names_are_unique() -> None:
    # Those of one module that begin with an underscore too: tracebacks, logs and searches show no more than the name.
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert places
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
