"""Answers of Locate: pages whose size does not grow with what the shuffle has lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    CommitMapOutput,
    LoseMapOutput,
    LoseWorkerOutputs,
    Operation,
    RegisterShuffle,
    RegisterWorker,
)
from shuffle_api.values import ShuffleSpec, WorkerInfo
from shuffle_server.master import control as control_module
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.control import ControlService
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.master.scene import BEGIN, SHUFFLE, commit

MAPS = 40
HELD = {0, 17, 18, 39}


@pytest.fixture
def service() -> Iterator[ControlService]:
    with closing(Master(None)) as master:
        lost = [LoseMapOutput(SHUFFLE, MapAttempt(map, 0), "gone") for map in range(MAPS) if map not in HELD]
        master.apply_all([*BEGIN, *map(commit, range(MAPS)), *lost])
        yield ControlService(master, Cluster(Membership(master, 60), None), "0", 1)


def pages(service: ControlService, size: int) -> Iterator[pb.LocateReply]:
    first, more = 0, True
    while more:
        reply = service.Locate(pb.LocateRequest(shuffle=messages.key_of(SHUFFLE), first_map=first, page=size))
        yield reply
        first, more = reply.next_map, reply.more


@pytest.mark.parametrize(("asked", "most"), [(1, 1), (3, 3), (10**6, 7), (0, 7), (MAPS, 7)])
def test_a_page_is_bounded_whatever_was_lost(
    service: ControlService, asked: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "MAX_PAGE", 7)
    found = list(pages(service, asked))
    assert [len(page.outputs) + len(page.lost) for page in found[:-1]] == [most] * (len(found) - 1)
    assert len(found[-1].outputs) + len(found[-1].lost) <= most
    assert {output.output.map for page in found for output in page.outputs} == HELD
    assert [output.output.map for page in found for output in page.lost] == sorted(set(range(MAPS)) - HELD)


def test_the_list_is_not_sent_again_until_it_changes(service: ControlService) -> None:
    def ask(known: pb.LocateReply) -> pb.LocateReply:
        key = messages.key_of(SHUFFLE)
        return service.Locate(
            pb.LocateRequest(shuffle=key, known_epoch=known.epoch, known_version=known.version, end_map=MAPS)
        )

    first = ask(pb.LocateReply())
    again = ask(first)
    assert (len(first.outputs), first.unchanged) == (len(HELD), False)
    assert (list(again.outputs), list(again.lost), again.unchanged, again.more) == ([], [], True, False)
    assert (again.generation, again.partitions) == (first.generation, first.partitions)
    assert len(ask(pb.LocateReply(epoch=first.epoch + 1, version=first.version)).outputs) == len(HELD)
    won = commit(1, 7).output
    changes: list[Operation] = [
        CommitMapOutput(SHUFFLE, won),
        RegisterWorker(WorkerInfo("v", "h", 2)),
        CommitMapOutput(SHUFFLE, won.at("v")),
        LoseMapOutput(SHUFFLE, won.output, "gone", "w"),
        LoseWorkerOutputs(SHUFFLE, "v", "gone", 1, 2),
    ]
    expected = [["w"], ["w"], ["w", "v"], ["v"], []]
    for change, workers in zip(changes, expected, strict=True):
        service.master.apply(change)
        reply = ask(first)
        assert reply.unchanged == isinstance(change, RegisterWorker)
        if not reply.unchanged:
            of_one = [each for each in reply.outputs if each.output.map == 1]
            assert [worker for each in of_one for worker in (each.worker, *each.copies)] == workers
            first = reply


def test_a_shuffle_without_outputs_has_no_version_and_another_one_has_not_the_same(service: ControlService) -> None:
    others = [ShuffleId("app", number) for number in (2, 3)]
    for id in others:
        service.master.apply(RegisterShuffle(ShuffleSpec(id, 1, 1)))
        assert service.master.registry.version(id) == 0
        service.master.apply(CommitMapOutput(id, commit(0).output))
    assert len({service.master.registry.version(id) for id in (SHUFFLE, *others)}) == 3
