"""`flight-shuffle server` as whoever starts it sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def test_a_server_whose_ready_line_nobody_reads_ends_and_says_why(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "shuffle_server", "server", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    try:
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    finally:
        os.close(writing)
    assert ended.returncode != 0
    assert "the ready line cannot be written" in ended.stderr


def test_a_server_that_is_told_to_stop_again_and_again_ends_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shuffle_server", "server", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready ")
        deadline = time.monotonic() + 240
        while server.poll() is None and time.monotonic() < deadline:  # also while the interpreter ends
            server.send_signal(signal.SIGTERM)
            time.sleep(0.0005)
        server.kill()
    assert server.returncode == 0
