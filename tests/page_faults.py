"""How often the system hands zeroed pages to a process that frees large blocks and wants them again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
BLOCKS, BLOCK = 200, 1 << 20
PAGES = BLOCK // 4096

PROGRAM = f"""
import os, resource
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    held = [bytearray({BLOCK}) for _ in range(3)]
use()
before = faults()
for _ in range({BLOCKS}):
    use()
print(faults() - before, flush=True)
os._exit(0)  # servers have threads
"""


def keeps_freed_memory(first: str) -> bool:
    """Whether a process that has run the statements ``first`` does: one of its own, for what others freed counts."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", f"{first}\n{PROGRAM}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) < PAGES * 10  # not a fault for each page of each block
