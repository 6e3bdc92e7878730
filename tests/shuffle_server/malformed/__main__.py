"""Send the messages of single seeds to a fresh server: python -m tests.shuffle_server.malformed put 17 18"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.harness.server import ServerProcess
from tests.shuffle_server.malformed.all_attacks import ATTACKS
from tests.shuffle_server.malformed.attack import Target


def main(name: str, *seeds: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with ServerProcess(Path(folder, "data"), Path(folder, "log")) as server:
            attack = ATTACKS[name](Target(server.control, server.data))
            for seed in map(int, seeds):
                print(f"{name} {seed}: {attack.send(seed)} messages, each refused or served as it should be")  # noqa: T201
            attack.close()
        print(Path(folder, "log").read_text())  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
