"""What becomes of the files of a worker that starts, by what the master answers to their commits."""

from __future__ import annotations

from typing import Any

import pytest

from shuffle_api.errors import AttemptSuperseded, ShuffleError, StaleEpoch, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, Totals
from shuffle_server.master.client import Identity
from shuffle_server.store.format import Description
from shuffle_server.worker.recovery import recover_remote

ID = ShuffleId("app", 0, 1)


class Scene:
    """A store, a session with the master and a view of its registry."""

    def __init__(self, *outcomes: ShuffleError | None) -> None:
        self.identity, self.catalog = Identity(1, "w", 1), self
        self.recovery, self.complete = self, True
        self.outcomes, self.deleted, self.lost = outcomes, list[MapAttempt](), list[MapAttempt]()

    def start(self) -> None:
        found = [Description("app", 0, 1, map, 0, 4, "lz4", Totals()) for map in range(len(self.outcomes))]
        all: Any = self
        recover_remote(all, all, all, found)

    def commit_all(self, shuffle: ShuffleId, outputs: list[MapOutput]) -> list[MapOutput | ShuffleError]:
        return [outcome or output for outcome, output in zip(self.outcomes, outputs, strict=True)]

    def remove_output(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        self.deleted.append(output)

    def holds(self, shuffle: ShuffleId, output: MapAttempt) -> bool:
        return output not in self.deleted

    def held(self) -> list[tuple[ShuffleId, MapAttempt]]:
        return [(ID, MapAttempt(map, 0)) for map in range(len(self.outcomes))]

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        self.lost.append(output)

    def report_losses(self) -> None: ...


def test_what_lost_to_another_attempt_is_deleted_and_the_rest_stays() -> None:
    scene = Scene(None, AttemptSuperseded("another has won"), None)
    scene.start()
    assert scene.deleted == scene.lost == [MapAttempt(1, 0)]


@pytest.mark.parametrize("error", [StaleEpoch("lost meanwhile"), StorageFailed("the log is full")])
def test_an_answer_that_says_nothing_of_an_output_deletes_nothing(error: ShuffleError) -> None:
    scene = Scene(None, error, None)
    with pytest.raises(type(error)):
        scene.start()
    assert scene.deleted == scene.lost == []
