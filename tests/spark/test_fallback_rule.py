"""A rule in a jar of the user's has some shuffles go to Spark's own; the others go to the server."""

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from tests.spark import held
from tests.spark.conftest import pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RULE = re.search(r"```java\n(.*?)```", (Path(__file__).parents[2] / "docs" / "spark.md").read_text(), re.DOTALL)
RECORDS, MAPS, FEW, MANY = 2_000, 3, 3, 9


def compiled(source: str, name: str, directory: Path) -> Path:
    """A jar with one class."""
    file = directory / name.replace(".", "/")
    file.parent.mkdir(parents=True)
    java = file.with_suffix(".java")
    java.write_text(source)
    javac = shutil.which("javac")
    assert javac is not None
    classes = f"{Path(pyspark.__file__).parent / 'jars'}/*:{find_jar()}"
    subprocess.run([javac, "-proc:none", "-cp", classes, "-d", directory, java], check=True, timeout=500)
    jar = directory / "rule.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.write(file.with_suffix(".class"), file.with_suffix(".class").relative_to(directory))
    return jar


def test_shuffles_that_the_documented_rule_names_stay_with_spark(server: Server, tmp_path: Path) -> None:
    assert RULE is not None
    rule = compiled(RULE[1], "example.SmallShuffles", tmp_path)
    options = {"fallbackRule": "example.SmallShuffles"}
    conf = local_conf(tmp_path) | spark_conf(server.control, fallback="never", options=options)
    log = tmp_path / "spark.log"
    with SparkDriver(conf | {"spark.jars": f"{find_jar()},{rule}"}, log) as driver:
        before = pushed_bytes(server)
        for name in ("a", "b"):
            driver.call(held.write, name=name, records=RECORDS, maps=MAPS, partitions=FEW)
            assert driver.call(held.read, name=name) == held.expected(RECORDS, FEW)
        assert pushed_bytes(server) == before

        driver.call(held.write, name="c", records=RECORDS, maps=MAPS, partitions=MANY)
        assert driver.call(held.read, name="c") == held.expected(RECORDS, MANY)
        assert pushed_bytes(server) > before
    assert log.read_text(errors="replace").count("shuffles go to Spark's sort shuffle: fewer than 8 partitions") == 1
