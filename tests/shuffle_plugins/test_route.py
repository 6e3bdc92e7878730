"""From which worker an output is read, and from which when that one fails."""

from __future__ import annotations

import pytest

from shuffle_api.errors import MapOutputLost, Overloaded, ProtocolMismatch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, Totals
from shuffle_plugins.remote.route import MAPS_PER_PULL, Route

SHUFFLE = ShuffleId("app", 1)


def output(map_id: int, *workers: str, attempt: int = 0, blocks: int = 3) -> MapOutput:
    return MapOutput(MapAttempt(map_id, attempt), workers[0], Totals(blocks=blocks), tuple(workers[1:]))


def maps(route: Route, worker: str) -> list[int]:
    return [each.output.map for each in route.at(worker)]


def test_what_one_worker_holds_is_asked_of_it_at_once() -> None:
    route = Route([output(0, "v"), output(1, "w"), output(2, "v")])
    assert route.worker() == "v"
    assert maps(route, "v") == [0, 2]
    route.advance(route.at("v"), 2, 0)
    assert (route.worker(), maps(route, "w")) == ("w", [1])
    route.advance(route.at("w"), 1, 0)
    assert not route.rest


def test_a_ticket_is_bounded() -> None:
    route = Route([output(n, "v") for n in range(MAPS_PER_PULL + 1)])
    assert len(route.at("v")) == MAPS_PER_PULL


def test_the_other_holder_is_asked_for_what_a_worker_that_failed_did_not_serve() -> None:
    route = Route([output(0, "v", "w"), output(1, "w", "v"), output(2, "v", "w")])
    asked = route.at("v")
    route.failed("v")
    route.advance(asked, 1, 2)  # map 0 came, and two blocks of map 2
    assert (route.worker(), route.tried()) == ("w", False)
    assert maps(route, "w") == [2, 1]
    assert route.handed == 2
    route.failed("w")
    assert route.tried()
    assert route.worker() == "v"


def test_a_worker_that_cannot_serve_one_output_serves_the_others() -> None:
    route = Route([output(0, "v", "w"), output(1, "v")])
    route.unfit(MapAttempt(0, 0), "v", Overloaded("v has no descriptors"))
    assert route.worker() == "w"
    assert maps(route, "w") == [0]
    route.unfit(MapAttempt(0, 0), "w", Overloaded("w has none either"))
    assert route.worker() is None
    assert route.tried()
    assert str(route.why_nobody()).startswith("w has none either")


def test_a_worker_that_stays_is_asked_before_one_that_drains() -> None:
    route = Route([output(0, "v", "w")])
    route.draining = {"v"}
    assert route.worker() == "w"
    route.failed("w")
    assert route.worker() == "v"


def test_outputs_are_followed_where_they_went_and_no_other_attempt_takes_their_place() -> None:
    route = Route([output(0, "v"), output(1, "v")])
    route.update(SHUFFLE, {0: output(0, "w"), 1: output(1, "v")})
    assert (route.worker(), maps(route, "w")) == ("w", [0])
    with pytest.raises(MapOutputLost, match="maps 0-1 have been lost"):
        route.update(SHUFFLE, {0: output(0, "w", attempt=1)})
    with pytest.raises(ProtocolMismatch, match="is said to hold"):
        route.update(SHUFFLE, {0: output(0, "w"), 1: output(1, "w", blocks=4)})
