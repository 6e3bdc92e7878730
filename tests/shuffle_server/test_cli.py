"""`flight-shuffle server` as whoever starts it sees it."""

from __future__ import annotations

import os
import subprocess
import sys
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
