"""Real Spark, a real server process. Every process that is started here is ended here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from tests.spark.server import Server

# Of a test, or of the fixture of a module's jobs, on two processors that the rest of the tests share.
TIMEOUT_S = 1200
HERE = Path(__file__).parent
StartDriver = Callable[[dict[str, str]], SparkDriver]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            own = item.get_closest_marker("timeout")
            if own is None or own.args[0] < TIMEOUT_S:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S), append=False)


def flight_conf(server: Server, fallback: str = "never") -> dict[str, str]:
    """The product's settings. ``never`` by default, so that no test passes by way of sort shuffle."""
    return spark_conf(server.control, fallback=fallback)


# `SERVER_ARGUMENTS` of a module that looks at the server's metrics.
WITH_METRICS = ("--metrics-listen", "127.0.0.1:0")

# On top of `flight_conf`: Spark's own shuffle, in a JVM that has the plugin's jar all the same.
SORT_SHUFFLE = {
    "spark.shuffle.manager": "sort",
    "spark.shuffle.sort.io.plugin.class": "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO",
}


def pushed_bytes(server: Server) -> int:
    """Payload bytes that the server has taken in since it started."""
    return server.status().bytes_pushed


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the further arguments of its command line that the module gives as ``SERVER_ARGUMENTS``."""
    arguments = getattr(request.module, "SERVER_ARGUMENTS", ())
    with Server(tmp_path_factory.mktemp("server"), *arguments) as running:
        yield running


@pytest.fixture(scope="session")
def idle_drivers() -> Iterator[list[SparkDriver]]:
    """Driver processes with the plugin's jar, without a session. Starting a JVM takes longer than most tests."""
    idle: list[SparkDriver] = []
    yield idle
    for driver in idle:
        driver.close()


@pytest.fixture(scope="module")
def start_driver(
    tmp_path_factory: pytest.TempPathFactory, server: Server, idle_drivers: list[SparkDriver]
) -> Iterator[StartDriver]:
    """``start_driver(conf)``: a driver process for this module, with small, quiet settings below ``conf``.

    Its session ends before the server does: one that finds no server to unregister at waits for it.
    """
    directory = tmp_path_factory.mktemp("drivers")
    started: list[SparkDriver] = []

    def start(conf: dict[str, str]) -> SparkDriver:
        scratch = directory / str(len(started))
        scratch.mkdir()
        base = local_conf(scratch) | {"spark.master": "local[2]"}
        driver = idle_drivers.pop() if idle_drivers else new_driver(base, tmp_path_factory)
        started.append(driver)
        driver.configure(base | conf)
        return driver

    yield start
    for driver in started:
        if driver.usable:
            driver.configure({})
            idle_drivers.append(driver)
        else:
            driver.close()


def new_driver(base: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> SparkDriver:
    """A process whose JVM runs, started with nothing but what every module sets anew: it keeps those settings."""
    directory = tmp_path_factory.mktemp("jvm")
    own = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory}", "spark.jars": str(find_jar())}
    driver = SparkDriver(base | own, directory / "spark.log")
    driver.call(start_session)
    return driver


def start_session(spark: SparkSession) -> None:
    """Nothing more than that there is one."""
