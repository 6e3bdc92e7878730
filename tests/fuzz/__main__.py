"""Fuzzes what reads input of others and of disks: python -m tests.fuzz --minutes 10 [--target NAME ...] [--seed N]

The time is divided among the targets. Findings are kept below tests/fuzz/corpus, from where tests/fuzz/test_fuzz.py
reads them again each time: fix the code, and commit the file. Exit status 1 if anything is found.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import secrets
import sys

from tests.fuzz.run import fuzz, write_seeds
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of all targets together (default: 1)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the random changes (default: any)")
    parser.add_argument("--write-seeds", action="store_true", help="write the good inputs of the corpus, and end")
    given = parser.parse_args()
    targets = [TARGETS[name] for name in given.target or TARGETS]
    if given.write_seeds:
        print("\n".join(f"{target.name}: {write_seeds(target)} good inputs" for target in targets))
        return 0
    print(f"seed {given.seed}")
    found = 0
    for target in targets:
        count, finding = fuzz(target, 60 * given.minutes / len(targets), given.seed)
        print(f"{target.name}: {count} inputs" + ("" if finding is None else f", FOUND: {finding.path}"), flush=True)
        if finding is not None:
            found += 1
            finding.path.parent.mkdir(parents=True, exist_ok=True)
            finding.path.write_bytes(finding.data)
            print(finding.what, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
