"""How often the system hands zeroed pages to a process that frees large blocks and wants them again, and how many
arenas the C library has in it."""

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


THREADS = 40
ARENAS = f"""
import ctypes, os, threading
together = threading.Barrier({THREADS})
def use():
    together.wait()
    held = bytearray(5000)
    together.wait()
threads = [threading.Thread(target=use) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
os._exit(0)
"""


def keeps_freed_memory(first: str) -> bool:
    """Whether a process that has run the statements ``first`` does: one of its own, for what others freed counts."""
    return int(_run(f"{first}\n{PROGRAM}").stdout.split()[-1]) < PAGES * 10  # not a fault for each page of each block


def arenas(first: str, **variables: str) -> int:
    """How many the C library has for 40 threads in a process that has run the statements ``first``."""
    return _run(f"{first}\n{ARENAS}", **variables).stderr.count("Arena ")


def _run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done
