"""Names: a class is found by its name alone."""

from __future__ import annotations

import ast
from collections import defaultdict
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


def test_class_names_are_unique() -> None:
    # Those of one module that begin with an underscore too: tracebacks, logs and searches show no more than the name.
    places: dict[str, list[str]] = defaultdict(list)
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        if GENERATED not in path.name:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert places
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
