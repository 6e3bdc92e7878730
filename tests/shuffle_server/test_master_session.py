"""What a worker sends with its heartbeats, with a master that is a function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shuffle_api.errors import ServerUnreachable, StaleEpoch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import WorkerInfo
from shuffle_server.journals import Journal
from shuffle_server.master.client import Identity
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.store.catalog import Catalog
from shuffle_server.worker.master_session import SHUFFLES_AT_ONCE, Incarnations, MasterSession
from shuffle_server.worker.remote_registry_view import RemoteRegistryView
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as control_pb
from shuffle_transport.security import NO_CREDENTIALS


class Holdings:
    def __init__(self) -> None:
        self.state = control_pb.WorkerStatus(worker="w", open_pushes=1)
        self.held = [ShuffleId("app", number, 1) for number in range(2 * SHUFFLES_AT_ONCE + 1)]
        self.removed: list[ShuffleId] = []
        self.dropped = 0

    def info(self) -> WorkerInfo:
        return WorkerInfo("w", "h", 1)

    def status(self) -> control_pb.WorkerStatus:
        return control_pb.WorkerStatus.FromString(self.state.SerializeToString())

    def free_bytes(self) -> int:
        return 1

    def held_shuffles(self) -> list[ShuffleId]:
        return [id for id in self.held if id not in self.removed]

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        self.removed.append(shuffle)

    def journal(self) -> Journal:
        return Journal()

    def joined(self, journal: Journal, held: Journal, master: str) -> None: ...

    def drop_outputs(self) -> None:
        self.dropped += 1


class Master:
    """Answers heartbeats."""

    def __init__(self) -> None:
        self.beats: list[pb.BeatRequest] = []
        self.reply = pb.BeatReply(beat_seconds=7.0)
        self.epoch, self.joins, self.known = 1, 0, True
        self.held: list[pb.HeldOutput] = []
        self.away = 0  # joins that find nobody
        self.lost: list[pb.LostOutput] = []

    def call(self, method: str, request: Any) -> Any:
        if method == "Join" and self.away > 0:
            self.away -= 1
            raise ServerUnreachable("127.0.0.1:1", "connection refused")
        if method == "Join":
            self.joins += 1
            known, self.known = self.known, True
            return pb.JoinReply(epoch=self.epoch, known=known, beat_seconds=2.0)
        if method == "Held":
            return pb.HeldReply(outputs=self.held)
        if method == "Place":
            return self._placed(request)
        if method in ("Lose", "Release"):
            return self._changed(request)
        assert method == "Beat"
        self.beats.append(request)
        return self.reply

    def _placed(self, request: control_pb.PlaceRequest) -> control_pb.PlaceReply:
        if self.joins < self.epoch:
            raise StaleEpoch(f"worker {request.copy_from} has not joined")
        return control_pb.PlaceReply(workers=[messages.worker_message(WorkerInfo("other", "h", 2))])

    def _changed(self, request: pb.LoseRequest | pb.ReleaseRequest) -> pb.LoseReply | pb.ReleaseReply:
        if request.identity.epoch != self.epoch:
            raise StaleEpoch(f"the request is for epoch {request.identity.epoch} of the master, this is {self.epoch}")
        if isinstance(request, pb.ReleaseRequest):
            return pb.ReleaseReply(released=request.outputs)
        self.lost += request.outputs
        return pb.LoseReply()


class Scene:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master, self.holdings = Master(), Holdings()
        self.status = self.holdings.state
        self.session = MasterSession(
            "127.0.0.1:1",
            Incarnations(directory / "incarnation"),
            self.holdings,
            NO_CREDENTIALS,
        )
        monkeypatch.setattr(self.session._client, "call", self.master.call)
        self.session.join(0.0)

    def beat(self) -> pb.BeatRequest:
        self.session._heartbeat()
        assert self.session.absent() == "it has not joined its master"  # it was not started: it takes nothing
        return self.master.beats[-1]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(tmp_path, monkeypatch)
    with closing(scene.session):
        yield scene


def test_a_later_life_has_a_greater_number_and_needs_no_disk_before_the_next_start(tmp_path: Path) -> None:
    file, numbers = tmp_path / "incarnation", []
    file.write_text("7")  # of a release that had a number for each start
    for _ in range(3):
        incarnations = Incarnations(file)
        before = file.read_text()
        numbers += [incarnations.next() for _ in range(3)]
        assert file.read_text() == before
        assert int(before) > numbers[-1]
    assert numbers[0] == 8
    assert numbers == sorted(set(numbers))


def test_a_state_is_sent_when_it_has_changed_and_after_a_join(scene: Scene) -> None:
    assert [scene.beat().HasField("status") for _ in range(3)] == [True, False, False]
    scene.status.open_pushes = 2
    assert [scene.beat().HasField("status") for _ in range(2)] == [True, False]
    scene.session.join(0.0)
    assert scene.beat().HasField("status")


def test_the_master_sets_the_interval(scene: Scene) -> None:
    assert scene.session._task.period == 2.0
    scene.beat()
    assert scene.session._task.period == 7.0


def test_held_shuffles_are_named_in_turn_a_few_with_each_heartbeat(scene: Scene) -> None:
    named = [list(map(messages.shuffle_id, scene.beat().shuffles)) for _ in range(3)]
    assert [len(each) for each in named] == [SHUFFLES_AT_ONCE, SHUFFLES_AT_ONCE, 1]
    assert [id for each in named for id in each] == scene.holdings.held
    assert list(map(messages.shuffle_id, scene.beat().shuffles)) == named[0]
    scene.master.reply.gone.append(messages.key_of(scene.holdings.held[3]))
    scene.beat()
    assert scene.holdings.removed == [scene.holdings.held[3]]


def test_a_request_meant_for_the_last_life_of_the_master_is_repeated_after_a_join(scene: Scene) -> None:
    shuffle, output = ShuffleId("app", 0, 1), MapAttempt(2, 0)
    scene.session.lose(shuffle, output, "its file is gone")
    scene.master.epoch = 2  # it was restarted, and no heartbeat has said so yet
    scene.session.report_losses(shuffle)
    assert [lost.output.map for lost in scene.master.lost] == [2]
    scene.master.epoch = 3
    assert scene.session.release(shuffle, output)
    assert scene.master.joins == 3
    assert scene.session.as_joined(lambda identity: identity.epoch) == 3


def test_a_request_waits_for_a_master_that_goes_away_between_the_refusal_and_the_join(scene: Scene) -> None:
    scene.session.lose(ShuffleId("app", 0, 1), MapAttempt(2, 0), "its file is gone")
    scene.master.epoch, scene.master.away = 2, 3
    with pytest.raises(ServerUnreachable):
        scene.session.report_losses()
    scene.session.report_losses(retry_for=60.0)
    assert [lost.output.map for lost in scene.master.lost] == [2]


def test_a_master_that_was_restarted_while_a_worker_starts_loses_none_of_its_outputs(scene: Scene) -> None:
    shuffle, gone = ShuffleId("app", 0, 1), MapAttempt(2, 0)
    scene.master.held = [held(shuffle, gone), held(shuffle, MapAttempt(3, 0))]
    scene.session.lose(shuffle, gone, "its file is gone")
    scene.master.epoch = 2
    scene.session.report_losses()
    assert [lost.output.map for lost in scene.master.lost] == [2]
    assert scene.holdings.dropped == 0


def test_a_worker_that_was_lost_reports_what_the_master_still_has_of_it(scene: Scene) -> None:
    scene.master.held = [held(ShuffleId("app", 0, 1), MapAttempt(3, 0))]
    scene.master.known = False
    scene.session.rejoin(scene.session.identity)
    assert scene.holdings.dropped == 1
    scene.session.report_losses()
    assert [lost.output.map for lost in scene.master.lost] == [3]


def held(shuffle: ShuffleId, output: MapAttempt) -> pb.HeldOutput:
    return pb.HeldOutput(shuffle=messages.key_of(shuffle), output=messages.attempt_of(output))


def test_a_worker_that_is_lost_joins_before_it_asks_where_a_copy_goes(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = RemoteRegistryView("127.0.0.1:1", scene.session, Catalog(), NO_CREDENTIALS)
    with closing(view):
        monkeypatch.setattr(view._control, "call", scene.master.call)
        scene.master.epoch = 2
        assert [worker.id for worker in view.place(ShuffleId("app", 0, 1), ())] == ["other"]
    assert scene.master.joins == 2


def test_a_master_that_refuses_each_life_is_not_asked_for_ever(scene: Scene) -> None:
    def refuse(identity: Identity) -> None:
        asked.append(identity.epoch)
        raise StaleEpoch("the request is for another epoch of the master")

    asked: list[int] = []
    with pytest.raises(StaleEpoch):
        scene.session.as_joined(refuse)
    assert 2 <= len(asked) <= 10
