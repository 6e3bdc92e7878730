"""Commands of the documents that name another host: server and client are two, and executors have directories of their
own. The server's host is a network namespace, in which the documents' ports and host names are its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.network_namespace import Namespace, namespace, why_not

ROOT = Path(__file__).parents[2]
ROOTS = (".", "facade", "shuffle_api", "transport", "plugins", "remote_service")
HOST = "shuffle.example.org"
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("sum", spark.range(100_000).repartition(7, "id").selectExpr("sum(id)").first()[0], flush=True)
"""
READY_SECONDS, SECONDS = 60, 500

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module", autouse=True)
def two_hosts() -> None:
    if missing := why_not():
        pytest.skip(f"this needs a network namespace: {missing}")


def commands(page: str, containing: str) -> list[str]:
    """The lines of the one block of a page that has a text, without their remarks."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if containing in block]
    joined = block.replace("\\\n", " ")
    return [re.sub(r"\s{2,}# .*$", "", line).strip() for line in joined.splitlines()]


class Hosts:
    """The server's host and the client's, which both have `names`. Files of the documents lie in `directory`."""

    def __init__(self, server: Namespace, directory: Path, names: dict[str, str]) -> None:
        self._server, self.directory = server, directory
        self._names = directory / "hosts"
        self._names.write_text("127.0.0.1 localhost\n" + "".join(f"{names[name]} {name}\n" for name in names))
        conf = directory / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text("spark.master local-cluster[2,1,1024]\nspark.executor.memory 1g\n")
        (directory / "job.py").write_text(JOB)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_WORKER_DIR": str(directory / "executors"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def client(self, command: str) -> str:
        """What a command of the documents prints here; it must succeed."""
        done = subprocess.run(
            self._named(command),
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def serving(self, command: str, *, there: bool = True) -> Iterator[None]:
        """A server's command runs on its host, or here, from its ready line on."""
        apart = ["ip", "netns", "exec", self._server.name] if there else []
        process = subprocess.Popen(
            [*apart, *self._named(f"exec {command}")],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready"), f"{command}: {line!r}"
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(READY_SECONDS)
            process.kill()
            process.stdout.close()

    def _named(self, command: str) -> list[str]:
        """With the names of the hosts, and nothing of the documents' directories on this machine."""
        local = command.replace("/data/", f"{self.directory}/data/").replace("/var/lib/", f"{self.directory}/var/")
        mount = f"mount --bind {shlex.quote(str(self._names))} /etc/hosts"
        return ["unshare", "--mount", "bash", "-c", f"{mount} && {local}"]


@contextmanager
def hosts(directory: Path) -> Iterator[tuple[Hosts, Namespace]]:
    with namespace() as server:
        yield Hosts(server, directory, {HOST: server.there}), server


def pushed(status: str) -> int:
    return int(json.loads(status)["bytes_pushed"])


def test_five_commands_set_a_secure_server_up(tmp_path: Path) -> None:
    *preparation, serve, submit = commands("security.md", "openssl req")
    assert (serve.split()[0], submit.split()[0], len(preparation)) == ("flight-shuffle", "spark-submit", 3)
    with hosts(tmp_path) as (both, _):
        for command in preparation:
            both.client(command)
        with both.serving(serve):
            assert "sum 4999950000" in both.client(submit)
            given = f"--server {HOST}:9110 --tls-ca ca.pem --json"
            assert pushed(both.client(f"flight-shuffle status {given} --secret-file secret")) > 0


def test_the_two_commands_of_the_spark_page(tmp_path: Path) -> None:
    [serve] = commands("spark.md", "--advertise shuffle.example.org --listen 0.0.0.0")
    [settings] = commands("spark.md", f"flight-shuffle spark-conf --server {HOST}:9110     #")
    with hosts(tmp_path) as (both, _), both.serving(serve):
        assert "sum 4999950000" in both.client(f"spark-submit $({settings}) job.py")
        assert pushed(both.client(f"flight-shuffle status --server {HOST}:9110 --json")) > 0


@pytest.mark.nightly
def test_a_master_and_a_worker_on_two_hosts(tmp_path: Path) -> None:
    master, worker = commands(
        "cluster.md", "flight-shuffle master --data-dir /var/lib/flight-shuffle --listen 10.0.0.1"
    )
    [drain] = commands("cluster.md", "flight-shuffle drain --server 10.0.0.1:9110 WORKER")
    with hosts(tmp_path) as (both, apart):

        def of_these(command: str) -> str:
            return command.replace("10.0.0.1", apart.there).replace("10.0.0.2", apart.here)

        server = f"--server {apart.there}:9110"
        with both.serving(of_these(master)), both.serving(of_these(worker), there=False):
            submitted = both.client(f"spark-submit $(flight-shuffle spark-conf {server}) job.py")
            assert "sum 4999950000" in submitted
            status = json.loads(both.client(f"flight-shuffle status {server} --json"))
            [known] = status["workers"]
            assert status["bytes_pushed"] > 0
            both.client(of_these(drain).replace("WORKER", known["id"]))
