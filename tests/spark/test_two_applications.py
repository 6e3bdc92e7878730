"""Two applications at once, with the same shuffle numbers or even the same name, never see each other's data."""

import pytest

from tests.spark import held
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 6, 4
SALTS = (0, 7_000_000)


@pytest.mark.parametrize("name", ["", "nightly"])
def test_each_application_reads_its_own_data_and_outlives_the_other(
    start_driver: StartDriver, server: Server, name: str
) -> None:
    drivers = [start_driver(flight_conf(server) | {"spark.shuffle.flight.app": name}) for _ in SALTS]
    for driver, salt in zip(drivers, SALTS, strict=True):
        driver.begin(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, salt=salt)
    for driver in drivers:
        driver.result()
    apps = [driver.call(held.app_key) for driver in drivers]
    assert len(set(apps)) == len(apps)
    assert all(app.startswith(f"{name}~") for app in apps) or not name
    shuffles = [s.shuffle for s in server.status().shuffles if s.shuffle.app in apps]
    assert sorted((each.app, each.shuffle) for each in shuffles) == sorted((app, 0) for app in apps)

    expected = [held.expected(RECORDS, PARTITIONS, salt) for salt in SALTS]
    assert [driver.call(held.read, name="x") for driver in drivers] == expected

    drivers[0].renew({})  # ends the application
    server.wait_until_gone(apps[0])
    assert drivers[1].call(held.read, name="x") == expected[1]
