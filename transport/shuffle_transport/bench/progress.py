"""What is going on, on standard error: results are for standard output alone."""

import sys


def say(text: str) -> None:
    """One line."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
