"""Pictures of the page for the docs: ``python -m tests.page.pictures docs/images``.

A master and three workers shuffle data, one partition of which is far larger than the others, while headless Chromium
shows the page; it is pictured once rates and partition sizes are there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bench.harness.cluster import ClusterProcesses
from bench.harness.ending import unwind_when_told_to_end
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleMaster
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from tests.page import looks
from tests.page.browser import CHROMIUM, MISSING, Browser

WORKERS, PARTITIONS, MAPS, SHUFFLES_KEPT = 3, 200, 12, 6
BLOCK = 4000
"""Bytes; a map writes one, two or three times as many for most partitions."""
LARGE, SKEW = 17, 40
"""The largest partition, and how many times as many a map writes for it."""
UPDATES = 20
"""Of the page before it is pictured: its chart has a point for each."""
SIZES = {"page.png": looks.DESK, "page-phone.png": looks.PHONE}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.page.pictures", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="page-") as root:
        for name, picture in pictures(Path(root)).items():
            (folder / name).write_bytes(picture)


def pictures(root: Path) -> dict[str, bytes]:
    """PNG images by file name."""
    enough = threading.Event()
    with (
        ClusterProcesses(root, WORKERS, master=("--http-listen", "127.0.0.1:0")) as cluster,
        RemoteShuffle({"server": cluster.master.control, "codec": "none"}) as plugin,
        plugin.master("nightly-report") as master,
        Browser(root / "profile") as browser,
    ):
        first = _shuffle(plugin, master)

        def work() -> None:
            done: deque[ShuffleHandle] = deque()
            while not enough.is_set():
                done.append(_shuffle(plugin, master))
                if len(done) > SHUFFLES_KEPT:
                    master.unregister_shuffle(done.popleft())

        worker = threading.Thread(target=work)
        worker.start()
        try:
            looks.watch(browser)
            url = f"http://{cluster.master.metrics}/#{first.spec.id.app}/{first.spec.id.shuffle}"
            return {name: _picture(browser, url, size) for name, size in SIZES.items()}
        finally:
            enough.set()
            worker.join()


def _shuffle(plugin: RemoteShuffle, master: ShuffleMaster) -> ShuffleHandle:
    """One that has been written and read."""
    handle = master.register_shuffle(PARTITIONS, MAPS)
    for map_id in range(MAPS):
        with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
            for partition in range(PARTITIONS):
                times = SKEW if partition == LARGE else 1 + partition % 3
                writer.write(partition, bytes(BLOCK * times))
            writer.commit()
    with plugin.reader(handle, range(PARTITIONS)) as reader:
        for _ in reader:
            pass
    return handle


def _picture(browser: Browser, url: str, size: tuple[int, int]) -> bytes:
    browser.resize(*size, phone=size == looks.PHONE)
    looks.first_look(browser, url)
    looks.await_updates(browser, UPDATES)
    return browser.picture()


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit(MISSING)
    unwind_when_told_to_end()
    main()
