"""Files that are worth opening, typed packages, no address of a package registry in what is committed."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.packages import PACKAGES, ROOT, modules

ALONE_LINES = 80
JAVA_LINES = 500
REGISTRY = re.compile(r"--(extra-)?index-url|pypi\.org|pythonhosted\.org|repo1?\.maven|registry\.npmjs")


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def lone_fragments(files: Mapping[str, str]) -> list[str]:
    """Modules of fewer than ALONE_LINES lines that one other module imports: they belong into it, or to their siblings.

    Allowed are a module that only holds values (it defines no function), one that its package's `__init__` lists in
    `__all__` as its API, and one per command of a command line, in a package `cli`.
    """
    trees = {name: ast.parse(source) for name, source in files.items()}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                used = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                used = {alias.name for alias in node.names}
            else:
                continue
            for module in used & trees.keys() - {name}:
                importers[module].add(name)
    found = []
    for name, tree in trees.items():
        package, _, last = name.rpartition(".")
        only_values = not any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree))
        if len(importers[name]) != 1 or files[name].count("\n") >= ALONE_LINES or last == "__main__" or only_values:
            continue
        exported = importers[name] == {package} and names_of(tree) & exports(trees[package])
        if not exported and not (package.endswith(".cli") and importers[name] == {package}):
            found.append(name)
    return found


def names_of(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def exports(tree: ast.Module) -> set[str]:
    """What `__all__` lists."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return set()


def test_no_small_file_has_a_single_importer() -> None:
    parents = [package.parent for package in PACKAGES.values()]
    files = {}
    for path, _ in modules():
        parts = next(path.relative_to(parent) for parent in parents if parent in path.parents).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = path.read_text()
    assert len(files) > 100
    assert lone_fragments(files) == []


@pytest.mark.parametrize(
    ("part", "init", "found"),
    [
        ("def f(): ...\n", "", ["p.part"]),
        ("def f(): ...\n" + "# a line\n" * ALONE_LINES, "", []),
        ("LIMIT = 1\n", "", []),
        ("def f(): ...\n", "from p.part import f\n", []),
    ],
)
def test_a_small_file_with_a_single_importer_is_found(part: str, init: str, found: list[str]) -> None:
    assert lone_fragments({"p": init, "p.part": part, "p.user": "from p.part import f\n"}) == found


@pytest.mark.parametrize(("all_", "found"), [("__all__ = ['f']\n", []), ("", ["p.part"])])
def test_an_interface_may_be_a_small_file(all_: str, found: list[str]) -> None:
    assert lone_fragments({"p": "from p.part import f\n" + all_, "p.part": "def f(): ...\n"}) == found


def test_java_files_stay_small() -> None:
    sizes = {path.relative_to(ROOT): path.read_text().count("\n") for path in committed() if path.suffix == ".java"}
    assert sizes
    large = {str(path): lines for path, lines in sizes.items() if lines > JAVA_LINES}
    assert not large, f"more than {JAVA_LINES} lines; split by job: {large}"


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_marked_as_typed(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").is_file()


def test_no_file_names_a_package_registry() -> None:
    # Which registry or mirror is used is the business of each machine's own configuration.
    here = Path(__file__)
    named = []
    for path in committed():
        if path == here or path.suffix in {".parquet", ".jar", ".png"}:
            continue
        if REGISTRY.search(path.read_text(errors="replace")):
            named.append(str(path.relative_to(ROOT)))
    assert not named


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    documents = [path.name for path in committed() if path.parent == ROOT / "docs" and path.suffix == ".md"]
    assert "architecture.md" in documents
    assert [name for name in documents if name != "README.md" and f"({name})" not in index] == []


def test_links_between_documents_lead_somewhere() -> None:
    documents = [path for path in committed() if path.suffix == ".md"]
    broken = []
    for path in documents:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text()):
            if not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)} -> {target}")
    assert not broken
