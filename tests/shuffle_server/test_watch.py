"""A watch reports the lost outputs of a shuffle: once each, over restarts of the master, until it is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import shuffle_server.master.watching
from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import (
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    Overloaded,
    ServerUnreachable,
    ShuffleError,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.registry import LoseWorker, RegisterWorker, UnregisterShuffle
from shuffle_api.values import LostMapOutput, MapOutput, ShuffleHandle, ShuffleSpec, WorkerInfo
from shuffle_plugins.remote import RemoteShuffle
from shuffle_plugins.remote.shuffle_events import ShuffleEvents
from shuffle_plugins.remote.watch import LossWatch
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.processes import stopped
from tests.shuffle_server.helpers import output_files, read_all, write_map
from tests.shuffle_server.master.scene import SHUFFLE, commit
from tests.shuffle_server.master.served import Scene

SECONDS = 120.0
SHORT = 0.2  # how long a test listens for what must not come


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene()) as scene:
        yield scene


@pytest.fixture
def plugin(scene: Scene) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": scene.address, "timeout": 60, "retry": 2, "hand_over": "off"}) as plugin:
        yield plugin


@pytest.fixture
def watch(scene: Scene, plugin: RemoteShuffle) -> Iterator[LossWatch]:
    with plugin.watch(handle_of(scene)) as watch:
        yield watch


def handle_of(scene: Scene) -> ShuffleHandle:
    return ShuffleHandle("remote", ShuffleSpec(SHUFFLE, 4, 2, "zstd:3", "spark"), scene.address)


def assert_nothing(watch: LossWatch) -> None:
    with pytest.raises(DeadlineExceeded, match="no map output"):
        watch.next(SHORT)


def test_what_was_lost_before_and_what_is_lost_now_is_told_once_with_worker_and_reason(
    scene: Scene, plugin: RemoteShuffle
) -> None:
    for operation in (commit(0), commit(1), commit(2)):
        scene.master.apply(operation)
    scene.master.lose(SHUFFLE, MapAttempt(0, 0), "a bad disk")
    scene.master.apply(commit(0, attempt=1))
    with plugin.watch(handle_of(scene)) as watch:
        first = watch.next(SECONDS)
        assert (first.output, first.worker.id, first.reason) == (MapAttempt(0, 0), "w", "a bad disk")
        assert_nothing(watch)
        scene.master.apply(LoseWorker("w", "burnt"))
        assert {watch.next(SECONDS) for _ in range(3)} == {
            LostMapOutput(MapAttempt(n, attempt), WorkerInfo("w", "h", 1, 2), "burnt")
            for n, attempt in ((0, 1), (1, 0), (2, 0))
        }
        assert_nothing(watch)
        with plugin.watch(handle_of(scene)) as late:
            assert sorted(late.next(SECONDS).output.map for _ in range(4)) == [0, 0, 1, 2]


def test_an_output_of_which_there_is_another_copy_is_not_lost(scene: Scene, watch: LossWatch) -> None:
    output = commit(0).output
    scene.master.apply(RegisterWorker(WorkerInfo("v", "h", 2)))
    scene.master.apply(commit(0))
    scene.master.apply(type(commit(0))(SHUFFLE, output.at("v")))
    scene.master.apply(LoseWorker("w", "burnt"))
    assert_nothing(watch)
    scene.master.apply(LoseWorker("v", "burnt, too"))
    assert watch.next(SECONDS).reason == "burnt, too"


def test_a_watch_of_more_than_a_page_of_losses_hears_of_all(
    scene: Scene, watch: LossWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle_server.master.watching, "PAGE", 7)
    scene.master.apply_all([commit(n) for n in range(50)])
    scene.master.apply(LoseWorker("w", "burnt"))
    assert {watch.next(SECONDS).output.map for _ in range(50)} == set(range(50))
    assert_nothing(watch)


def test_a_watch_ends_when_the_shuffle_is_over_is_closed_or_its_plugin_is(scene: Scene, plugin: RemoteShuffle) -> None:
    with plugin.watch(handle_of(scene)) as watch:
        threading.Timer(SHORT, watch.close).start()
        assert list(watch) == []
    with plugin.watch(handle_of(scene)) as watch:
        assert_nothing(watch)
        scene.master.apply(UnregisterShuffle(SHUFFLE))
        with pytest.raises(UnknownShuffle):
            watch.next(SECONDS)
    with plugin.watch(handle_of(scene)) as watch, pytest.raises(UnknownShuffle):
        next(watch)
    with RemoteShuffle({"server": scene.address, "hand_over": "off"}) as other:
        watch = other.watch(handle_of(scene))
    with pytest.raises((InvalidArgument, UnknownShuffle)):
        next(watch)
    watch.close()


def test_watches_leave_the_threads_of_other_calls_alone_and_too_many_are_refused() -> None:
    request = pb.WatchRequest(shuffle=messages.key_of(SHUFFLE))
    with (
        closing(Scene(watches=40)) as scene,
        closing(ControlClient(scene.address, client="test", timeout=60)) as client,
    ):
        streams = [client.stream("Watch", request) for _ in range(40)]  # the server has 16 threads
        replies = [iter(stream) for stream in streams]
        for each in replies:
            assert next(each).generation == scene.master.registry.spec(SHUFFLE).id.generation
        client.hello()
        assert not is_served(client, request)
        for stream in streams:
            stream.cancel()
        assert all(list(each) == [] for each in replies)
        wait_until(lambda: is_served(client, request), "what the cancelled watches took is given back")


def is_served(client: ControlClient, request: pb.WatchRequest) -> bool:
    try:
        reply: pb.WatchReply = next(iter(client.stream("Watch", request)))
    except Overloaded:
        return False
    return reply.epoch > 0


def test_a_master_that_stays_away_ends_the_watch(plugin: RemoteShuffle, scene: Scene) -> None:
    with plugin.watch(handle_of(scene)) as watch:
        assert_nothing(watch)
        scene.close()
        with pytest.raises(ServerUnreachable):
            watch.next(SECONDS)


def test_a_watch_goes_on_when_the_master_is_started_again(server: ServerProcess) -> None:
    with (
        RemoteShuffle({"server": server.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as remote,
        remote.master("watched") as master,
    ):
        handle = master.register_shuffle(4, 3)
        for n in range(3):
            write_map(remote, handle, n)
        with remote.watch(handle) as watch:
            lose(remote, server, handle, 0)
            assert watch.next(SECONDS).output == MapAttempt(0, 0)
            server.kill()
            server.restart()
            lose(remote, server, handle, 1)
            found = watch.next(SECONDS)
            assert found.output == MapAttempt(1, 0)
            assert found.worker.address == server.data
            server.kill()
            [path] = [each for each in output_files(server.data_dir) if each.name == "2.0.out"]
            path.unlink()
            server.restart()  # it finds out by itself, while nobody watches
            assert watch.next(SECONDS).output == MapAttempt(2, 0)
            assert_nothing(watch)


def lose(plugin: RemoteShuffle, server: ServerProcess, handle: ShuffleHandle, map_id: int) -> None:
    [path] = [each for each in output_files(server.data_dir) if each.name.startswith(f"{map_id}.")]
    path.unlink()
    with pytest.raises(MapOutputLost):
        read_all(plugin, handle, range(map_id, map_id + 1))


def test_a_reader_that_waits_for_a_stopped_worker_learns_that_its_outputs_are_lost(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=1, worker_timeout=8) as cluster,
        RemoteShuffle({"server": cluster.master.control, "timeout": 600, "retry": 600, "hand_over": "off"}) as plugin,
        plugin.master("stopped") as master,
    ):
        handle = master.register_shuffle(4, 2)
        for n in range(2):
            write_map(plugin, handle, n)
        [worker] = cluster.workers
        with stopped(worker.pid):
            with pytest.raises(MapOutputLost, match=r"silent for \d+ s") as caught:
                read_all(plugin, handle)
            assert caught.value.worker == worker.worker


class Hearing:
    """Counts how often what moves began to be told."""

    def __init__(self) -> None:
        self.times = 0

    def began(self) -> None:
        self.times += 1

    def lost(self, output: LostMapOutput) -> None: ...
    def moved(self, output: MapOutput) -> None: ...
    def ended(self, error: ShuffleError) -> None: ...


def test_who_listens_is_told_each_time_from_when_on_it_hears_what_moves(scene: Scene) -> None:
    first, second = Hearing(), Hearing()
    with closing(ShuffleEvents(ControlClient(scene.address, client="test", timeout=60), retry=20)) as desk:
        desk.listen(SHUFFLE, first)
        wait_until(lambda: first.times == 1, "the master has answered")
        desk.listen(SHUFFLE, second)
        assert (first.times, second.times) == (1, 1)
        scene.serve_again()
        wait_until(lambda: first.times == second.times > 1, "it has answered again")
