"""A stock Arrow Flight client sees a running job's shuffles and reads them; afterwards nothing is left of them."""

from __future__ import annotations

from collections.abc import Iterator

import crc32c
import pyarrow.flight as flight
import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import held, observe
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 6, 4


@pytest.fixture
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    driver = start_driver(flight_conf(server) | observe.WITH_UI)
    driver.call(held.write, name="seen", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    return driver


@pytest.fixture
def client(server: Server) -> Iterator[flight.FlightClient]:
    with flight.connect(f"grpc://{server.data}") as connected:
        yield connected


def test_stock_client_reads_a_running_jobs_shuffle_and_nothing_is_left_after_it(
    driver: SparkDriver, server: Server, client: flight.FlightClient
) -> None:
    app: str = driver.call(held.app_key)
    written = sum(task.bytes for task in driver.call(observe.map_tasks))

    [listed] = [info for info in client.list_flights() if info.descriptor.path[0] == app.encode()]
    info = client.get_flight_info(flight.FlightDescriptor.for_path(*listed.descriptor.path))
    assert len(info.endpoints) == PARTITIONS
    tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]

    for partition, table in enumerate(tables):
        assert set(table["partition"].to_pylist()) == {partition}
        assert len(set(table["map"].to_pylist())) == MAPS
        for payload, checksum in zip(table["payload"].to_pylist(), table["crc32c"].to_pylist(), strict=True):
            assert crc32c.crc32c(payload) == checksum
    assert sum(len(payload) for table in tables for payload in table["payload"].to_pylist()) == written

    shuffle = int(listed.descriptor.path[1])
    driver.call(held.drop, name="seen")
    server.wait_until_gone(app, shuffle, meanwhile=lambda: driver.call(held.collect_garbage))
    driver.call(held.write, name="last", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    driver.renew({})  # ends the application
    server.wait_until_gone(app)
    assert not [info for info in client.list_flights() if info.descriptor.path[0] == app.encode()]
    assert server.status().apps == []
