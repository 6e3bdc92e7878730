"""Freed memory is used again, instead of zeroed pages from the system, in every process that receives."""

from __future__ import annotations

import os

import pytest

from tests.page_faults import arenas, keeps_freed_memory, only_glibc
from tests.processes import run_apart
from tests.shuffle_transport.users import USERS

pytestmark = only_glibc


@pytest.mark.parametrize("user", USERS.values(), ids=USERS.keys())
def test_who_receives_keeps_it(user: str) -> None:
    assert keeps_freed_memory(user)


def test_others_do_not() -> None:
    assert not keeps_freed_memory("import shuffle_transport.channels")


def test_its_threads_share_an_arena_for_each_processor() -> None:
    channels = USERS["channels"]
    assert arenas(channels) <= (os.cpu_count() or 1) < arenas("import shuffle_transport.channels")
    assert arenas(channels, MALLOC_ARENA_MAX="7") == 7


GIVEN_BACK = """
import os
from shuffle_transport.freed_memory import give_back_freed_memory, keep_freed_memory
keep_freed_memory()  # from here on, blocks of 1 MiB lie beside each other
blocks = [b"x" * (1 << 20) for _ in range(200)]
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
whole = resident()
del blocks[::2]
between = resident()
give_back_freed_memory()
print(whole - between, between - resident())
"""


def test_memory_between_what_is_in_use_is_given_back_when_asked() -> None:
    kept, given_back = map(int, run_apart(GIVEN_BACK, "MALLOC_").stdout.split())
    assert kept < 50 < 90 <= given_back
