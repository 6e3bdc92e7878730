"""Build hook: compiles the Spark plugin with Maven and ships its jars as data of ``shuffle_plugins.spark``.

A user of the wheel needs a Java runtime and nothing else; who builds it needs Maven and a JDK. Spark 4.3's classes,
which are on no Maven repository, come from the jars of a PySpark; an isolated build installs one (450 MB) unless it is
given them. Maven downloads those of Spark 3.5; where it cannot, the jar for 3.5 is left out with a warning.

Environment variables:
    FLIGHT_SHUFFLE_SKIP_JAR=1   leave the jars out; everything but the Spark plugin works
    FLIGHT_SHUFFLE_SPARK35=0    leave out the jar for Spark 3.5; =1: fail where it cannot be built
    FLIGHT_SHUFFLE_SPARK_JARS   directory with Spark 4.3's jars to compile against
                                (default: those of PySpark, then $SPARK_HOME/jars)
    FLIGHT_SHUFFLE_REPOSITORY   the repository's public address, for the project's URLs and the README's links; without
                                it the long description has no links into the repository, rather than dead ones
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SPARK_SERIES = "4.3"
JDK_MINIMUM = 17
JAR_STEM = f"flight-shuffle-spark_{SPARK_SERIES}"
JAR_STEM_35 = "flight-shuffle-spark_3.5"
SOURCES = Path("plugins/spark")
PROTO = Path("transport/shuffle_transport/proto/flight_shuffle.proto")
JAR_DIRECTORY = Path("plugins/shuffle_plugins/spark/jars")
MAVEN_TIMEOUT_S = 1800
UNREACHABLE = ("Could not resolve dependencies", "could not be resolved", "Could not transfer artifact")
"""What Maven prints when a jar can be neither downloaded nor found in its cache."""

MAVEN_INSTALL = "Debian/Ubuntu: apt-get install maven   Fedora: dnf install maven   macOS: brew install maven"
JDK_INSTALL = (
    "Debian/Ubuntu: apt-get install openjdk-17-jdk   Fedora: dnf install java-17-openjdk-devel   "
    "macOS: brew install openjdk@17"
)
SKIP_HINT = "Or set FLIGHT_SHUFFLE_SKIP_JAR=1 to build without the Spark plugin."


REPOSITORY = "FLIGHT_SHUFFLE_REPOSITORY"
LINK = re.compile(r"\[([^][]+)\]\((?!https?:|#)([^()\s]+)\)")  # of Markdown, to a file


class JarBuildError(Exception):
    """The jar can't be built here; the message says what is missing and what to do."""


class Unreachable(JarBuildError):
    """What the jar is compiled against cannot be downloaded."""


