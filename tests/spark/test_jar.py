"""shuffle_plugins.spark.jar: the jars, the versions of Spark they are for, and the error when one is missing."""

import zipfile
from pathlib import Path

import pytest

from shuffle_plugins.spark import SUPPORTED_SPARK, JarMissing, UnsupportedSpark, find_jar, jar
from shuffle_plugins.spark.jar import JAR_DIRECTORY, JARS


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for line in ("3.5", "4.3"):
        (tmp_path / f"flight-shuffle-spark_{line}-0.1.0.jar").touch()
    return tmp_path


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2", "4.3.17"])
def test_find_jar_takes_any_patch_version_of_those_supported(directory: Path, version: str) -> None:
    assert find_jar(version, directory).name == "flight-shuffle-spark_4.3-0.1.0.jar"


@pytest.mark.parametrize("version", ["3.5.1", "3.5", "3.5.17"])
def test_find_jar_has_one_of_its_own_for_spark_3(directory: Path, version: str) -> None:
    assert find_jar(version, directory).name == "flight-shuffle-spark_3.5-0.1.0.jar"


@pytest.mark.parametrize("version", ["4.4.0", "4.30.1"])
def test_find_jar_takes_later_minor_versions_which_the_jar_tests_itself_with(directory: Path, version: str) -> None:
    assert find_jar(version, directory).name == "flight-shuffle-spark_4.3-0.1.0.jar"


def test_find_jar_asks_for_the_installed_pyspark_by_default(directory: Path) -> None:
    assert find_jar(directory=directory) == find_jar(jar.installed_spark(), directory)


@pytest.mark.parametrize("version", ["3.4.6", "3.6.0", "3.50.0", "5.0.0", "4", ""])
def test_find_jar_names_the_version_found_and_the_supported(directory: Path, version: str) -> None:
    with pytest.raises(UnsupportedSpark) as caught:
        find_jar(version, directory)
    assert (caught.value.found, caught.value.supported) == (version, SUPPORTED_SPARK)
    assert f"Spark {version}" in str(caught.value)
    assert "use one of Spark 3.5, 4.0, 4.1, 4.2, 4.3: pip install 'pyspark~=4.3.0'" in str(caught.value)


def test_find_jar_without_pyspark_says_how_to_get_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "installed_spark", lambda: None)
    with pytest.raises(UnsupportedSpark, match=r"no PySpark.*pip install 'pyspark~=4.3.0'.*spark_version="):
        find_jar(directory=directory)


def test_find_jar_in_an_unbuilt_checkout_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(JarMissing) as caught:
        find_jar("4.3.0", tmp_path)
    assert (caught.value.directory, caught.value.found) == (tmp_path, ())
    assert "pip install" in caught.value.remedy


def test_find_jar_does_not_guess_between_two_builds(directory: Path) -> None:
    (directory / "flight-shuffle-spark_4.3-0.2.0.jar").touch()
    with pytest.raises(JarMissing, match=r"several jars .*0\.1\.0\.jar, .*0\.2\.0\.jar"):
        find_jar("4.3.0", directory)


@pytest.mark.parametrize(("pattern", "minors"), JARS.items())
def test_jar_itself_takes_the_same_versions(pattern: str, minors: tuple[str, ...]) -> None:
    if minors == ("3.5",) and not list(JAR_DIRECTORY.glob(pattern)):
        pytest.skip("Spark 3.5 could not be downloaded when the jars were built")
    with zipfile.ZipFile(find_jar(f"{minors[0]}.1")) as built:
        properties = built.read("flight-shuffle-spark.properties").decode().splitlines()
    assert f"spark.minors={' '.join(minors)}" in properties


def test_jar_has_the_licences_of_what_is_in_it() -> None:
    with zipfile.ZipFile(find_jar("4.3.0")) as built:
        assert b"Protocol Buffers" in built.read("META-INF/NOTICE")
        assert b"Apache License" in built.read("META-INF/LICENSE")
        assert b"Redistributions in binary form" in built.read("META-INF/licenses/protobuf.txt")
