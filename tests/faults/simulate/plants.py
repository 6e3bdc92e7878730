"""`python -m tests.faults.simulate.plants`: how soon each planted bug is found, as JSON and as a table."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from bench.harness import program
from tests.faults.simulate.__main__ import run
from tests.faults.simulate.planted import PLANTS

MOST_SECONDS = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="keeps what it says of other bugs, and of schedules")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("plants", nargs="*", default=sorted(PLANTS))
    arguments = parser.parse_args()
    known = program.kept(arguments.json)
    for name in arguments.plants:
        begun = time.monotonic()
        results = run(secrets.randbits(32), 0, MOST_SECONDS, arguments.processes, name)
        found: dict[str, Any] = {"seed": None, "violations": ["not found"]}
        found = results.failures[0] if results.failures else found
        known.setdefault("planted", {})[name] = {
            "what": PLANTS[name].what,
            "seed": found["seed"],
            "seconds": round(time.monotonic() - begun, 1),
            "violation": found["violations"][0][:200],
        }
        arguments.json.write_text(json.dumps(known, indent=2) + "\n")
    print("| bug | what | seed | seconds |\n|---|---|---|---|")
    for name, row in sorted(known["planted"].items()):
        print(f"| `{name}` | {row['what']} | {row['seed']} | {row['seconds']} |")
    return int(any(row["seed"] is None for row in known["planted"].values()))


if __name__ == "__main__":
    sys.exit(main())
