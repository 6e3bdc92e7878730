"""One PostgreSQL server for all schedules with masters that stand by; started when one needs it."""

from __future__ import annotations

import atexit
import threading
from contextlib import ExitStack

from tests.shuffle_server.master.database import Database, running_database

_lock = threading.Lock()
_running: list[Database] = []
_stack = ExitStack()
atexit.register(_stack.close)


def fresh() -> str:
    """The URL of a new database."""
    with _lock:
        if not _running:
            _running.append(_stack.enter_context(running_database()))
        return _running[0].fresh()
