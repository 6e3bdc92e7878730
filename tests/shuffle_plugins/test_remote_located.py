"""Readers of one process share the master's list of map outputs, and read what has won since all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import ShufflePlugin
from shuffle_api.values import MapOutput, ShuffleHandle, Totals
from shuffle_plugins.remote import RemoteShuffle
from shuffle_plugins.remote.locate_cache import LocateCache, Located
from shuffle_transport.control_client import ControlClient

MAPS, PARTITIONS = 6, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.fixture
def plugin(cluster: ClusterProcesses) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": cluster.master.control, "hand_over": "off", "timeout": 60, "retry": 30}) as plugin:
        yield plugin


def write(plugin: ShufflePlugin, handle: ShuffleHandle, map: int, attempt: int) -> None:
    with plugin.writer(handle, MapAttempt(map, attempt)) as writer:
        for partition in range(PARTITIONS):
            writer.write(partition, f"{map} {attempt} {partition}".encode())
        writer.commit()


def read(plugin: ShufflePlugin, handle: ShuffleHandle, partition: int) -> list[str]:
    with plugin.reader(handle, range(partition, partition + 1)) as reader:
        return sorted(bytes(record).decode() for _, record in reader)


def expected(partition: int, attempts: dict[int, int]) -> list[str]:
    return [f"{map} {attempts.get(map, 0)} {partition}" for map in range(MAPS)]


def test_a_list_is_sent_once_and_again_when_another_attempt_has_won(
    plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Counter[str] = Counter()
    real = ControlClient.call

    def call(client: ControlClient, method: str, request: Any, *rest: Any, **named: Any) -> Any:
        reply = real(client, method, request, *rest, **named)
        if method == "Locate":
            sent["calls"] += 1
            sent["outputs"] += len(reply.outputs)
        return reply

    monkeypatch.setattr(ControlClient, "call", call)
    with plugin.master("located") as master:
        handle = master.register_shuffle(PARTITIONS, MAPS)
        for map in range(MAPS):
            write(plugin, handle, map, 0)
        for partition in range(PARTITIONS):
            assert read(plugin, handle, partition) == expected(partition, {})
        assert sent == {"calls": PARTITIONS, "outputs": MAPS}


def test_readers_go_on_with_a_new_attempt_and_with_a_worker_that_has_another_address(
    plugin: RemoteShuffle, cluster: ClusterProcesses
) -> None:
    with plugin.master("moves") as master:
        handle = master.register_shuffle(PARTITIONS, MAPS)
        for map in range(MAPS):
            write(plugin, handle, map, 0)
        assert read(plugin, handle, 0) == expected(0, {})
        held = {output.output.map: output.worker for output in master.map_outputs(handle)}
        moved = cluster.worker(held[2])
        [file] = (moved.data_dir / "worker/apps" / handle.spec.id.app).rglob("2.*.out")
        moved.kill()
        moved.restart()  # its ports are others now
        assert read(plugin, handle, 1) == expected(1, {})
        moved.kill()
        file.unlink()
        moved.restart()
        with pytest.raises(MapOutputLost):
            read(plugin, handle, 2)
        write(plugin, handle, 2, 1)
        wait_until(lambda: read(plugin, handle, 3) == expected(3, {2: 1}), "the new attempt")


def test_answers_go_when_they_have_too_many_outputs() -> None:
    def answer(version: int) -> Located:
        outputs = tuple(MapOutput(MapAttempt(map, 0), "w", Totals()) for map in range(MAPS))
        return Located(outputs, (), 1, version)

    kept = LocateCache(most=2 * (MAPS + 1))
    shuffles = [ShuffleId("app", number) for number in range(3)]
    for shuffle in shuffles[:2]:
        kept.keep(shuffle, range(MAPS), answer(1))
    kept.keep(shuffles[0], range(MAPS), answer(2))
    kept.keep(shuffles[2], range(MAPS), answer(1))
    found = [kept.find(shuffle, range(MAPS)) for shuffle in shuffles]
    assert [each and each.version for each in found] == [2, None, 1]
    assert kept.find(shuffles[0], range(1)) is None


def test_answers_without_outputs_are_bounded_too() -> None:
    kept, shuffle = LocateCache(most=10), ShuffleId("app", 0)
    for first in range(100):
        kept.keep(shuffle, range(first, first + 1), Located((), (), 1, 1))
    found = [first for first in range(100) if kept.find(shuffle, range(first, first + 1)) is not None]
    assert found == list(range(90, 100))
