"""bench.harness.process: processor time of a process and of its threads."""

import os
import threading
import time

import pytest

from bench.harness import process


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_cpu_seconds_counts_work_and_not_sleep() -> None:
    start = process.cpu_seconds(os.getpid())
    burn(0.3)
    worked = process.cpu_seconds(os.getpid()) - start
    start = process.cpu_seconds(os.getpid())
    time.sleep(0.3)
    slept = process.cpu_seconds(os.getpid()) - start
    assert worked >= 0.25
    assert slept < worked


def test_cpu_by_thread_name_sums_the_threads_of_a_name_without_their_numbers() -> None:
    ended = threading.Event()

    def work(number: int) -> None:
        with open("/proc/thread-self/comm", "w") as name:
            name.write(f"burner-{number}")
        burn(0.15)
        ended.wait(240)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    while process.cpu_by_thread_name(os.getpid()).get("burner", 0) < 0.25:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ended.set()
    for thread in threads:
        thread.join()


def test_cpu_seconds_of_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        process.cpu_seconds(2**22 + 1)
