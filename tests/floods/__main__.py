"""Floods a server with what hostile peers send, and looks what is left for others: python -m tests.floods --seconds 60

Each kind of flood runs for so many seconds against a server with --memory 64 MiB, beside an application that sends
heartbeats, pushes and reads back. Exit status 1 if a bound does not hold: memory within budget + 128 MiB, threads and
descriptors given back within 10 s, every record there. docs/security.md says what is bounded.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from shuffle_transport.grpc_polling import poll_in_program
from tests.floods.kinds import KINDS, Kind
from tests.floods.run import Result, ground
from tests.floods.scene import MIB

HEAD = (
    "kind                       sent  heartbeat ms (median, max)  rounds  memory MiB"
    "  threads, files before / after  back s"
)
BOUNDED = ",".join(name for name, kind in KINDS.items() if not kind.unbounded)
MEDIAN_MS, WORST_MS = 100.0, 1000.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.floods", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each kind (default: 60)")
    parser.add_argument("--kinds", default=BOUNDED, help="separated by commas (default: all with a bound)")
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    names = given.kinds.split(",")
    if unknown := [name for name in names if name not in KINDS]:
        parser.error(f"there is no kind {unknown}; there are {', '.join(KINDS)}")
    poll_in_program()
    print(HEAD)
    results = [_run(KINDS[name], given.seconds) for name in names]
    if given.json is not None:
        given.json.write_text(json.dumps([result.as_json() for result in results], indent=1) + "\n")
    return 1 if any(result.wrong for result in results) else 0


def _run(kind: Kind, seconds: float) -> Result:
    """With servers of its own."""
    if missing := kind.needs():
        print(f"{kind.name:24} not run: {missing}", flush=True)
        return Result(kind.name, 0.0)
    with tempfile.TemporaryDirectory(prefix="floods-") as root, ground(kind.scene, Path(root)) as where:
        result = where.flood(kind, max(seconds, kind.least_seconds))
    if result.median_ms > MEDIAN_MS or result.worst_ms > WORST_MS:
        result.wrong.append("heartbeats take too long")
    before, after = result.before, result.after
    back = "-" if result.back_s is None else f"{result.back_s:.1f}"
    print(
        f"{result.kind:24} {result.sent:>11}  {result.median_ms:>8.1f} {result.worst_ms:>8.1f}   {result.rounds:>12}"
        f"  {result.memory // MIB:>10}  {before.threads:>5} {before.files:>5} / {after.threads:>5} {after.files:>5}"
        f"  {back:>12}" + ("  (memory is not bounded)" if kind.unbounded else ""),
        flush=True,
    )
    for line in result.wrong[:5]:
        print(f"    WRONG: {line[:400]}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
