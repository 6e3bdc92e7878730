"""The commands of docs/quickstart.md, on a machine that has a Java runtime, Python and the wheel, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.documents import ROOT, block
from tests.network_namespace import namespace, why_not

PAGE = "docs/quickstart.md"
TOOLS = ("bash", "dirname", "env", "ps", "rm", "sh")
"""What Spark's scripts call, and every machine has."""
OF_THE_MACHINE = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http")
"""Variables that say where packages come from."""
SECONDS, STOP_SECONDS = 600, 60


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Made by the command of the README."""
    [command] = [line for line in block("README.md", "pip wheel").commands() if "pip wheel" in line]
    local = command.replace(".venv/bin/python", sys.executable).replace("dist", str(tmp_path / "dist"))
    environment = {**os.environ, "FLIGHT_SHUFFLE_SPARK35": "0"}
    subprocess.run(local, shell=True, cwd=ROOT, env=environment, check=True, timeout=SECONDS)
    [made] = (tmp_path / "dist").glob("*.whl")
    return made


class Machine:
    """`directory` is home and work directory; commands run on a host whose ports are all free, for SECONDS together."""

    def __init__(self, host: str, directory: Path) -> None:
        self.directory, self._host = directory, host
        self._began = time.monotonic()
        programs = directory / "bin"
        programs.mkdir(parents=True)
        for name in TOOLS:
            (programs / name).symlink_to(shutil.which(name) or name)
        (programs / "java").symlink_to(Path(shutil.which("java") or "java").resolve())
        (programs / "python3").symlink_to(Path(sys._base_executable))  # type: ignore[attr-defined]
        given = {name: value for name, value in os.environ.items() if name.startswith(OF_THE_MACHINE)}
        # The host has no name of its own, which Spark would look up.
        self._environment = given | {"PATH": str(programs), "HOME": str(directory), "SPARK_LOCAL_IP": "127.0.0.1"}

    def seconds(self) -> float:
        """Since it was set up."""
        return time.monotonic() - self._began

    def start(self, command: str, *, online: bool = False) -> subprocess.Popen[str]:
        apart = [] if online else [shutil.which("ip") or "ip", "netns", "exec", self._host]
        return subprocess.Popen(
            [*apart, shutil.which("bash") or "bash", "-c", command],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, *, online: bool = False) -> str:
        with self.start(command, online=online) as process:
            try:
                said, _ = process.communicate(timeout=SECONDS - self.seconds())
            finally:
                process.kill()
        assert process.returncode == 0, f"{command}\n{said}"
        return said

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        with self.start(f"exec {command}") as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("ready control=127.0.0.1:9110 ")
                yield
            finally:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                finally:
                    process.kill()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(3 * SECONDS)
def test_three_commands_lead_to_a_job_through_the_server(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing := why_not():
        pytest.skip(f"this needs a network namespace: {missing}")
    install, serve = block(PAGE, "pip install").commands()
    [run] = block(PAGE, "python job.py").commands()
    with namespace() as host:
        machine = Machine(host.name, tmp_path / "home")
        shutil.copyfile(wheel, machine.directory / wheel.name)
        (machine.directory / "job.py").write_text(block(PAGE, "SparkSession").text)
        machine.run(install, online=True)
        with machine.serving(serve.replace("/tmp/", f"{tmp_path}/")):
            said = machine.run(run)
            with capsys.disabled():
                sys.stdout.write(f"\nquickstart: {machine.seconds():.0f} s from the wheel to the job's answer\n")
            status = json.loads(machine.run("venv/bin/flight-shuffle status --server 127.0.0.1:9110 --json"))
    assert "|  0| 499500000|" in said, said
    assert status["bytes_pushed"] > 0
