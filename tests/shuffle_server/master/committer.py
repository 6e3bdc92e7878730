"""A process that commits map outputs from several threads and says which are acknowledged, until it is killed.

`python -m tests.shuffle_server.master.committer DIRECTORY FIRST`: maps FIRST, FIRST + 1, ...; one line for each.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path

from shuffle_server.master.master import Master
from tests.shuffle_server.master.scene import BEGIN, commit

THREADS = 4
SNAPSHOT_EVERY = 300


def main(directory: Path, first: int) -> None:
    master = Master(directory, sync=True, snapshot_every=SNAPSHOT_EVERY)
    master.apply_all(BEGIN)
    numbers = itertools.count(first)

    def work() -> None:
        while True:
            n = next(numbers)
            master.apply(commit(n))
            os.write(1, f"{n}\n".encode())

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
