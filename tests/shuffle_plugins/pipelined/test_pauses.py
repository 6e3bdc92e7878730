"""Processes that stand still for longer than three keepalives."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.processes import stopped


def test_a_paused_driver_does_not_end_the_job_of_its_tasks() -> None:
    command = [sys.executable, "-m", "tests.shuffle_plugins.pipelined.paused_driver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "began\n"
            with stopped(driver.pid):
                time.sleep(4.0)
            said, _ = driver.communicate(timeout=120)
        finally:
            driver.kill()
    assert sorted(said.splitlines()) == ["consumed True", "produced"]
    assert driver.returncode == 0
