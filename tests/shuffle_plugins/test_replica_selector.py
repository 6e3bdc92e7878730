"""From which worker an output is read, and from which when that one fails."""

from __future__ import annotations

import pytest

from shuffle_api.errors import MapOutputLost, Overloaded, ProtocolMismatch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, Totals
from shuffle_plugins.remote.replica_selector import MAPS_PER_PULL, ReplicaSelector

SHUFFLE = ShuffleId("app", 1)


def output(map_id: int, *workers: str, attempt: int = 0, blocks: int = 3) -> MapOutput:
    return MapOutput(MapAttempt(map_id, attempt), workers[0], Totals(blocks=blocks), tuple(workers[1:]))


def maps(selector: ReplicaSelector, worker: str) -> list[int]:
    return [each.output.map for each in selector.at(worker)]


def test_what_one_worker_holds_is_asked_of_it_at_once() -> None:
    selector = ReplicaSelector([output(0, "v"), output(1, "w"), output(2, "v")])
    assert selector.worker() == "v"
    assert maps(selector, "v") == [0, 2]
    selector.advance(selector.at("v"), 2, 0)
    assert (selector.worker(), maps(selector, "w")) == ("w", [1])
    selector.advance(selector.at("w"), 1, 0)
    assert not selector.rest


def test_a_ticket_is_bounded() -> None:
    selector = ReplicaSelector([output(n, "v") for n in range(MAPS_PER_PULL + 1)])
    assert len(selector.at("v")) == MAPS_PER_PULL


def test_the_other_holder_is_asked_for_what_a_worker_that_failed_did_not_serve() -> None:
    selector = ReplicaSelector([output(0, "v", "w"), output(1, "w", "v"), output(2, "v", "w")])
    asked = selector.at("v")
    selector.failed("v")
    selector.advance(asked, 1, 2)  # map 0 came, and two blocks of map 2
    assert (selector.worker(), selector.tried()) == ("w", False)
    assert maps(selector, "w") == [2, 1]
    assert selector.handed == 2
    selector.failed("w")
    assert selector.tried()
    assert selector.worker() == "v"


def test_a_worker_that_cannot_serve_one_output_serves_the_others() -> None:
    selector = ReplicaSelector([output(0, "v", "w"), output(1, "v")])
    selector.unfit(MapAttempt(0, 0), "v", Overloaded("v has no descriptors"))
    assert selector.worker() == "w"
    assert maps(selector, "w") == [0]
    selector.unfit(MapAttempt(0, 0), "w", Overloaded("w has none either"))
    assert selector.worker() is None
    assert selector.tried()
    assert str(selector.why_nobody()).startswith("w has none either")


def test_a_worker_that_stays_is_asked_before_one_that_drains() -> None:
    selector = ReplicaSelector([output(0, "v", "w")])
    selector.draining = {"v"}
    assert selector.worker() == "w"
    selector.failed("w")
    assert selector.worker() == "v"


def test_outputs_are_followed_where_they_went_and_no_other_attempt_takes_their_place() -> None:
    selector = ReplicaSelector([output(0, "v"), output(1, "v")])
    selector.update(SHUFFLE, {0: output(0, "w"), 1: output(1, "v")})
    assert (selector.worker(), maps(selector, "w")) == ("w", [0])
    with pytest.raises(MapOutputLost, match="maps 0-1 have been lost"):
        selector.update(SHUFFLE, {0: output(0, "w", attempt=1)})
    with pytest.raises(ProtocolMismatch, match="is said to hold"):
        selector.update(SHUFFLE, {0: output(0, "w"), 1: output(1, "w", blocks=4)})
