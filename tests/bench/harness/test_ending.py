"""A benchmark that gets SIGTERM or SIGHUP."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from bench.harness.ending import INTERRUPTED
from tests.processes import processes_that_mention


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.ingest", "--scratch", str(tmp_path), "--parts", "throughput"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as benchmark:
        try:
            wait_until(lambda: any("shuffle_server" in each for each in processes_that_mention(tmp_path)), "a server")
        finally:
            benchmark.send_signal(number)
        _, said = benchmark.communicate(timeout=120)
    assert benchmark.returncode == INTERRUPTED, said
    wait_until(lambda: processes_that_mention(tmp_path) == [], "its processes are gone")
    assert list(tmp_path.iterdir()) == []
