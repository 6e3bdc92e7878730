"""A process that ends without `close` ends at once, with its own exit code, and its peers get a StreamBroken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shuffle_api.errors import StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from tests.shuffle_plugins.pipelined.exit_task import BUG, EXIT, text_of
from tests.shuffle_plugins.pipelined.scene import Scene

ROOT = Path(__file__).parents[3]
ENDS_WITHIN = 60.0
"""Seconds, on a machine that is busy; a task that waits for its peers does not end at all."""

ENDS = {"nothing": 0, "exit": EXIT, "bug": BUG, "spawned": BUG}


@pytest.fixture(params=["own port", "relayed"])
def options(request: pytest.FixtureRequest) -> dict[str, OptionValue]:
    given: dict[str, OptionValue] = {"timeout": 120.0}
    if request.param == "relayed":
        given["relay"] = request.getfixturevalue("shared_relay").address
    return given


@contextmanager
def task(role: str, how: str, handle: Any, options: Any) -> Iterator[subprocess.Popen[str]]:
    """Ready: something has passed between it and its peer."""
    command = [sys.executable, "-m", "tests.shuffle_plugins.pipelined.exit_task", role, how]
    process = subprocess.Popen(
        [*command, text_of(handle), text_of(options)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def let_end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and standard error of a task, which gets the line that ends it."""
    _, errors = process.communicate("\n", ENDS_WITHIN)
    return process.returncode, errors


def await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line + (process.stderr.read() if process.stderr else "")


@pytest.mark.parametrize("how", ENDS)
def test_a_producer_ends_and_its_reader_gets_the_reason(how: str, options: dict[str, OptionValue]) -> None:
    with Scene(1, 1, {**options, "local": False, "guarantee": "exactly_once"}) as there, there.reader() as reader:
        with task("produce", how, there.handle, options) as process:
            records = iter(reader)
            assert next(records) == (0, b"x")
            await_ready(process)
            code, errors = let_end(process)
            assert code == ENDS[how], errors
            assert ("the task has a bug" in errors) is (ENDS[how] == BUG)
            with pytest.raises(StreamBroken, match="the producer .* is lost"):
                next(records)


def test_a_reader_that_waits_for_the_next_attempt_gets_the_reason_when_none_comes() -> None:
    options: dict[str, OptionValue] = {"timeout": 10.0}
    with Scene(1, 1, {**options, "local": False}) as there, task("produce", "bug", there.handle, options) as process:
        await_ready(process)
        with there.reader() as reader:
            records = iter(reader)
            assert next(records) == (0, b"x")
            assert let_end(process)[0] == BUG
            with pytest.raises(StreamBroken, match="process .* ended without closing its shuffle plugin|is lost"):
                next(records)


def test_the_reader_goes_on_with_the_next_attempt(options: dict[str, OptionValue]) -> None:
    with Scene(1, 1, {**options, "local": False}) as there, there.reader() as reader:
        with task("produce", "bug", there.handle, options) as process:
            records = iter(reader)
            assert next(records) == (0, b"x")
            await_ready(process)
            assert let_end(process)[0] == BUG
        with there.plugin.writer(there.handle, MapAttempt(0, 1)) as writer:
            writer.write(0, b"again")
            writer.commit()
        assert list(records)[-1] == (0, b"again")


def test_what_was_committed_and_not_read_does_not_look_complete() -> None:
    options: dict[str, OptionValue] = {"timeout": 120.0, "local": False}
    with Scene(1, 1, {**options, "guarantee": "exactly_once"}) as there, there.reader() as reader:
        with task("commit", "exit", there.handle, options) as process:
            await_ready(process)
            records = iter(reader)
            assert next(records) == (0, b"x")
            code, errors = let_end(process)
            assert code == EXIT, errors
            with pytest.raises(StreamBroken):
                for _ in records:
                    pass


@pytest.mark.parametrize("how", ENDS)
def test_a_consumer_ends_and_its_writer_goes_on(how: str, options: dict[str, OptionValue]) -> None:
    with Scene(1, 1, {**options, "local": False}) as there, there.writer() as writer:
        writer.write(0, b"x")
        writer.flush()
        with task("consume", how, there.handle, options) as process:
            await_ready(process)
            code, errors = let_end(process)
            assert code == ENDS[how], errors
        writer.write(0, b"y")
        writer.commit()
        with there.reader(attempt=1) as successor:
            assert list(successor)[-1] == (0, b"y")


@pytest.mark.parametrize("how", ["exit", "bug"])
def test_a_driver_that_is_its_own_producer_and_consumer_ends(how: str, options: dict[str, OptionValue]) -> None:
    with task("drive", how, None, options) as process:
        await_ready(process)
        code, errors = let_end(process)
        assert code == ENDS[how], errors


def test_a_peer_that_does_nothing_holds_nobody_up() -> None:
    """The reader's process is stopped: it takes in no reason, and does not end its calls."""
    options: dict[str, OptionValue] = {"timeout": 120.0}
    with Scene(1, 1, {**options, "local": False}) as there:
        with task("produce", "exit", there.handle, options) as producer:
            with task("consume", "exit", there.handle, options) as consumer:
                await_ready(producer)
                await_ready(consumer)
                os.kill(consumer.pid, signal.SIGSTOP)
                began = time.monotonic()
                code, errors = let_end(producer)
                assert code == EXIT, errors
                assert time.monotonic() - began < ENDS_WITHIN
                os.kill(consumer.pid, signal.SIGCONT)


def test_a_forked_child_ends_without_its_parents_streams(options: dict[str, OptionValue]) -> None:
    with Scene(1, 1, {**options, "local": False}) as there, there.reader() as reader:
        with task("fork_and_produce", "exit", there.handle, options) as process:
            await_ready(process)
            records = iter(reader)
            assert [next(records), next(records)] == [(0, b"x"), (0, b"y")]
            assert let_end(process)[0] == EXIT
