"""A task survives whatever its action raises; a stream's thread leaves no end without a reason."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shuffle_api.errors import InternalError, ShuffleError, StreamBroken
from shuffle_api.periodic import PeriodicTask, StreamThread, aside, guarded, task_states

SOON = 10.0


class Script:
    """An action that takes one of its steps at each call, then does nothing."""

    def __init__(self, *steps: object) -> None:
        self._steps = list(steps)
        self.calls: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._count = 0

    def __call__(self) -> float | None:
        self._count += 1
        self.calls.put(self._count)
        step = self._steps.pop(0) if self._steps else None
        if isinstance(step, BaseException):
            raise step
        assert step is None or isinstance(step, float)
        return step

    def await_call(self, number: int) -> None:
        while self.calls.get(timeout=SOON) < number:
            pass


@pytest.fixture
def task() -> Iterator[Callable[..., PeriodicTask]]:
    tasks = []

    def start(action: Callable[[], float | None], period: float = 0.01, *, at_once: bool = False) -> PeriodicTask:
        tasks.append(PeriodicTask("test-task", action, period, at_once=at_once))
        tasks[-1].start()
        return tasks[-1]

    yield start
    for each in tasks:
        assert each.close(SOON)
        assert not each.is_alive()


def await_state(task: PeriodicTask, *, failing: bool) -> None:
    deadline = time.monotonic() + SOON
    while bool(task.state().reason) is not failing:
        assert time.monotonic() < deadline, task.state()
        time.sleep(0.005)


def test_it_goes_on_after_an_exception_and_is_failing_until_a_call_succeeds(task: Callable[..., PeriodicTask]) -> None:
    release = threading.Event()
    steps = iter([RuntimeError("a bug"), MemoryError("no room")])

    def action() -> None:
        for step in steps:
            raise step
        release.wait(SOON)

    running = task(action)
    await_state(running, failing=True)
    deadline = time.monotonic() + SOON
    while "MemoryError: no room" not in running.state().reason:
        assert time.monotonic() < deadline
    state = running.state()
    assert state.failures == 2
    assert state.failing_seconds > 0
    release.set()
    await_state(running, failing=False)
    assert running.state().failures == 2
    assert running.is_alive()


def test_each_kind_of_exception_is_logged_once(
    task: Callable[..., PeriodicTask], caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(*[ValueError(f"number {n}") for n in range(5)], KeyError("other"))
    with caplog.at_level(logging.ERROR, "shuffle_api.periodic"):
        task(script)
        script.await_call(8)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, KeyError]
    assert "test-task failed; it goes on in 0.01 s" in caplog.text


def test_a_task_that_is_woken_does_not_wait_for_its_period(task: Callable[..., PeriodicTask]) -> None:
    script = Script()
    running = task(script, period=3600.0)
    running.wake()
    script.await_call(1)
    running.wake()
    script.await_call(2)


def test_waking_does_not_shorten_the_pause_after_an_exception(task: Callable[..., PeriodicTask]) -> None:
    script = Script(ValueError("a bug"))
    running = task(script, period=3600.0, at_once=True)
    await_state(running, failing=True)
    running.wake()
    with pytest.raises(queue.Empty):
        while True:
            script.calls.get(timeout=0.2)
    assert running.state().failures == 1


def test_the_action_says_when_it_is_called_again(task: Callable[..., PeriodicTask]) -> None:
    script = Script(0.0, 0.0, 3600.0)
    task(script, period=3600.0, at_once=True)
    script.await_call(3)


def test_close_does_not_wait_longer_than_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    running = PeriodicTask("stuck-task", lambda: release.wait(SOON) and None, 0.001)
    running.start()
    time.sleep(0.05)
    assert not running.close(0.05)
    assert "stuck-task has not ended within 0.05 s" in caplog.text
    release.set()
    assert running.close(SOON)


def test_an_action_may_close_its_own_task() -> None:
    running = PeriodicTask("leaving-task", lambda: running.close() and None, 0.001)
    running.start()
    deadline = time.monotonic() + SOON
    while running.is_alive():
        assert time.monotonic() < deadline


def test_a_closed_task_does_not_start() -> None:
    running = PeriodicTask("late-task", Script(), 0.001)
    assert running.close()
    running.start()
    assert not running.is_alive()


def test_the_states_of_the_process_are_those_of_the_tasks_that_run(task: Callable[..., PeriodicTask]) -> None:
    running = task(Script(ValueError("a bug")), period=3600.0, at_once=True)
    await_state(running, failing=True)
    [state] = [state for state in task_states() if state.name == "test-task"]
    assert state.reason == "ValueError: a bug"
    running.close(SOON)
    assert [state for state in task_states() if state.name == "test-task"] == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_shows() -> None:
    running = PeriodicTask("ended-task", Script(KeyboardInterrupt()), 0.001)
    running.start()
    await_state(running, failing=True)
    assert running.state().reason == "its thread has ended"
    running.close(SOON)


def test_the_ends_of_a_stream_get_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    broke: list[ShuffleError] = []
    guarded("the reader", Script(StreamBroken("cut")), broke.append)
    assert caplog.records == []
    thread = StreamThread("test-stream", Script(ZeroDivisionError("a bug")), broke.append)
    thread.start()
    thread.join(SOON)
    guarded("the writer", Script(), broke.append)
    assert [type(error) for error in broke] == [StreamBroken, InternalError]
    assert broke[1].message == "test-stream failed: ZeroDivisionError: a bug"
    assert "test-stream failed" in caplog.text
    assert thread.daemon


def test_call_aside_returns_or_raises_and_may_hang() -> None:
    assert aside("test", lambda: 7).result(SOON) == 7

    def broken() -> int:
        raise StreamBroken("why")

    with pytest.raises(StreamBroken, match="why"):
        aside("test", broken).result(SOON)
    go_on = threading.Event()
    hung = aside("test", lambda: go_on.wait(SOON))
    with pytest.raises(TimeoutError):
        hung.result(0.01)
    go_on.set()
    assert hung.result(SOON)
