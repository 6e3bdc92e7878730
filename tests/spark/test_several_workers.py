"""A master and two workers, each a process: map outputs lie at both, and a worker that is gone costs its maps only."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from bench.cluster import ClusterProcesses, wait_until
from bench.spark import local_conf
from bench.spark_driver import SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.spark import held, observe

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

RECORDS, MAPS, PARTITIONS = 8_000, 8, 4
EXPECTED = held.expected(RECORDS, PARTITIONS)


def located(address: str, app: str) -> dict[int, str]:
    """The worker of each committed map output of an application's only shuffle, by Spark's map id."""
    with closing(ControlClient(address, client="test", timeout=60)) as client:
        reply: pb.LocateReply = client.call("Locate", pb.LocateRequest(shuffle=pb.ShuffleKey(app=app, shuffle=0)))
    return {output.output.map: output.worker for output in reply.outputs}


def test_a_worker_killed_between_the_stages_costs_its_maps_and_no_other(tmp_path: Path) -> None:
    """With a driver of its own, which is closed: what it has seen of lost workers is nobody else's business."""
    conf = local_conf(tmp_path) | observe.WITH_UI | {"spark.master": "local[2]", "spark.jars": str(find_jar())}
    with ClusterProcesses(tmp_path, workers=2, worker_timeout=8) as cluster:
        retry = {"retryWindow": "2s"}
        flight = spark_conf(cluster.master.control, fallback="never", options=retry)
        with SparkDriver(conf | flight, tmp_path / "spark.log") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            before = driver.call(observe.map_tasks)
            holders = located(cluster.master.control, driver.call(held.app_key))
            assert set(holders.values()) == {worker.worker for worker in cluster.workers}
            victim = cluster.workers[0]
            lost = sorted(task.map for task in before if holders[task.id] == victim.worker)

            victim.kill()
            wait_until(lambda: victim.worker not in cluster.worker_ids(), "the worker is given up")

            assert driver.call(held.read, name="x") == EXPECTED
            reruns = driver.call(observe.map_tasks)[len(before) :]
            assert sorted(task.map for task in reruns) == lost
