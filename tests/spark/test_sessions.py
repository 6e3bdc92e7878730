"""Several applications of one process, one after the other: none leaves a thread, a connection or a file."""

import pytest

from tests.spark import held, leaks
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS, SESSIONS = 4_000, 4, 3, 3


def test_sessions_one_after_the_other_leave_nothing(start_driver: StartDriver, server: Server) -> None:
    driver = start_driver(flight_conf(server))
    apps = []
    for salt in range(SESSIONS):
        driver.renew({})
        driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, salt=salt)
        assert driver.call(held.read, name="x") == held.expected(RECORDS, PARTITIONS, salt)
        apps.append(driver.call(held.app_key))
        assert [app.app for app in server.status().apps] == apps[-1:]
        leaks.wait_until_none(lambda: driver.call(leaks.threads).count("flight-shuffle-heartbeat") - 1, "heartbeats")
        leaks.wait_until_none(lambda: leaks.connections(server.data) - 1, "connections beside this session's")
    assert len(set(apps)) == SESSIONS

    driver.renew(SORT_SHUFFLE)
    for app in apps:
        server.wait_until_gone(app)
    assert list(server.status().apps) == []
    assert list(server.status().shuffles) == []
    leaks.wait_until_none(lambda: driver.call(leaks.threads), "threads")
    leaks.wait_until_none(lambda: leaks.connections(server.data), "connections")
