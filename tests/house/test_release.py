"""scripts/release: the version stands in one way everywhere, and what it refuses. It is run as a whole by hand."""

from __future__ import annotations

import shutil
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

import hatch_build

ROOT = Path(__file__).parents[2]
ADDRESS = "https://git.example/project"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = spec_from_loader("release", SourceFileLoader("release", str(ROOT / "scripts" / "release")))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path, release: ModuleType) -> Path:
    """The files that have the version."""
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_version_is_the_same_everywhere(release: ModuleType) -> None:
    found = release.versions(ROOT)
    assert all(len(each) == 1 for each in found.values()), found
    assert len(set.union(*found.values())) == 1, found


def test_a_new_version_is_set_in_every_place(release: ModuleType, copy: Path) -> None:
    release.set_version(copy, "7.8.9rc1")
    assert set.union(*release.versions(copy).values()) == {"7.8.9rc1"}
    assert "<modelVersion>4.0.0</modelVersion>" in (copy / "plugins" / "spark" / "pom.xml").read_text()


def test_places_that_disagree_are_refused(release: ModuleType, copy: Path) -> None:
    chart = copy / "deploy" / "helm" / "flight-shuffle" / "Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: ", "appVersion: 9"))
    with pytest.raises(release.ReleaseRefused, match="make them agree"):
        release.set_version(copy, "7.8.9")


@pytest.mark.parametrize("repository", ["", ADDRESS])
def test_the_long_description_has_no_link_that_leads_nowhere(
    release: ModuleType, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert release.relative_links((ROOT / "README.md").read_text())
    monkeypatch.setenv(hatch_build.REPOSITORY, repository)
    metadata = {"version": "1.2.3"}
    hatch_build.PublishedMetadata(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]  # type: ignore[index]
    assert not release.relative_links(text)
    assert (f"({ADDRESS}/blob/v1.2.3/docs/spark.md" in text) == bool(repository)
    assert ("Source" in metadata["urls"]) == bool(repository)


@pytest.mark.parametrize(("given", "variable"), [("", ""), (ADDRESS, ""), ("", ADDRESS)])
def test_a_release_without_the_repository_s_address_warns(
    release: ModuleType,
    given: str,
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[tuple[str, str]] = []
    monkeypatch.setattr(release, "build", lambda *what: made.append(what))
    monkeypatch.setattr("sys.argv", ["release", "1.2.3", *(("--repository", given) if given else ())])
    monkeypatch.setenv(release.REPOSITORY, variable)
    assert release.main() == 0
    assert made == [("1.2.3", given or variable)]
    assert ("WARNING" in capsys.readouterr().err) == (not given and not variable)
    assert release.REPOSITORY == hatch_build.REPOSITORY


def test_a_wheel_without_what_it_needs_is_refused(release: ModuleType) -> None:
    with pytest.raises(release.ReleaseRefused, match="0 files"):
        release._one(["a/METADATA"], "NOTICE$")
