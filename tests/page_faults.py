"""How often the system hands zeroed pages to a process that frees large blocks and wants them again, and how many
arenas the C library has in it."""

from __future__ import annotations

import os
import platform

import pytest

from tests.processes import run_apart

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


THREADS = 20 + 4 * (os.cpu_count() or 1)  # more than there are processors
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
    faults = int(run_apart(f"{first}\n{PROGRAM}", "MALLOC_").stdout.split()[-1])
    return faults < PAGES * 10  # not a fault for each page of each block


def arenas(first: str, **variables: str) -> int:
    """How many the C library has for many threads in a process that has run the statements ``first``."""
    return run_apart(f"{first}\n{ARENAS}", "MALLOC_", **variables).stderr.count("Arena ")
