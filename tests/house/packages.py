"""The product's packages, and their modules, as the house tests look at them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "flight_shuffle": ROOT / "facade" / "flight_shuffle",
    "shuffle_api": ROOT / "shuffle_api" / "shuffle_api",
    "shuffle_transport": ROOT / "transport" / "shuffle_transport",
    "shuffle_plugins": ROOT / "plugins" / "shuffle_plugins",
    "shuffle_server": ROOT / "remote_service" / "shuffle_server",
}
GENERATED = "_pb2"


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Each file that was written by hand, and what is in it."""
    for path in (path for package in PACKAGES.values() for path in sorted(package.rglob("*.py"))):
        if GENERATED not in path.name:
            yield path, ast.parse(path.read_text())
