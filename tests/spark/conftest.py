"""Real Spark, a real server process. Every process that is started here is ended here."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bench.spark import local_conf
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
def start_driver(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[StartDriver]:
    """``start_driver(name, conf)`` starts a driver process with small, quiet settings below ``conf``.

    Drivers end before the server does: one that finds no server to unregister at waits for it.
    """
    with ExitStack() as running:

        def start(name: str, conf: dict[str, str]) -> SparkDriver:
            directory = tmp_path_factory.mktemp(name)
            base = local_conf(directory) | {"spark.master": "local[2]"}
            return running.enter_context(SparkDriver(base | conf, directory / "spark.log"))

        yield start
