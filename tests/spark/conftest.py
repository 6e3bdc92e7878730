"""Real Spark, a real server process. Every process that is started here is ended here."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.spark.server import Server

StartDriver = Callable[..., SparkDriver]


def flight_conf(server: Server, fallback: str = "never") -> dict[str, str]:
    """The product's settings. ``never`` by default, so that no test passes by way of sort shuffle."""
    return spark_conf(server.control, fallback=fallback)


# On top of `flight_conf`: Spark's own shuffle, in a JVM that has the plugin's jar all the same.
SORT_SHUFFLE = {
    "spark.shuffle.manager": "sort",
    "spark.shuffle.sort.io.plugin.class": "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO",
}


def pushed_bytes(server: Server) -> int:
    """Payload bytes that the server has taken in since it started."""
    return server.status().bytes_pushed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def start_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDriver]:
    """``start_driver(name, conf)`` starts a driver process with small, quiet settings below ``conf``."""
    with ExitStack() as running:

        def start(name: str, conf: dict[str, str]) -> SparkDriver:
            directory = tmp_path_factory.mktemp(name)
            return running.enter_context(SparkDriver(base_conf(directory) | conf, directory / "spark.log"))

        yield start


def base_conf(directory: Path) -> dict[str, str]:
    """Settings that both shuffles share; everything that Spark writes lies below ``directory``."""
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
