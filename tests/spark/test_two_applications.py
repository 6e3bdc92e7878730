"""Two applications at once, with the same shuffle numbers, never see each other's data."""

import pytest

from tests.spark import held
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 6, 4
SALTS = (0, 7_000_000)


def test_each_application_reads_its_own_data_and_outlives_the_other(start_driver: StartDriver, server: Server) -> None:
    drivers = [start_driver(flight_conf(server)) for _ in SALTS]
    for driver, salt in zip(drivers, SALTS, strict=True):
        driver.begin(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, salt=salt)
    for driver in drivers:
        driver.result()
    apps = [driver.call(held.app_key) for driver in drivers]
    assert sorted((s.shuffle.app, s.shuffle.shuffle) for s in server.status().shuffles) == sorted((a, 0) for a in apps)

    expected = [held.expected(RECORDS, PARTITIONS, salt) for salt in SALTS]
    assert [driver.call(held.read, name="x") for driver in drivers] == expected

    drivers[0].renew({})  # ends the application
    server.wait_until_gone(apps[0])
    assert drivers[1].call(held.read, name="x") == expected[1]
