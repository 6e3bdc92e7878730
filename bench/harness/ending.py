"""How a benchmark ends on SIGTERM or SIGHUP."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # the exit status

_starting = 0  # `starting` blocks that the main thread is in
_asked = False


def unwind_when_told_to_end() -> None:
    """From now on SIGTERM and SIGHUP end this program as Ctrl-C does: after the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)


@contextmanager
def starting() -> Iterator[None]:
    """Inside, a process is started: SIGTERM and SIGHUP wait until it has an owner, which ends it."""
    global _starting
    _starting += 1
    try:
        yield
    finally:
        _starting -= 1
        if _asked and not _starting:
            signal.raise_signal(signal.SIGTERM)  # the main thread ends, whichever this one is


def _end(*_: object) -> None:
    global _asked
    _asked = True
    if not _starting:
        sys.exit(INTERRUPTED)
