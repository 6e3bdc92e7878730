"""Small files with one job, typed packages, no address of a package registry in what is committed."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.house.packages import GENERATED, PACKAGES, ROOT

PYTHON_LINES = 400
JAVA_LINES = 500
REGISTRY = re.compile(r"--(extra-)?index-url|pypi\.org|pythonhosted\.org|repo1?\.maven|registry\.npmjs")


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize(("suffix", "limit"), [(".py", PYTHON_LINES), (".java", JAVA_LINES)])
def test_source_files_stay_small(suffix: str, limit: int) -> None:
    sizes = {
        path.relative_to(ROOT): path.read_text().count("\n")
        for path in committed()
        if path.suffix == suffix and GENERATED not in path.name
    }
    assert sizes
    large = {str(path): lines for path, lines in sizes.items() if lines > limit}
    assert not large, f"more than {limit} lines; split by job: {large}"


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
