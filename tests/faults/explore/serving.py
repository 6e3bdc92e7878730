"""A server's process: hooks for faults are installed in it, then `flight-shuffle` runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import shuffle_server.server  # noqa: F401  (loaded before the fork)
from shuffle_server.cli import main
from tests.faults.explore import inject, planted
from tests.faults.explore.processes import become


def serve(arguments: Sequence[str], log: Path, ready: Path, rules: Path, bugs: Sequence[str]) -> None:
    """Main of the process; its ready line goes to a file."""
    become(log, ready)
    inject.install(rules)
    planted.install(bugs)
    sys.exit(main(arguments))
