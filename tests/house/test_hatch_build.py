"""The build hook: when it builds the jar, and what it says when it cannot. `mvn` is a script that a test writes."""

import os
import stat
from pathlib import Path

import pytest

import hatch_build
from hatch_build import (
    JarBuildError,
    Unreachable,
    build_jar,
    build_jar_35,
    check_jdk,
    find_maven,
    find_spark_jars,
    is_newer,
)

JAR = "flight-shuffle-spark_4.3-0.1.0.jar"
JAR_35 = "flight-shuffle-spark_3.5-0.1.0.jar"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that comes first on PATH; ``javac`` and Spark's jars are there already."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    script(tmp_path / "jdk" / "bin" / "javac", "")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.7.jar").touch()
    monkeypatch.setenv("FLIGHT_SHUFFLE_SPARK_JARS", str(tmp_path / "jars"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for source in ("plugins/spark/pom.xml", "plugins/spark/src/main/A.java", str(hatch_build.PROTO)):
        (root / source).parent.mkdir(parents=True, exist_ok=True)
        (root / source).touch()
    return root


def maven(tools: Path, package: str = f"mkdir -p target && echo built > target/{JAR}", java: str = "17.0.1") -> None:
    version = f"Java version: {java}, vendor: X, runtime: {tools.parent / 'jdk'}"
    script(tools / "mvn", f'if [ "$1" = -version ]; then echo "{version}"; exit; fi\necho "$@" > arguments\n{package}')


def test_build_jar_compiles_against_the_given_spark_and_replaces_other_versions(tools: Path, checkout: Path) -> None:
    maven(tools)
    jars = checkout / hatch_build.JAR_DIRECTORY
    jars.mkdir(parents=True)
    (jars / "flight-shuffle-spark_4.3-0.0.9.jar").touch()
    jar = build_jar(checkout, "0.1.0", incremental=False)
    assert [path.name for path in jars.iterdir()] == [JAR]
    assert jar.read_text() == "built\n"
    said = (checkout / "plugins/spark/arguments").read_text()
    assert f"-Dspark.jars={tools.parent / 'jars'}" in said
    assert "-Dspark.version=4.3.7" in said


def test_build_jar_keeps_a_jar_newer_than_its_sources_only_if_incremental(tools: Path, checkout: Path) -> None:
    maven(tools)
    jar = build_jar(checkout, "0.1.0", incremental=True)
    jar.write_text("mine")
    assert build_jar(checkout, "0.1.0", incremental=True).read_text() == "mine"
    assert build_jar(checkout, "0.1.0", incremental=False).read_text() == "built\n"


@pytest.mark.parametrize("source", ["plugins/spark/pom.xml", "plugins/spark/src/main/A.java", str(hatch_build.PROTO)])
def test_is_newer_looks_at_every_source(checkout: Path, source: str) -> None:
    jar = checkout / JAR
    assert not is_newer(jar, checkout)
    jar.touch()
    later = jar.stat().st_mtime + 10
    os.utime(jar, (later, later))
    assert is_newer(jar, checkout)
    os.utime(checkout / source, (later + 1, later + 1))
    assert not is_newer(jar, checkout)


def test_missing_maven_is_named_with_its_install_line(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(JarBuildError, match=r"mvn is not on PATH[\s\S]*apt-get install maven[\s\S]*SKIP_JAR"):
        find_maven()


def test_an_old_jdk_and_a_mere_runtime_are_refused(tools: Path) -> None:
    maven(tools, java="11.0.2")
    with pytest.raises(JarBuildError, match=r"JDK 17 or newer is needed, Maven runs on 11"):
        check_jdk(find_maven())
    maven(tools)
    (tools.parent / "jdk" / "bin" / "javac").unlink()
    with pytest.raises(JarBuildError, match=r"without javac[\s\S]*openjdk-17-jdk"):
        check_jdk(find_maven())


def test_missing_or_other_spark_jars_are_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tools.parent / "other"
    other.mkdir()
    (other / "spark-core_2.13-4.2.0.jar").touch()
    monkeypatch.setenv("FLIGHT_SHUFFLE_SPARK_JARS", str(other))
    with pytest.raises(JarBuildError, match=rf"jars of Spark 4\.3 are needed[\s\S]*{other}[\s\S]*pip install"):
        find_spark_jars()


def test_a_failed_build_shows_what_maven_said(tools: Path, checkout: Path) -> None:
    maven(tools, package="echo '[ERROR] A.java:1 broken'; exit 1")
    with pytest.raises(JarBuildError, match=r"A\.java:1 broken"):
        build_jar(checkout, "0.1.0", incremental=False)
    maven(tools, package="true")
    with pytest.raises(JarBuildError, match=r"left no .*0\.1\.0\.jar"):
        build_jar(checkout, "0.1.0", incremental=False)


def test_jar_for_spark_3_is_built_beside_the_other(tools: Path, checkout: Path) -> None:
    maven(tools, package=f"mkdir -p target/spark-3.5 && echo built > target/spark-3.5/{JAR_35}")
    other = checkout / hatch_build.JAR_DIRECTORY / JAR
    other.parent.mkdir(parents=True)
    other.touch()
    assert build_jar_35(checkout, "0.1.0", incremental=True).name == JAR_35
    assert "-Dline=3.5" in (checkout / "plugins/spark/arguments").read_text()
    assert other.exists()


def test_spark_3_that_cannot_be_downloaded_is_told_from_a_build_that_fails(tools: Path, checkout: Path) -> None:
    maven(tools, package="echo '[ERROR] Could not resolve dependencies for project x'; exit 1")
    with pytest.raises(Unreachable, match="Could not resolve"):
        build_jar_35(checkout, "0.1.0", incremental=False)
    maven(tools, package="echo '[ERROR] A.java:1 cannot find symbol'; exit 1")
    with pytest.raises(JarBuildError) as caught:
        build_jar_35(checkout, "0.1.0", incremental=False)
    assert not isinstance(caught.value, Unreachable)


def test_isolated_build_installs_a_pyspark_unless_it_has_the_jars(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = hatch_build.SparkJarHook(str(tools), {}, None, None, "", "")  # type: ignore[arg-type]
    assert hook.dependencies() == []
    monkeypatch.delenv("FLIGHT_SHUFFLE_SPARK_JARS")
    monkeypatch.setattr(hatch_build, "_candidates", lambda: [("SPARK_HOME", tools)])
    assert hook.dependencies() == ["pyspark==4.3.*"]
    monkeypatch.setenv("FLIGHT_SHUFFLE_SKIP_JAR", "1")
    assert hook.dependencies() == []
