"""bench.harness.apart: functions in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from bench.harness.apart import at_once


def test_each_runs_in_a_process_of_its_own() -> None:
    assert at_once(os.path.join, [("a", "b"), ("c", "d")], 240) == ["a/b", "c/d"]
    assert at_once(os.getpid, [()], 240) != [os.getpid()]


def test_an_error_there_is_raised_here() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        at_once(float, [("one",)], 240)


def test_a_process_that_does_not_end_is_ended() -> None:
    with pytest.raises(multiprocessing.TimeoutError):
        at_once(time.sleep, [(3600.0,)], 0.1)
    assert multiprocessing.active_children() == []
