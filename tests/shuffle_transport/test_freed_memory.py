"""Freed memory is used again, instead of zeroed pages from the system, in every process that receives."""

from __future__ import annotations

import os

import pytest

from tests.page_faults import arenas, keeps_freed_memory, only_glibc
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
