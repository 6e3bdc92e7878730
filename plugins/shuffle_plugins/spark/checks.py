"""What `flight-shuffle doctor` checks of Spark on this machine: Java, PySpark and the plugin's jar."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from shuffle_api.errors import InvalidArgument
from shuffle_plugins.spark.jar import find_jar, installed_spark
from shuffle_transport.command_line import Finding

OLDEST_JAVA = 17
JAVA_SECONDS = 30.0


def check_spark() -> Iterator[Finding]:
    """Each only as far as the one before it makes sense."""
    spark = installed_spark()
    if spark is None:
        yield Finding("PySpark", "skipped", "none is installed here, so only Python programs use the server")
        return
    try:
        jar = find_jar()
    except InvalidArgument as error:
        yield Finding("PySpark and jar", "failed", f"PySpark {spark}: {error.message}", error.remedy)
    else:
        yield Finding("PySpark and jar", "ok", f"PySpark {spark}, {jar.name}")
    yield check_java()


def check_java() -> Finding:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    fix = f"install Java {OLDEST_JAVA} or later, and set JAVA_HOME to where it is"
    if java is None:
        return Finding("Java", "failed", "there is no java in PATH, and JAVA_HOME is not set", fix)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", "failed", f"{java} cannot be run: {error}", fix)
    found = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', done.stderr + done.stdout)
    if found is None:
        return Finding("Java", "failed", f"{java} -version does not say its version", fix)
    release = int(found[2] or 0) if found[1] == "1" else int(found[1])
    seen = f"Java {release}: {java}"
    return Finding("Java", "ok", seen) if release >= OLDEST_JAVA else Finding("Java", "failed", seen, fix)
