"""Wrong addresses, wrong options, the wrong jar, and strangers at the server's ports: said clearly, nothing lost."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.harness.spark import local_conf
from bench.harness.spark_driver import JobFailed, SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from tests.spark import held, strangers
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 4_000, 4, 3
EXPECTED = held.expected(RECORDS, PARTITIONS)
SERVER, FALLBACK = "spark.shuffle.flight.server", "spark.shuffle.flight.fallback"
IMPATIENT = {"spark.shuffle.flight.connectTimeout": "3s"}

ADDRESSES = ("nobody", "data_endpoint", "silent", "http", "ssh")


@contextmanager
def wrong_address(kind: str, server: Server) -> Iterator[str]:
    if kind == "data_endpoint":
        yield server.data
        return
    listeners = {"silent": strangers.silent, "http": strangers.http, "ssh": strangers.ssh}
    with strangers.nobody() if kind == "nobody" else strangers.listener(listeners[kind]) as address:
        yield address


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server))


def run_job(driver: SparkDriver) -> list[int]:
    driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    sums: list[int] = driver.call(held.read, name="x")
    return sums


def complaints(driver: SparkDriver, start: int) -> list[str]:
    """The plugin's warnings and errors in Spark's log from ``start`` on. Log lines name the class that speaks."""
    lines = driver.log.read_text()[start:].splitlines()
    return [line for line in lines if (" WARN " in line or " ERROR " in line) and "Flight Shuffle" in line]


@pytest.mark.parametrize("kind", ADDRESSES)
def test_auto_falls_back_with_one_warning_and_the_right_answer(driver: SparkDriver, server: Server, kind: str) -> None:
    with wrong_address(kind, server) as address:
        start = len(driver.log.read_text())
        driver.renew(IMPATIENT | {SERVER: address, FALLBACK: "auto"})
        assert run_job(driver) == EXPECTED
        driver.call(held.write, name="another", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
        [warning] = complaints(driver, start)
    assert " WARN " in warning
    assert address in warning
    assert "sort shuffle" in warning


@pytest.mark.parametrize("kind", ADDRESSES)
def test_never_fails_naming_the_address(driver: SparkDriver, server: Server, kind: str) -> None:
    with wrong_address(kind, server) as address:
        driver.renew(IMPATIENT | {SERVER: address, FALLBACK: "never"})
        with pytest.raises(JobFailed, match=f"Flight Shuffle server {address}"):
            run_job(driver)


def test_always_uses_sort_shuffle_without_a_word(driver: SparkDriver, server: Server) -> None:
    with strangers.nobody() as address:
        start = len(driver.log.read_text())
        driver.renew({SERVER: address, FALLBACK: "always"})
        assert run_job(driver) == EXPECTED
        assert complaints(driver, start) == []


def test_unknown_option_lists_the_known_ones(driver: SparkDriver) -> None:
    driver.renew({"spark.shuffle.flight.sevrer": "x"})
    with pytest.raises(
        JobFailed, match=r"unknown option spark\.shuffle\.flight\.sevrer; known.*spark\.shuffle\.flight\.server"
    ):
        run_job(driver)


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("fallback", "sometimes", "auto, never, always"),
        ("server", "localhost", "HOST:PORT"),
        ("ioTimeout", "soon", "30s"),
        ("batchSize", "1k", "4096 and 67108864 bytes"),
    ],
)
def test_impossible_value_is_named_with_what_is_possible(
    driver: SparkDriver, option: str, value: str, remedy: str
) -> None:
    driver.renew({f"spark.shuffle.flight.{option}": value})
    with pytest.raises(JobFailed, match=rf"spark\.shuffle\.flight\.{option}={value}: .*{remedy}"):
        run_job(driver)


def test_session_with_good_settings_works_after_all_that(driver: SparkDriver) -> None:
    driver.renew({})
    assert run_job(driver) == EXPECTED


@pytest.mark.parametrize("greeting", strangers.GREETINGS)
def test_stranger_at_either_port_harms_nobody(driver: SparkDriver, server: Server, greeting: str) -> None:
    driver.renew({})
    driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    pid = server.pid
    driver.begin(held.read, name="x")
    for address in (server.control, server.data):
        strangers.pester(address, strangers.GREETINGS[greeting])
    assert driver.result() == EXPECTED
    assert run_job(driver) == EXPECTED
    assert server.status().workers
    assert server.pid == pid


def test_jar_for_another_spark_refuses_to_load_and_names_both_versions(server: Server, tmp_path: Path) -> None:
    jar = tmp_path / "flight-shuffle-spark_3.5-0.1.0.jar"
    repack(find_jar(), jar, {"flight-shuffle-spark.properties": b"version=0.1.0\nspark.minors=3.4 3.5\n"})
    conf = local_conf(tmp_path) | spark_conf(server.control, jar=jar)
    with (
        SparkDriver(conf, tmp_path / "spark.log") as driver,
        pytest.raises(JobFailed, match=r"jar for Spark 3\.4, 3\.5 loaded by Spark 4\.3"),
    ):
        run_job(driver)


def repack(source: Path, target: Path, replaced: dict[str, bytes]) -> None:
    """Copy a jar with other contents for some of its files."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, replaced.get(entry.filename, old.read(entry)))
