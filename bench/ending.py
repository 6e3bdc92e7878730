"""How a benchmark ends on SIGTERM or SIGHUP."""

import signal
import sys

INTERRUPTED = 130  # the exit status


def unwind_when_told_to_end() -> None:
    """From now on SIGTERM and SIGHUP end this program as Ctrl-C does: after the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(INTERRUPTED))
