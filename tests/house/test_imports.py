"""Who may import whom: shuffle_api <- shuffle_transport <- {shuffle_plugins, shuffle_server}, and what from outside."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.packages import PACKAGES, ROOT

MAY_IMPORT = {
    "flight_shuffle": {"shuffle_api", "shuffle_plugins", "shuffle_server"},
    "shuffle_api": {"pyarrow", "numpy", "crc32c"},
    "shuffle_transport": {"shuffle_api", "pyarrow", "numpy", "grpc", "google", "lz4", "zstandard", "crc32c", "click"},
    "shuffle_plugins": {"shuffle_api", "shuffle_transport", "pyarrow", "numpy", "grpc", "google", "click"},
    "shuffle_server": {"shuffle_api", "shuffle_transport", "pyarrow", "numpy", "grpc", "google", "click"},
}
# Beyond that: the conformance kit is pytest classes, the benchmark draws, the way into Spark may look at PySpark,
# monitoring speaks Prometheus, a registry in a database PostgreSQL.
ALSO = {
    "shuffle_api/shuffle_api/testing": {"pytest", "hypothesis"},
    "transport/shuffle_transport/bench": {"matplotlib"},
    "facade/flight_shuffle/_frames.py": {"dask", "numpy", "pandas", "pyarrow"},
    "facade/flight_shuffle/dask.py": {"dask", "numpy", "pandas"},
    "facade/flight_shuffle/_tables.py": {"numpy", "pyarrow"},
    "facade/flight_shuffle/ray.py": {"pyarrow", "ray"},
    "plugins/shuffle_plugins/spark": {"pyspark", "py4j"},
    "remote_service/shuffle_server/observe": {"prometheus_client"},
    "remote_service/shuffle_server/master/postgres": {"psycopg"},
}
# Only the type checker sees what is imported under `if TYPE_CHECKING`, and it brings these along.
CHECKER_ONLY = {"_typeshed", "typing_extensions"}


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, top-level module) of every import statement, also inside functions; relative ones stay in the package."""
    tree = ast.parse(source)
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
        else:
            continue
        for module in (name.split(".")[0] for name in names):
            if not (module in CHECKER_ONLY and id(node) in guarded):
                yield node.lineno, module


def allowed(package: str, file: Path) -> set[str]:
    inside = file.relative_to(ROOT).as_posix()
    extra = [names for place, names in ALSO.items() if inside == place or inside.startswith(f"{place}/")]
    return MAY_IMPORT[package].union({package}, *extra)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_imports_only_what_lies_below_it(package: str) -> None:
    files = sorted(PACKAGES[package].rglob("*.py"))
    assert files, f"no modules in {PACKAGES[package]}"
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in files
        for line, module in imports(file.read_text())
        if module not in sys.stdlib_module_names and module not in allowed(package, file)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["bench", "tools"])
def test_what_people_run_needs_no_tests(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert [file for file in files for _, module in imports(file.read_text()) if module == "tests"] == []


def test_imports_sees_every_form_of_import() -> None:
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\ndef h():\n    import i\n"
    assert list(imports(source)) == [(1, "a"), (1, "c"), (2, "d"), (5, "i")]


def test_imports_leaves_out_the_type_checkers_own_modules_and_no_others() -> None:
    guarded = "if TYPE_CHECKING:\n    from _typeshed import a\n    import shuffle_server\n"
    source = guarded + "else:\n    import typing_extensions\n"
    assert list(imports(source)) == [(3, "shuffle_server"), (5, "typing_extensions")]
