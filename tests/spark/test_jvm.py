"""shuffle_plugins.spark.conf: in a process whose JVM runs already, settings that can't take effect are refused."""

import pytest
from pyspark.sql import SparkSession

from shuffle_plugins.spark import SparkAlreadyStarted, spark_conf
from shuffle_plugins.spark.conf import MANAGER, check_plugin_visible
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server


def refused(spark: SparkSession, manager: str) -> str | None:
    """What `check_plugin_visible` says where a session runs; None if it lets pass."""
    try:
        check_plugin_visible(manager)
    except SparkAlreadyStarted as error:
        return str(error)
    return None


def conf_in_a_session(spark: SparkSession, server: str) -> dict[str, str]:
    return spark_conf(server, fallback="never")


@pytest.mark.spark
def test_running_jvm_that_has_the_jar_takes_the_settings(start_driver: StartDriver, server: Server) -> None:
    driver = start_driver({})
    assert driver.call(refused, manager=MANAGER) is None
    assert driver.call(conf_in_a_session, server=server.control) == flight_conf(server)


@pytest.mark.spark
def test_running_jvm_without_the_class_is_refused_with_what_to_do(start_driver: StartDriver) -> None:
    said = start_driver({}).call(refused, manager="org.example.NoSuchManager")
    assert "already" in said
    assert "before the first SparkSession" in said


def test_process_without_a_jvm_takes_the_settings() -> None:
    check_plugin_visible("org.example.NoSuchManager")
