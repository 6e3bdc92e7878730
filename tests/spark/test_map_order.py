"""A task gets its records in the order of the maps, as with sort shuffle in local mode, and fetches in parallel."""

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import jobs
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server
from tests.spark.test_same_answers import BY_FILE, BY_WIRE, WRITERS

pytestmark = pytest.mark.spark

SETTINGS = {
    "by_file": BY_FILE,
    "by_wire": BY_WIRE,
}
AT_LENGTH = {
    # Each reader has several windows, of several requests.
    "small_windows": {"spark.reducer.maxSizeInFlight": "1m", "spark.reducer.maxReqsInFlight": "8"} | BY_WIRE,
    "one_request_at_a_time": {"spark.reducer.maxSizeInFlight": "1m", "spark.reducer.maxReqsInFlight": "1"} | BY_FILE,
    "spilling": WRITERS["no_bypass_spilling_kryo"],
}


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server))


@pytest.mark.parametrize(
    "settings",
    [
        *(pytest.param(each, id=name) for name, each in SETTINGS.items()),
        *(pytest.param(each, id=name, marks=pytest.mark.nightly) for name, each in AT_LENGTH.items()),
    ],
)
def test_answers_that_depend_on_the_order_of_records_equal_sort_shuffles(
    driver: SparkDriver, server: Server, settings: dict[str, str]
) -> None:
    driver.renew(settings | SORT_SHUFFLE)
    expected = driver.call(jobs.in_order_of_maps)
    driver.renew(settings)
    before = pushed_bytes(server)
    assert driver.call(jobs.in_order_of_maps) == expected
    assert pushed_bytes(server) > before
