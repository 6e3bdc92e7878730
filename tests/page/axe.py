"""The accessibility checks of axe-core, which npm fetches into build/: it is under the MPL 2.0, and not a part of this
repository."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.page.browser import Browser

VERSION = "4.14.1"
SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
MEMBER = "package/axe.min.js"
SCRIPT = Path(__file__).parents[2] / "build" / "axe" / f"axe-{VERSION}.min.js"
FETCH_S = 300.0


class NotFetched(Exception):
    """The script could not be had, or is another one."""


def fetch() -> Path:
    """Where the script is, fetched if it is not there. Raises NotFetched."""
    if not SCRIPT.exists():
        with tempfile.TemporaryDirectory(prefix="axe-") as folder:
            command = ["npm", "pack", "--silent", f"axe-core@{VERSION}", "--pack-destination", folder]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, cwd=folder)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NotFetched(f"npm did not fetch axe-core {VERSION}: {error}") from None
            if done.returncode:
                raise NotFetched(f"npm did not fetch axe-core {VERSION}: {done.stderr.strip()[-500:]}")
            _unpack(next(Path(folder).glob("*.tgz")))
    found = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()
    if found != SHA256:
        raise NotFetched(f"{SCRIPT} is another axe-core {VERSION}: its SHA-256 is {found}, not {SHA256}")
    return SCRIPT


def _unpack(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(MEMBER)
        assert member is not None
        SCRIPT.parent.mkdir(parents=True, exist_ok=True)
        SCRIPT.write_bytes(member.read())


def violations(browser: Browser, script: Path) -> list[str]:
    """What is wrong on the page as it is shown now: rule, what it asks for, and where."""
    browser.evaluate(script.read_text())
    found: list[dict[str, Any]] = browser.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((each) => "
        "({id: each.id, help: each.help, nodes: each.nodes.map((node) => node.target.join(' '))})))"
    )
    return [f"{each['id']}: {each['help']}: {', '.join(each['nodes'][:5])}" for each in found]
