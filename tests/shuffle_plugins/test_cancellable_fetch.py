"""A pull that leads nowhere ends when its output lies elsewhere, though nobody listened when it moved."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shuffle_api.errors import ServerUnreachable, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, Totals
from shuffle_plugins.remote import cancellable_fetch
from shuffle_plugins.remote.cancellable_fetch import CancellableFetch
from shuffle_plugins.remote.shuffle_events import EventListener, ShuffleEvents
from shuffle_transport.flight_client import PullStream

SHUFFLE, OUTPUT = ShuffleId("app", 1), MapAttempt(0, 0)
SECONDS = 60.0


class Desk(ShuffleEvents):
    """One at which the master has answered, and tells nothing."""

    def __init__(self) -> None:
        pass

    def listen(self, shuffle: ShuffleId, listener: EventListener) -> None:
        listener.began()

    def leave(self, shuffle: ShuffleId, listener: EventListener) -> None:
        pass


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Ends the calls to a worker that is stopped."""
    monkeypatch.setattr(cancellable_fetch, "SUBSCRIBE_SECONDS", 0.05)
    release = threading.Event()
    yield release
    release.set()


@pytest.mark.parametrize("moved", [True, False])
def test_a_pull_ends_when_its_output_had_moved_before_it_listened(release: threading.Event, moved: bool) -> None:
    looked = threading.Event()

    def start() -> PullStream:
        release.wait(SECONDS)
        raise ServerUnreachable("w", "it is stopped")

    def located() -> list[MapOutput]:
        looked.set()
        return [MapOutput(MapAttempt(1, 0), "v", Totals()), MapOutput(OUTPUT, "v" if moved else "w", Totals())]

    pull = CancellableFetch(Desk(), SHUFFLE, "w", [OUTPUT], start, located)
    if moved:
        with pytest.raises(StreamBroken, match="has left worker w"):
            next(iter(pull))
        assert not release.is_set()
        return

    def end() -> None:
        looked.wait(SECONDS)
        release.set()

    threading.Thread(target=end).start()
    with pytest.raises(ServerUnreachable):
        next(iter(pull))
