"""What a run needs beside the plugin: Spark's test jars, the folder its tests call home, and our own two classes."""

import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.spark_suites.lines import line_of

HERE = Path(__file__).parent
PARTS = {"core": "core", "sql": "sql/core", "catalyst": "sql/catalyst"}
MAVEN_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True)
class Material:
    """Folders below ``build/spark-suites``; ``agent`` is a jar."""

    version: str
    jars: Path
    home: Path
    classes: Path
    agent: Path

    def class_path(self, plugin: Path) -> str:
        resources = [self.home / part / "src/test/resources" for part in PARTS.values()]
        return ":".join(map(str, [self.classes, *resources, self.jars / "*", plugin]))


def prepare(work: Path, version: str) -> Material:
    """Download and compile what is not there yet. Raises subprocess.CalledProcessError."""
    made = Material(
        version,
        work / "jars" / version,
        work / "home" / version,
        work / "classes" / version,
        work / f"agent-{version}.jar",
    )
    _download(made)
    _unpack(made)
    made.classes.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, (HERE / "java").glob("*.java")))
    _run("javac", "-nowarn", "-cp", f"{made.jars}/*", "-d", str(made.classes), *sources)
    manifest = work / "manifest"
    manifest.write_text("Premain-Class: ForceConf\n")
    of_agent = sorted(path.name for path in made.classes.glob("ForceConf*.class"))
    _run("jar", "cfm", str(made.agent), str(manifest), *of_agent, cwd=made.classes)
    return made


def _download(made: Material) -> None:
    complete = made.jars / ".complete"
    if not complete.exists():
        print(f"spark-suites: Maven gets the test jars of Spark {made.version} (500 MB)", flush=True)
        target = made.jars.parent / f".pom-{made.version}"
        of_line = line_of(made.version).properties
        _run(
            "mvn",
            "-q",
            "-B",
            "-f",
            str(HERE / "pom.xml"),
            "package",
            f"-Djars={made.jars}",
            f"-Dtarget={target}",
            f"-Dspark.version={made.version}",
            *of_line,
        )
        complete.touch()


def _unpack(made: Material) -> None:
    """Spark's tests look for files below ``spark.test.home``, where the sources have them."""
    complete = made.home / ".complete"
    if complete.exists():
        return
    scala = line_of(made.version).scala
    for part, folder in PARTS.items():
        resources = made.home / folder / "src/test/resources"
        resources.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(made.jars / f"spark-{part}_{scala}-{made.version}-tests.jar") as jar:
            names = [name for name in jar.namelist() if not name.endswith((".class", "MANIFEST.MF"))]
            jar.extractall(resources, [name for name in names if not name.startswith("log4j2")])
    (made.home / "jars").symlink_to(made.jars)
    complete.touch()


def _run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, timeout=MAVEN_TIMEOUT_S, cwd=cwd)
