"""Jobs over TLS with tokens, on an executor in a process of its own; and with the wrong secret or authority."""

from __future__ import annotations

import os
import re
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.harness.spark_driver import ROOT, JobFailed, SparkDriver
from shuffle_api.ids import name_of
from shuffle_plugins.spark import spark_conf
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.tokens import app_token
from tests.certificates import Party, make_party, make_secret
from tests.spark import held, jobs, observe
from tests.spark.conftest import StartDriver, pushed_bytes, start_session
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 4_000, 4, 3
EXPECTED = held.expected(RECORDS, PARTITIONS)
TEXT = "what only the application itself may read"
PREFIX = "spark.shuffle.flight."
CLUSTER = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.memory": "1g"}
IMPATIENT = {f"{PREFIX}connectTimeout": "60s", f"{PREFIX}retryWindow": "5s"}


@dataclass(frozen=True, slots=True)
class Files:
    """The server's and its client's files, the secret, and those of somebody else."""

    server: Party
    client: Party
    secret: Path
    other: Party
    other_secret: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    root = tmp_path_factory.mktemp("files")
    parties = (make_party(root / name) for name in ("server", "client", "other"))
    server, client, other = parties
    return Files(server, client, make_secret(root / "secret"), other, make_secret(root / "other-secret"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[Server]:
    """In place of the one without security: mutual TLS and tokens."""
    arguments = ["--tls-cert", str(files.server.cert), "--tls-key", str(files.server.key)]
    arguments += ["--tls-client-ca", str(files.client.ca), "--secret-file", str(files.secret)]
    keys = load_keyring(
        tls_ca=str(files.server.ca),
        tls_cert=str(files.client.cert),
        tls_key=str(files.client.key),
        secret_file=str(files.secret),
    )
    with Server(tmp_path_factory.mktemp("server"), *arguments, credentials=keys.for_cluster()) as running:
        yield running


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server, files: Files) -> SparkDriver:
    conf = spark_conf(
        server.control,
        fallback="never",
        tls_ca=files.server.ca,
        tls_cert=files.client.cert,
        tls_key=files.client.key,
        secret_file=files.secret,
    )
    return start_driver(conf | IMPATIENT | observe.WITH_UI)


def relative(path: Path) -> str:
    """From the working directory of the driver."""
    return os.path.relpath(path, ROOT)


def run_job(driver: SparkDriver) -> list[int]:
    driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    sums: list[int] = driver.call(held.read, name="x")
    return sums


def environment(spark: SparkSession) -> str:
    """What Spark's environment page and its REST twin show."""
    base, app = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    pages = (f"{base}/environment/", f"{base}/api/v1/applications/{app}/environment")
    return "".join(urllib.request.urlopen(page, timeout=observe.TIMEOUT_S).read().decode() for page in pages)


def test_an_executor_shuffles_over_mutual_tls_with_the_token_that_the_driver_derives(
    driver: SparkDriver, server: Server, files: Files
) -> None:
    driver.renew(CLUSTER)
    assert run_job(driver) == EXPECTED
    assert driver.call(jobs.sql_distinct) == [(key,) for key in range(1000)]
    assert pushed_bytes(server) > 0
    app = driver.call(held.app_key)
    assert [status.app for status in server.status().apps] == [app]

    token = app_token(files.secret.read_bytes().rstrip(b"\n"), name_of(app))
    key = "".join(files.client.key.read_text().splitlines()[1:-1])
    shown = driver.call(environment)
    assert app in shown
    assert "flight.token" in shown  # Spark shows that there are a token and a key, and hides their values
    assert "flight.tls.key.secret" in shown
    logs = [driver.log, *server.data_dir.parent.glob("server-*.log")]
    places = [shown, *(log.read_text(errors="replace") for log in logs)]
    assert [
        place
        for place in places
        if any(each in place for each in (token[:16], files.secret.read_text().strip(), key[-40:-8]))
    ] == []


def test_executors_in_another_directory_need_none_of_the_drivers_files(
    driver: SparkDriver, server: Server, files: Files, tmp_path: Path
) -> None:
    """Their names are relative, and none of them is there any more when the executor runs its first task."""
    given = {
        "tls.ca": files.server.ca,
        "tls.cert": files.client.cert,
        "tls.key": files.client.key,
        "token.secretFile": files.secret,
    }
    copies = {name: Path(shutil.copy(file, tmp_path / name)) for name, file in given.items()}
    driver.renew(CLUSTER | {f"{PREFIX}{name}": relative(copy) for name, copy in copies.items()})
    driver.call(start_session)
    for copy in copies.values():
        copy.unlink()
    pushed = pushed_bytes(server)
    assert run_job(driver) == EXPECTED
    assert pushed_bytes(server) > pushed


def test_an_application_with_a_token_of_its_own_needs_no_secret(
    driver: SparkDriver, server: Server, files: Files, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(app_token(files.secret.read_bytes().rstrip(b"\n"), "report-7"))
    token_file.chmod(0o600)
    mine = {f"{PREFIX}token.secretFile": "", f"{PREFIX}token.file": str(token_file)}
    driver.renew(mine | {f"{PREFIX}app": "report-7"})
    assert run_job(driver) == EXPECTED
    assert [name_of(status.app) for status in server.status().apps] == ["report-7"]
    driver.renew(mine | {f"{PREFIX}app": "report-8"})
    with pytest.raises(JobFailed, match=f"{server.control}: UNAUTHENTICATED: the token is not that of .*'report-8'"):
        run_job(driver)


def test_a_wrong_secret_falls_back_with_one_warning_or_fails_with_the_same_words(
    driver: SparkDriver, server: Server, files: Files
) -> None:
    wrong = {f"{PREFIX}token.secretFile": str(files.other_secret)}
    pushed, start = pushed_bytes(server), len(driver.log.read_text())
    driver.renew(wrong | {f"{PREFIX}fallback": "auto"})
    assert run_job(driver) == EXPECTED
    assert pushed_bytes(server) == pushed
    [warning] = [
        line for line in driver.log.read_text()[start:].splitlines() if re.search(r" WARN .*Flight Shuff", line)
    ]
    said = rf"Flight Shuffle server {server.control}: UNAUTHENTICATED: the token is not that of application"
    assert re.search(said + ".*secret file.*sort shuffle", warning)
    driver.renew(wrong)
    with pytest.raises(JobFailed, match=said):
        run_job(driver)


def write_text(spark: SparkSession) -> int:
    """A shuffle that holds TEXT, kept for the test to look for."""
    source = spark.sparkContext.parallelize(range(200), 2).map(lambda i: (i, i))
    held.HELD["text"] = source.mapValues(lambda i: f"{TEXT} {i}").partitionBy(2)  # type: ignore[assignment]
    return held.HELD["text"].map(lambda pair: len(str(pair[1]))).sum()


@pytest.mark.parametrize("encrypted", [False, True])
def test_data_at_rest_is_plain_text_unless_spark_encrypts_it(
    driver: SparkDriver, server: Server, encrypted: bool
) -> None:
    """Both, so that the search is known to find what it looks for."""
    driver.renew({"spark.shuffle.compress": "false", "spark.io.encryption.enabled": str(encrypted).lower()})
    assert driver.call(write_text) == sum(len(f"{TEXT} {i}") for i in range(200))
    outputs = [path.read_bytes() for path in (server.data_dir / "worker" / "apps").rglob("*.out")]
    assert len(outputs) == 2
    assert any(TEXT.encode() in output for output in outputs) == (not encrypted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tls.ca": "OTHER"}, "SERVER: its certificate is not trusted: .*tls.ca must hold"),
        ({"tls.cert": "", "tls.key": ""}, "SERVER cannot be reached: .*client's certificate"),
        ({"tls.ca": "", "tls.cert": "", "tls.key": ""}, "SERVER cannot be reached: .*may want TLS"),
    ],
)
def test_wrong_tls_settings_fail_with_the_address_and_what_to_set(
    driver: SparkDriver, server: Server, files: Files, changes: dict[str, str], words: str
) -> None:
    settings = {PREFIX + name: value.replace("OTHER", str(files.other.ca)) for name, value in changes.items()}
    driver.renew(settings | {f"{PREFIX}connectTimeout": "5s"})
    with pytest.raises(JobFailed, match=words.replace("SERVER", f"Flight Shuffle server {server.control}")):
        run_job(driver)
