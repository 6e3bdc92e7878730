"""A PySpark of another version than the installed one, in a directory of its own below ``build``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.spark_driver import ROOT

INSTALL_TIMEOUT_S = 900


def installed(version: str) -> Path:
    """The directory, to put first on ``PYTHONPATH``; pip fills it if it is not there yet (400 MB, about a minute).

    Raises subprocess.CalledProcessError; pip has then said why.
    """
    directory = ROOT / "build" / f"pyspark-{version}"
    if directory.is_dir():
        return directory
    part = directory.with_name(f"{directory.name}.{os.getpid()}")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
    try:
        subprocess.run((*pip, "--target", str(part), f"pyspark=={version}"), check=True, timeout=INSTALL_TIMEOUT_S)
        part.rename(directory)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return directory
