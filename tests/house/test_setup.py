"""scripts/setup names what a machine lacks, with the line that installs it, before it does anything."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = ("bash", "dirname", "sed", "cat", "cmp", "cp")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout of nothing but the script, and a PATH with nothing but the base tools."""
    (tmp_path / "checkout" / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "checkout" / "scripts")
    (tmp_path / "bin").mkdir()
    for tool in BASE:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def tool(machine: Path, name: str, text: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!{machine / 'bin' / 'bash'}\n{text}\n")
    path.chmod(0o755)


def setup(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [machine / "checkout" / "scripts" / "setup"],
        env={"PATH": str(machine / "bin"), "HOME": str(machine), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_setup_lists_everything_that_is_missing(machine: Path) -> None:
    done = setup(machine)
    assert done.returncode == 1
    for said in ("Python 3.11", "apt-get install python3", "JDK 17", "openjdk-17-jdk", "Maven", "dnf install maven"):
        assert said in done.stderr
    assert not (machine / "checkout" / ".venv").exists()


def test_setup_tells_an_old_jdk_by_its_version(machine: Path) -> None:
    tool(machine, "python3", f'exec {sys.executable} "$@"')
    tool(machine, "mvn", "")
    tool(machine, "javac", "echo javac 11.0.2")
    done = setup(machine)
    assert done.returncode == 1
    assert "JDK 17 or newer (found 11)" in done.stderr
    assert "Maven" not in done.stderr
    assert "Python" not in done.stderr


def test_setup_looks_at_java_home_before_path(machine: Path) -> None:
    tool(machine, "javac", "echo javac 21.0.1")
    jdk = machine / "old" / "bin"
    jdk.mkdir(parents=True)
    (machine / "bin" / "javac").rename(jdk / "javac")
    tool(machine, "javac", "echo javac 11.0.2")
    done = setup(machine, JAVA_HOME=str(machine / "old"))
    assert done.returncode == 1
    assert "JDK" not in done.stderr


def test_setup_refuses_a_python_that_is_too_old(machine: Path) -> None:
    tool(machine, "python3", "exit 1")
    done = setup(machine, PYTHON=os.fspath(machine / "bin" / "python3"), FLIGHT_SHUFFLE_SKIP_JAR="1")
    assert done.returncode == 1
    assert "missing: Python 3.11 or newer" in done.stderr
    assert "Maven" not in done.stderr
