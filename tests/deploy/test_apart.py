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
from typing import Any

import pytest

from tests.documents import ROOT, block
from tests.network_namespace import Namespace, namespace, why_not

ROOTS = (".", "facade", "shuffle_api", "transport", "plugins", "remote_service")
HOST = "shuffle.example.org"
NAMES = (HOST, "relay.example.com")
REGISTRIES = {"h1": "127.0.0.1", "h2": "127.0.0.2", "h5": "127.0.0.5"}  # all on the server's host
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("sum", spark.range(100_000).repartition(7, "id").selectExpr("sum(id)").first()[0], flush=True)
"""
READY_SECONDS, SECONDS = 60, 500

pytestmark = pytest.mark.timeout(1200)


class Hosts:
    """The server's host and the client's, with the documents' names and addresses for them; their files lie in
    `directory`."""

    def __init__(self, server: Namespace, directory: Path) -> None:
        self._server, self.directory = server, directory
        self._addresses = {"10.0.0.1": server.there, "10.0.0.2": server.here}
        names = {"localhost": "127.0.0.1"} | dict.fromkeys(NAMES, server.there) | REGISTRIES
        self._names = directory / "hosts"
        self._names.write_text("".join(f"{names[name]} {name}\n" for name in names))
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

    def client(self, command: str, *, there: bool = False) -> str:
        """What a command of the documents prints here, or on the server's host; it must succeed."""
        done = subprocess.run(
            [*self._apart(there), *self._named(command)],
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
    def serving(self, command: str, *, there: bool = True) -> Iterator[dict[str, str]]:
        """A server's command runs on its host, or here, from its ready line on, of which these are the addresses."""
        process = subprocess.Popen(
            [*self._apart(there), *self._named(f"exec {command}")],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready"), f"{command}: {line!r}"
            yield dict(word.split("=", 1) for word in line.split()[1:])
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(READY_SECONDS)
            process.kill()
            process.stdout.close()

    def _apart(self, there: bool) -> list[str]:
        return ["ip", "netns", "exec", self._server.name] if there else []

    def _named(self, command: str) -> list[str]:
        """With the names of the hosts, and nothing of the documents' directories on this machine."""
        local = re.sub(r"(?<![\w/.])/(data|tmp|var)", rf"{self.directory}/\1", command)
        for address in self._addresses:
            local = local.replace(address, self._addresses[address])
        mount = f"mount --bind {shlex.quote(str(self._names))} /etc/hosts"
        return ["unshare", "--mount", "bash", "-c", f"{mount} && {local}"]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Hosts]:
    if missing := why_not():
        pytest.skip(f"this needs a network namespace: {missing}")
    with namespace() as server:
        yield Hosts(server, tmp_path)


def shown(both: Hosts, server: str, given: str = "", *, there: bool = False) -> dict[str, Any]:
    """The cluster's status."""
    printed = both.client(f"flight-shuffle status --server {server} --json {given}", there=there)
    return dict(json.loads(printed))


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("README.md", "/tmp/shuffle"),
        ("docs/operations.md", "--http-listen 0.0.0.0"),
        ("docs/pipelined.md", "--advertise relay"),
    ],
)
def test_a_server_is_ready_at_the_ports_of_the_documents(both: Hosts, page: str, text: str) -> None:
    [command] = block(page, text).commands()
    with both.serving(command.removeprefix(".venv/bin/")) as ready:
        ports = {name: address.rpartition(":")[2] for name, address in ready.items()}
    expected = {"control": "9110", "data": "9111"} | ({"metrics": "9112"} if "--http-listen" in command else {})
    assert {name: ports[name] for name in expected} == expected


def test_a_master_and_its_workers(both: Hosts) -> None:
    master, worker, status = block("README.md", "flight-shuffle master").commands()
    with both.serving(master), both.serving(worker, there=False) as ready:
        assert ready["worker"] in both.client(status)


def test_workers_have_the_labels_of_the_documents(both: Hosts) -> None:
    master, worker = block("docs/cluster.md", "--label").commands()
    master = master.replace("...", "--data-dir /data/master --listen 10.0.0.1:9110")
    worker = worker.replace("...", "--data-dir /data/worker --master 10.0.0.1:9110 --data-listen 10.0.0.2:9111")
    with both.serving(master), both.serving(worker, there=False):
        [known] = shown(both, "10.0.0.1:9110")["workers"]
    assert set(known["labels"]) >= {"rack=a", "zone=b"}


def test_workers_join_both_registries(both: Hosts) -> None:
    assignment, *commands = block("docs/cluster.md", "--master $masters").commands()
    name, _, value = assignment.partition("=")
    first, second, worker = (command.replace(f"${name}", value) for command in commands)
    second = second.replace("/var/lib/", "/var/other/")  # that machine's
    with both.serving(first), both.serving(second), both.serving(worker):
        for master in ("h1:9110", "h2:9110"):
            assert len(shown(both, master, there=True)["workers"]) == 1


def secure(both: Hosts) -> tuple[str, str]:
    """The commands of the security page that serve and submit, when the others have run."""
    *preparation, serve, submit = block("docs/security.md", "openssl req").commands()
    assert (serve.split()[0], submit.split()[0], len(preparation)) == ("flight-shuffle", "spark-submit", 3)
    for command in preparation:
        both.client(command)
    return serve, submit


@pytest.mark.spark
def test_five_commands_set_a_secure_server_up(both: Hosts) -> None:
    serve, submit = secure(both)
    with both.serving(serve):
        assert "sum 4999950000" in both.client(submit)
        assert shown(both, f"{HOST}:9110", "--tls-ca ca.pem --secret-file secret")["bytes_pushed"] > 0


def test_a_worker_joins_with_its_token_alone(both: Hosts) -> None:
    serve, _ = secure(both)
    identity, token, worker = (
        command.replace("/data/", "/data2/")  # of another machine than the server's
        for command in block("docs/security.md", "--token-file worker.token").commands()
    )
    keys = "--tls-ca ca.pem --tls-cert server.pem --tls-key server-key.pem"
    with both.serving(serve):
        both.client(f"umask 077; {identity}; {token}")
        with both.serving(worker.replace("...", f"{keys} --data-listen 10.0.0.2:9111"), there=False) as ready:
            assert ready["worker"] == (both.directory / "data2" / "shuffle" / "worker-id").read_text().strip()


@pytest.mark.spark
def test_the_two_commands_of_the_spark_page(both: Hosts) -> None:
    [serve] = block("docs/spark.md", "--advertise shuffle.example.org --listen 0.0.0.0").commands()
    [settings] = block("docs/spark.md", f"flight-shuffle spark-conf --server {HOST}:9110     #").commands()
    with both.serving(serve):
        assert "sum 4999950000" in both.client(f"spark-submit $({settings}) job.py")
        assert shown(both, f"{HOST}:9110")["bytes_pushed"] > 0


@pytest.mark.spark
@pytest.mark.nightly
def test_a_master_and_a_worker_on_two_hosts(both: Hosts) -> None:
    master, worker = block("docs/cluster.md", "--listen 10.0.0.1:9110").commands()
    [drain] = block("docs/cluster.md", "flight-shuffle drain").commands()
    server = "10.0.0.1:9110"
    with both.serving(master), both.serving(worker, there=False):
        submitted = both.client(f"spark-submit $(flight-shuffle spark-conf --server {server}) job.py")
        assert "sum 4999950000" in submitted
        status = shown(both, server)
        [known] = status["workers"]
        assert status["bytes_pushed"] > 0
        both.client(drain.replace("WORKER", known["id"]))
