"""Where outputs go in a cluster of ten thousand workers: counts of what is looked at, without processes or clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random

import pytest

from shuffle_api.errors import StaleEpoch
from shuffle_api.registry import LoseWorker, RegisterApp, RegisterShuffle
from shuffle_api.values import ShuffleSpec, WorkerInfo
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.control import ControlService
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.master.placement import CANDIDATES, CHOICES, Placed, Placement, Wish
from shuffle_server.master.worker_record import ROOMY_BYTES, Tier, WorkerRecord
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.master.scene import SHUFFLE

WORKERS = 10_000
OUTPUTS = 20_000
LARGEST_ANSWER = 1024
ANY = Wish()


class Scene:
    """Workers w0, w1, ..., five on each machine, racks of a hundred."""

    def __init__(self, workers: int, random: Random | None = None) -> None:
        self.silent: set[str] = set()
        self.moved: list[str] = []
        self.placement = Placement(
            random or Random(7),
            lambda record: record.info.id in self.silent,
            lambda record: self.moved.append(record.info.id),
        )
        self.records = [WorkerRecord(info(number), 0, 0, 2) for number in range(workers)]
        for record in self.records:
            self.placement.put(record, Tier.ROOMY)

    def pick(self, wish: Wish = ANY) -> Placed:
        before = self.placement.looked
        placed = self.placement.pick(wish)
        assert self.placement.looked - before <= 10 * CHOICES + 3 * len(wish.avoid)
        assert len(placed.candidates) <= CANDIDATES
        return placed

    def ids(self, wish: Wish = ANY) -> list[str]:
        return [record.info.id for record in self.pick(wish).candidates]


def info(number: int) -> WorkerInfo:
    labels = (f"rack=r{number // 100}", f"zone=z{number % 2}")
    return WorkerInfo(f"w{number}", f"h{number // 5}", 1, ROOMY_BYTES, 1, labels)


@pytest.fixture(scope="module")
def large() -> Scene:
    return Scene(WORKERS)


def test_a_choice_looks_at_few_of_ten_thousand_workers_and_the_load_is_even(large: Scene) -> None:
    before = large.placement.looked
    for _ in range(OUTPUTS):
        large.pick()
    assert large.placement.looked - before <= OUTPUTS * CHOICES
    loads = Counter(record.placed for record in large.records)
    assert sum(load * count for load, count in loads.items()) == OUTPUTS * CANDIDATES
    assert max(loads) <= OUTPUTS * CANDIDATES / WORKERS + 3
    assert min(loads) >= 1


def test_of_as_few_workers_as_choices_all_are_looked_at() -> None:
    scene = Scene(CHOICES)
    for number, record in enumerate(scene.records):
        record.placed = number
    assert scene.ids() == ["w0", "w1", "w2"]


def test_draining_silent_and_full_workers_are_not_chosen_while_there_are_others() -> None:
    scene = Scene(1000)
    for record in scene.records[:300]:
        scene.placement.put(record, None)
    for record in scene.records[300:600]:
        scene.placement.put(record, Tier.FULL)
    scene.silent = {record.info.id for record in scene.records[600:900]}
    good = {record.info.id for record in scene.records[900:]}
    for _ in range(300):
        placed = scene.pick()
        assert {record.info.id for record in placed.candidates[: placed.in_turn]} <= good
    chosen = {id for _ in range(1000) for id in scene.ids()}  # those that are silent have been noticed by now
    assert chosen == good
    assert set(scene.moved) <= scene.silent
    scene.silent |= chosen
    for _ in range(100):
        scene.pick()
    left = {id for _ in range(200) for id in scene.ids()}
    assert left <= {record.info.id for record in scene.records[300:600]}


def test_a_worker_that_takes_nothing_is_in_no_answer() -> None:
    scene = Scene(2)
    for record in scene.records:
        scene.placement.put(record, None)
    assert scene.pick() == Placed([], 0, False)
    assert len(scene.placement) == 0


def test_workers_to_avoid_come_last_however_many_there_are(large: Scene) -> None:
    for few in (Scene(5), large):
        avoid = frozenset(record.info.id for record in few.records[:900])
        ids = few.ids(Wish(avoid=avoid))
        assert len(ids) == CANDIDATES
        assert bool(avoid & set(ids)) == (few is not large)
    scene = Scene(5)
    assert scene.ids(Wish(avoid=frozenset({"w0", "w1", "w2", "w3"})))[0] == "w4"


def test_the_maps_own_host_comes_first_then_its_label_then_all_others(large: Scene) -> None:
    placed = large.pick(Wish(host="h7", near="rack=r9"))
    assert {record.info.host for record in placed.candidates} == {"h7"}
    assert placed.in_turn == CANDIDATES
    avoid = frozenset(f"w{number}" for number in range(36, 40))
    placed = large.pick(Wish(host="h7", near="rack=r9", avoid=avoid))
    assert [record.info.id for record in placed.candidates[: placed.in_turn]] == ["w35"]
    assert {record.info.label("rack") for record in placed.candidates[1:]} == {"r9"}
    placed = large.pick(Wish(host="h7", near="rack=none", avoid=avoid))
    assert len(placed.candidates) == CANDIDATES


def test_an_application_that_is_held_to_a_label_gets_no_other_worker(large: Scene) -> None:
    for wish in (Wish(only="rack=r3"), Wish(host="h7", near="zone=z1", only="rack=r3")):
        for _ in range(100):
            assert {record.info.label("rack") for record in large.pick(wish).candidates} == {"r3"}
    assert {record.info.label("zone") for record in large.pick(wish).candidates} == {"z1"}
    every = frozenset(record.info.id for record in large.records if record.info.label("rack") == "r3")
    assert set(large.ids(Wish(only="rack=r3", avoid=every))) <= every
    assert large.ids(Wish(only="rack=none")) == []


def test_a_copy_goes_to_another_value_of_the_label_even_if_nearly_all_workers_have_the_same() -> None:
    scene = Scene(0)
    for number in range(500):
        labels = ("rack=b",) if number == 77 else ("rack=a",)
        record = WorkerRecord(WorkerInfo(f"w{number}", f"h{number}", 1, ROOMY_BYTES, 1, labels), 0, 0, 2)
        scene.placement.put(record, Tier.ROOMY)
    holder = WorkerInfo("w1", "h1", 1, labels=("rack=a",))
    apart = Wish(avoid=frozenset({"w1"}), apart=(holder, ("rack", "host")))
    assert all(scene.ids(apart)[0] == "w77" for _ in range(50))
    without = Wish(avoid=frozenset({"w1", "w77"}), apart=(holder, ("rack", "host")))
    assert "w1" not in scene.ids(without)


def test_a_copy_goes_to_another_machine_and_to_one_with_room() -> None:
    scene = Scene(8)
    scene.records[5].placed = 9
    for record in scene.records[6:]:
        record.info = WorkerInfo(record.info.id, record.info.host, 1, ROOMY_BYTES - 1)
    wish = Wish(avoid=frozenset({"w0"}), apart=(info(0), ("host",)))
    assert scene.ids(wish)[0] == "w5"


@contextmanager
def serving(workers: int) -> Iterator[tuple[Master, ControlService]]:
    """A master of so many workers and one shuffle."""
    with closing(Master(None)) as master:
        master.apply_all([RegisterApp("app", "i", ""), RegisterShuffle(ShuffleSpec(SHUFFLE, 4, 2))])
        membership = Membership(master, 60.0)
        for number in range(workers):
            membership.join(info(number))
        yield master, ControlService(master, Cluster(membership, None), "0", 1)


def test_an_answer_stays_small_and_holds_for_a_while() -> None:
    with serving(50) as (_, service):
        request = pb.PlaceRequest(shuffle=messages.key_of(SHUFFLE), host="elsewhere")
        reply = service.Place(request)
        assert (len(reply.workers), reply.in_turn) == (CANDIDATES, CANDIDATES)
        assert reply.good_for_ms > 0
        assert reply.ByteSize() <= LARGEST_ANSWER
        request.avoid.extend(worker.id for worker in reply.workers)
        assert not {worker.id for worker in service.Place(request).workers} & set(request.avoid)


def test_a_worker_that_is_lost_joins_before_it_is_told_where_a_copy_goes() -> None:
    with serving(2) as (master, service):
        request = pb.PlaceRequest(shuffle=messages.key_of(SHUFFLE), copy_from="w0")
        assert len(service.Place(request).workers) == 2
        master.apply_all([LoseWorker("w0", "silent")])
        with pytest.raises(StaleEpoch, match="w0"):
            service.Place(request)


def test_pools_are_gone_with_their_workers() -> None:
    scene = Scene(30)
    for _ in range(2):
        for record in scene.records:
            scene.placement.put(record, Tier.SILENT)
    for record in scene.records:
        scene.placement.put(record, None)
    assert not scene.placement._pools
    assert not scene.placement._values


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_tiers_in_any_order_leave_each_worker_in_one_tier(seed: int) -> None:
    random = Random(seed)
    scene = Scene(40, random)
    for _ in range(400):
        record = random.choice(scene.records)
        scene.placement.put(record, random.choice([None, *Tier]))
    pools = scene.placement._pools
    for tier in Tier:
        wanted = {record.info.id for record in scene.records if record.tier is tier}
        pool = pools.get((tier, "", ""))
        assert (set(pool.draw(random, 100)) if pool else set()) == wanted