class PublishedMetadata(MetadataHookInterface):
    """The README as long description, where its links lead to the repository, and the project's URLs."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get(REPOSITORY, "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        published = LINK.sub(lambda link: published_link(link[1], link[2], repository, metadata["version"]), text)
        metadata["readme"] = {"content-type": "text/markdown", "text": published}
        metadata["urls"] = project_urls(repository, metadata["version"])


def published_link(text: str, target: str, repository: str, version: str) -> str:
    """A link to a file of the repository, as it is at the release; the text alone where its address is not known."""
    return f"[{text}]({repository}/blob/v{version}/{target})" if repository else text


def project_urls(repository: str, version: str) -> dict[str, str]:
    """What the index shows beside the project."""
    files = {"Documentation": "docs/README.md", "Changelog": "CHANGELOG.md"}
    found = {name: f"{repository}/blob/v{version}/{path}" for name, path in files.items()}
    return {"Source": repository, "Issues": f"{repository}/issues", **found} if repository else {}


class SparkJarHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before hatchling packs a wheel, and before an editable install."""

    def dependencies(self) -> list[str]:
        """What pip installs into the environment of an isolated build."""
        given = os.environ.get("FLIGHT_SHUFFLE_SPARK_JARS")
        if given or skips_jars() or any(_has_spark(directory) for _, directory in _candidates()):
            return []
        return [f"pyspark=={SPARK_SERIES}.*"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version`` is the kind of wheel ("standard" or "editable")."""
        if skips_jars():
            self.app.display_warning("FLIGHT_SHUFFLE_SKIP_JAR is set: the Spark plugin's jar is left out")
            return
        try:
            jars = self._jars(Path(self.root), version == "editable")
        except JarBuildError as error:
            self.app.abort(str(error))
        build_data["artifacts"] += [f"/{jar.relative_to(self.root).as_posix()}" for jar in jars]

    def _jars(self, root: Path, incremental: bool) -> list[Path]:
        jars = [build_jar(root, self.metadata.version, incremental=incremental)]
        wanted = os.environ.get("FLIGHT_SHUFFLE_SPARK35", "")
        if wanted == "0":
            return jars
        try:
            jars.append(build_jar_35(root, self.metadata.version, incremental=incremental))
        except Unreachable as error:
            if wanted:
                raise
            self.app.display_warning(f"The jar for Spark 3.5 is left out: {error}")
        return jars


def skips_jars() -> bool:
    """Whether the user wants no jar at all."""
    return os.environ.get("FLIGHT_SHUFFLE_SKIP_JAR", "") not in ("", "0")


def build_jar(root: Path, version: str, *, incremental: bool) -> Path:
    """The jar of this version for Spark 4, built if need be. Raises JarBuildError."""
    jar = root / JAR_DIRECTORY / f"{JAR_STEM}-{version}.jar"
    if incremental and is_newer(jar, root):
        return jar
    spark_jars = find_spark_jars()
    spark_version = next(spark_jars.glob(f"spark-core_*-{SPARK_SERIES}.*.jar")).stem.rpartition("-")[2]
    _maven(root, f"-Dspark.jars={spark_jars}", f"-Dspark.version={spark_version}")
    return _installed(root / SOURCES / "target" / jar.name, jar)


def build_jar_35(root: Path, version: str, *, incremental: bool) -> Path:
    """The jar of this version for Spark 3.5, built if need be. Raises Unreachable or another JarBuildError."""
    jar = root / JAR_DIRECTORY / f"{JAR_STEM_35}-{version}.jar"
    if incremental and is_newer(jar, root):
        return jar
    _maven(root, "-Dline=3.5")
    return _installed(root / SOURCES / "target" / "spark-3.5" / jar.name, jar)


def _maven(root: Path, *properties: str) -> None:
    maven = find_maven()
    check_jdk(maven)
    command = [maven, "-q", "-B", "package", "-Dmaven.test.skip=true", *properties]
    run = subprocess.run(
        command, cwd=root / SOURCES, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
    )
    if run.returncode != 0:
        said = run.stdout + run.stderr
        kind = Unreachable if any(text in said for text in UNREACHABLE) else JarBuildError
        tail = "\n".join(said.splitlines()[-40:])
        raise kind(f"Maven could not build {SOURCES} ({' '.join(command)}):\n{tail}\n{SKIP_HINT}")


def _installed(built: Path, jar: Path) -> Path:
    """``jar``, now what Maven has built, instead of those of other versions."""
    if not built.is_file():
        raise JarBuildError(f"Maven succeeded but left no {built}; do pom.xml and pyproject.toml agree?")
    jar.parent.mkdir(parents=True, exist_ok=True)
    stem = jar.name.rpartition("-")[0]
    for old in jar.parent.glob(f"{stem}-*.jar"):
        old.unlink()
    # Copy and rename: a Spark session that starts meanwhile sees the old jar or the new one, never half of it.
    part = jar.with_suffix(".part")
    shutil.copyfile(built, part)
    part.rename(jar)
    return jar


def is_newer(jar: Path, root: Path) -> bool:
    """Whether the jar exists and no source of it has changed since."""
    if not jar.is_file():
        return False
    sources = [root / PROTO, root / SOURCES / "pom.xml"]
    sources += [path for path in (root / SOURCES / "src").rglob("*") if path.is_file()]
    return all(path.stat().st_mtime <= jar.stat().st_mtime for path in sources)


def find_maven() -> str:
    """Path of ``mvn``."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarBuildError(f"Maven builds the Spark plugin, and mvn is not on PATH.\n{MAVEN_INSTALL}\n{SKIP_HINT}")
    return maven


def check_jdk(maven: str) -> None:
    """Raises JarBuildError unless Maven runs on JDK 17 or newer, compiler included."""
    run = subprocess.run([maven, "-version"], capture_output=True, text=True, timeout=60, check=False)
    said = run.stdout + run.stderr
    found = re.search(r"Java version: (\d+).*?runtime: (\S.*)", said)
    if run.returncode != 0 or found is None:
        raise JarBuildError(f"mvn -version failed; is a JDK installed?\n{said.strip()}\n{JDK_INSTALL}\n{SKIP_HINT}")
    if int(found[1]) < JDK_MINIMUM:
        raise JarBuildError(
            f"JDK {JDK_MINIMUM} or newer is needed, Maven runs on {found[1]} ({found[2]}); set JAVA_HOME.\n"
            f"{JDK_INSTALL}\n{SKIP_HINT}"
        )
    if not (Path(found[2]) / "bin" / "javac").exists():
        raise JarBuildError(f"{found[2]} is a Java runtime without javac; a JDK is needed.\n{JDK_INSTALL}\n{SKIP_HINT}")


def find_spark_jars() -> Path:
    """The directory with Spark's own jars, of the series that the plugin is written for."""
    tried = []
    for name, directory in _candidates():
        if directory is None:
            continue
        if _has_spark(directory):
            return directory.resolve()
        tried.append(f"{name} ({directory})")
    seen = f" Not there: {', '.join(tried)}." if tried else ""
    raise JarBuildError(
        f"The jars of Spark {SPARK_SERIES} are needed to compile the Spark plugin.{seen}\n"
        f"Build in isolation, as pip does by default; or install them where the build runs (pip install\n"
        f"'pyspark~={SPARK_SERIES}.0'); or name a directory that has them in FLIGHT_SHUFFLE_SPARK_JARS.\n"
        f"{SKIP_HINT}"
    )


def _has_spark(directory: Path | None) -> bool:
    return directory is not None and any(directory.glob(f"spark-core_*-{SPARK_SERIES}.*.jar"))


def _candidates() -> list[tuple[str, Path | None]]:
    given, home = os.environ.get("FLIGHT_SHUFFLE_SPARK_JARS"), os.environ.get("SPARK_HOME")
    if given:
        return [("FLIGHT_SHUFFLE_SPARK_JARS", Path(given))]
    pyspark = importlib.util.find_spec("pyspark")
    origin = Path(pyspark.origin).parent / "jars" if pyspark is not None and pyspark.origin else None
    return [("the installed PySpark", origin), ("SPARK_HOME", Path(home) / "jars" if home else None)]
