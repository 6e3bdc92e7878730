"""Packages that do not go with the installed ones, each set in a directory of its own below ``build``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALL_TIMEOUT_S = 900


def installed(name: str, *requirements: str) -> Path:
    """The directory ``build/<name>``, to put first on ``PYTHONPATH``; pip fills it if it is not there yet.

    Raises subprocess.CalledProcessError; pip has then said why.
    """
    directory = ROOT / "build" / name
    if directory.is_dir():
        return directory
    part = directory.with_name(f"{name}.{os.getpid()}")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
    try:
        subprocess.run((*pip, "--target", str(part), *requirements), check=True, timeout=INSTALL_TIMEOUT_S)
        part.rename(directory)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return directory
