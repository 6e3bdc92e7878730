"""Facts about a machine, printed beside every figure: figures of different machines don't compare."""

from __future__ import annotations

import subprocess
from importlib.metadata import version

from shuffle_transport.bench import machine


def facts() -> dict[str, str | int | float]:
    """Processor, memory, the load of the last minute, and the versions of what runs."""
    return machine.facts() | {"java": _java(), "pyspark": version("pyspark")}


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    return said.splitlines()[0]
