"""Answers of Locate: pages whose size does not grow with what the shuffle has lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from shuffle_api.ids import MapAttempt
from shuffle_api.registry import LoseMapOutput
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
