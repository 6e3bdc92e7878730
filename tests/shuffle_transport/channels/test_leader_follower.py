"""Who reads: the consumer that waits, and the stream's own thread whenever no consumer does."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator

import pytest

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_transport.channels import leader_follower as module
from shuffle_transport.channels.leader_follower import LeaderFollower
from shuffle_transport.channels.stream import Message, Stream
from shuffle_transport.channels.timer_thread import TimerThread
from tests.shuffle_transport.channels.helpers import TIMEOUT, eventually


class QueueStream(Stream):
    """Reads what is put into a queue: metadata, None (the end), or an error."""

    peer = "queue"

    def __init__(self) -> None:
        self.queue: queue.Queue[bytes | ShuffleError | None] = queue.Queue()

    def read(self) -> Message | None:
        found = self.queue.get(timeout=TIMEOUT)
        if isinstance(found, ShuffleError):
            raise found
        return None if found is None else (None, found)

    def write(self, message: Message) -> None: ...
    def half_close(self) -> None: ...
    def abort(self) -> None: ...
    def sever(self) -> None: ...
    def close(self) -> None: ...


class Scene:
    """A stream, its own thread, and who dispatched what. Messages of digits only are no items."""

    def __init__(self) -> None:
        self.stream, self.timers = QueueStream(), TimerThread("test-keeper")
        self.readers: list[tuple[bytes, str]] = []
        self.items: queue.Queue[bytes] = queue.Queue()
        self.active, self.needed = 0.0, False
        self.left_late = threading.Event()
        self.reading = LeaderFollower(self.stream, self.timers, self)
        self.reason: ShuffleError | None = None
        self.thread = threading.Thread(target=self.run, name="own")
        self.thread.start()

    def run(self) -> None:
        self.reason = self.reading.run()

    def dispatch(self, message: Message) -> bool:
        data = message[1]
        assert data is not None
        self.readers.append((data, threading.current_thread().name))
        if data.isdigit():
            return False
        self.items.put(data)
        return True

    def written(self) -> float:
        return self.active

    def ready(self) -> bool:
        return not self.items.empty()

    def needs_reading(self) -> bool:
        return self.needed

    def late(self) -> None:
        self.left_late.set()

    def close(self) -> None:
        self.stream.queue.put(None)
        self.wake_leader()
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()
        self.timers.close()

    def wake_leader(self) -> None:
        self.needed = True
        self.reading.wake_leader()

    def lead(self, timeout: float = TIMEOUT) -> bool:
        return self.reading.lead(time.monotonic() + timeout)

    def hand_over(self) -> None:
        """The own thread gives the lead to a consumer that waits."""
        self.reading.follow(self, leads=True)
        self.stream.queue.put(b"first")
        assert self.items.get(timeout=TIMEOUT) == b"first"
        self.reading.unfollow(self)
        eventually(lambda: not self.reading._lead.locked())


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(module, "LINGER", 1000.0)  # only tests that want the thread to come back by itself change it
    scene = Scene()
    yield scene
    scene.close()


def test_without_a_consumer_the_own_thread_reads(scene: Scene) -> None:
    for message in (b"a", b"1", b"b"):
        scene.stream.queue.put(message)
    eventually(lambda: scene.readers == [(b"a", "own"), (b"1", "own"), (b"b", "own")])
    assert not scene.lead()


def test_a_consumer_that_waits_gets_the_lead_and_reads_for_itself(scene: Scene) -> None:
    scene.hand_over()
    scene.stream.queue.put(b"7")
    scene.stream.queue.put(b"second")
    assert scene.lead()
    here = threading.current_thread().name
    assert scene.readers == [(b"first", "own"), (b"7", here), (b"second", here)]


def test_a_state_message_does_not_take_the_lead_from_the_own_thread(scene: Scene) -> None:
    scene.reading.follow(scene, leads=True)
    scene.stream.queue.put(b"7")
    eventually(lambda: scene.readers == [(b"7", "own")])
    scene.stream.queue.put(b"item")
    assert scene.items.get(timeout=TIMEOUT) == b"item"
    assert scene.readers[-1:] == [(b"item", "own")]


def test_a_consumer_that_cannot_lead_does_not_take_the_lead_from_the_own_thread(scene: Scene) -> None:
    scene.reading.follow(scene, leads=False)
    scene.stream.queue.put(b"item")
    assert scene.items.get(timeout=TIMEOUT) == b"item"
    scene.stream.queue.put(b"next")
    eventually(lambda: scene.readers == [(b"item", "own"), (b"next", "own")])


def test_while_this_end_sends_and_nobody_waits_nobody_reads(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.active = time.monotonic()
    scene.stream.queue.put(b"1")
    eventually(lambda: not scene.reading._lead.locked())
    scene.stream.queue.put(b"2")
    scene.wake_leader()
    eventually(lambda: scene.readers == [(b"1", "own"), (b"2", "own")])


def test_the_own_thread_reads_again_when_this_end_no_longer_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.01)
    scene = Scene()
    scene.active = time.monotonic()
    for message in (b"1", b"2"):
        scene.stream.queue.put(message)
    eventually(lambda: scene.readers == [(b"1", "own"), (b"2", "own")])
    scene.close()


def test_the_own_thread_reads_now_and_then_though_this_end_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.01)
    monkeypatch.setattr(module, "STAND_BY", 0.05)
    scene = Scene()
    scene.active = math.inf
    for message in (b"1", b"2", b"3"):
        scene.stream.queue.put(message)
    eventually(lambda: [data for data, _ in scene.readers] == [b"1", b"2", b"3"])
    scene.close()


def test_somebody_who_waits_for_what_comes_summons_the_own_thread(scene: Scene) -> None:
    scene.hand_over()
    scene.stream.queue.put(b"1")
    scene.wake_leader()
    eventually(lambda: scene.readers[-1:] == [(b"1", "own")])


def test_who_is_summoned_while_a_consumer_leads_comes_when_it_leaves(scene: Scene) -> None:
    scene.hand_over()
    leading = threading.Thread(target=scene.lead)
    leading.start()
    eventually(lambda: scene.reading._lead.locked())
    scene.wake_leader()
    scene.stream.queue.put(b"item")
    leading.join(TIMEOUT)
    scene.stream.queue.put(b"1")
    eventually(lambda: scene.readers[-1:] == [(b"1", "own")])


def test_who_begins_to_wait_while_the_own_thread_leaves_is_not_left_alone(scene: Scene) -> None:
    asked: list[bool] = []

    def needed() -> bool:
        asked.append(len(asked) > 0)  # the first time, when it decides to leave, nobody waits yet
        return asked[-1]

    scene.needs_reading = needed  # type: ignore[method-assign]
    scene.reading.follow(scene, leads=True)
    scene.stream.queue.put(b"item")
    assert scene.items.get(timeout=TIMEOUT) == b"item"
    scene.stream.queue.put(b"1")
    eventually(lambda: scene.readers == [(b"item", "own"), (b"1", "own")])


def test_a_consumer_that_comes_while_the_own_thread_leaves_is_read_for(scene: Scene) -> None:
    scene.reading.follow("first", leads=True)
    dispatch = scene.dispatch

    def dispatch_and_follow(message: Message) -> bool:
        scene.reading.follow("second", leads=False)  # finds the lead taken
        return dispatch(message)

    scene.dispatch = dispatch_and_follow  # type: ignore[method-assign]
    scene.stream.queue.put(b"item")
    assert scene.items.get(timeout=TIMEOUT) == b"item"
    scene.reading.unfollow("first")
    scene.stream.queue.put(b"next")
    eventually(lambda: scene.readers == [(b"item", "own"), (b"next", "own")])


def test_who_waits_for_what_is_no_item_reads_until_it_is_there(scene: Scene) -> None:
    scene.hand_over()
    here, granted = threading.current_thread().name, threading.Event()
    for message in (b"1", b"item", b"2"):
        scene.stream.queue.put(message)
    assert scene.reading.lead(time.monotonic() + TIMEOUT, lambda: scene.readers[-1] == (b"2", here))
    assert scene.readers[1:] == [(b"1", here), (b"item", here), (b"2", here)]
    granted.set()
    assert scene.reading.lead(time.monotonic() + TIMEOUT, granted.is_set)  # it is there: nothing is read
    assert len(scene.readers) == 4


def test_when_no_consumer_comes_back_the_own_thread_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 1.0)  # `hand_over` has to see that the thread has left
    scene = Scene()
    scene.hand_over()
    scene.stream.queue.put(b"second")
    eventually(lambda: scene.readers[-1][0] == b"second")
    assert scene.lead() in (False, True)
    scene.items.get(timeout=TIMEOUT)
    scene.stream.queue.put(b"third")
    eventually(lambda: scene.readers[-1:] == [(b"third", "own")])
    scene.close()


def test_the_keeper_is_told_of_a_consumer_that_reads_beyond_its_deadline(scene: Scene) -> None:
    scene.hand_over()
    leading = threading.Thread(target=scene.lead, args=(0.05,))
    leading.start()
    assert scene.left_late.wait(TIMEOUT)
    assert leading.is_alive()  # only a message ends its read
    scene.stream.queue.put(b"1")
    leading.join(TIMEOUT)
    assert not leading.is_alive()


def test_who_finds_the_lead_taken_leaves_the_readers_deadline_alone(scene: Scene) -> None:
    scene.hand_over()
    leading = threading.Thread(target=scene.lead, args=(0.2,))
    leading.start()
    eventually(lambda: scene.reading._lead.locked())
    assert not scene.lead()
    assert scene.left_late.wait(TIMEOUT)
    scene.stream.queue.put(b"item")
    leading.join(TIMEOUT)


def test_a_consumer_that_left_in_time_is_not_late(scene: Scene) -> None:
    scene.hand_over()
    for message in (b"item", b"another"):
        scene.stream.queue.put(message)
        assert scene.lead(0.05)
        scene.items.get(timeout=TIMEOUT)
    assert not scene.left_late.wait(0.1)


def test_the_end_is_told_by_the_own_thread_whoever_reads_it(scene: Scene) -> None:
    scene.hand_over()
    scene.stream.queue.put(StreamBroken("cut"))
    assert scene.lead()
    scene.thread.join(TIMEOUT)
    assert str(scene.reason).startswith("cut")
    assert not scene.lead()


def test_a_half_close_of_the_other_end_is_an_end(scene: Scene) -> None:
    scene.stream.queue.put(None)
    scene.thread.join(TIMEOUT)
    assert "stopped before the end message" in str(scene.reason)
