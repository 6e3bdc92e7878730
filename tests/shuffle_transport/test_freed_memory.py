"""Freed memory is used again, instead of zeroed pages from the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

BLOCKS, BLOCK = 200, 1 << 20
PAGES = BLOCK // 4096

PROGRAM = f"""
import resource, sys
from shuffle_transport.freed_memory import keep_freed_memory
if "keep" in sys.argv:
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    held = [bytearray({BLOCK}) for _ in range(3)]
use()
before = faults()
for _ in range({BLOCKS}):
    use()
print(faults() - before)
"""


def faults(*arguments: str) -> int:
    """Of a process of its own: what others have freed here counts."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_come_from_what_was_freed_before() -> None:
    kept, given_back = faults("keep"), faults()
    assert kept < PAGES * 10  # not for each block
    assert kept <= given_back
