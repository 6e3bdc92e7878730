"""The page in a real browser: headless Chromium, where it is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from tests.page.browser import CHROMIUM, MISSING

QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)


def shown(url: str, profile: Path, *options: str) -> tuple[str, str]:
    """The document after its script has run for some seconds, and what the console said."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *QUIET]
    command += [f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=8000", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return done.stdout, console


@pytest.mark.timeout(900)
def test_it_shows_a_shuffle_and_the_skew_of_its_partitions(tmp_path: Path) -> None:
    http = ["--http-listen", "127.0.0.1:0"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "log", http) as server,
        RemoteShuffle({"server": server.control, "codec": "none"}) as plugin,
        plugin.master("etl") as master,
    ):
        handle = master.register_shuffle(50, 3)
        for number in range(3):
            with plugin.writer(handle, MapAttempt(number, 0)) as writer:
                for partition in range(50):
                    writer.write(partition, b"x" * (100_000 if partition == 17 else 1000))
                writer.commit()
        app, shuffle = handle.spec.id.app, handle.spec.id.shuffle
        url = f"http://{server.metrics}/#{app}/{shuffle}"
        text, console = shown(url, tmp_path / "profile", "--dump-dom", "--window-size=390,900")
    assert not console
    assert '<span id="health" role="status" class="good">healthy</span>' in text
    assert f"sizes of the 50 partitions of {app}/{shuffle}" in text
    assert f"Partition sizes of {app}/{shuffle}" in text
    [largest] = re.findall(r'id="skew-largest">largest: (\d+) \((.*?)\)', text)
    assert largest[0] == "17"
    [times] = re.findall(r"largest [\d.]+ \w+, ([\d.]+) times the median", text)
    assert float(times) > 50
    [line] = re.findall(r'id="skew-line" points="([^"]*)"', text)
    assert len(line.split()) == 50
    assert "in 3 of 3 map outputs" in text
