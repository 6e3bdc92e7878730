"""`python -m tests.faults.simulate`: runs simulated schedules, and shows the smallest form of one that fails."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.harness.ending import starting, unwind_when_told_to_end
from tests.faults.simulate.planted import PLANTS

PROGRESS_EVERY = 1000  # schedules


class Results:
    """What the child processes report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done = 0
        self.failures: list[dict[str, Any]] = []

    def take(self, line: str, seed: int) -> int:
        """One line of a process that runs `seed`; the seed that it runs now."""
        with self._lock:
            try:
                said = json.loads(line)
            except ValueError:
                print(line, end="", file=sys.stderr)
                return seed
            if "seed" in said:
                self.failures.append(said)
                print(f"seed {said['seed']}: {'; '.join(said['violations'])}", flush=True)
            before, self.done = self.done, self.done + said.get("done", 0)
            if before // PROGRESS_EVERY < self.done // PROGRESS_EVERY:
                print(f"{self.done} schedules, {len(self.failures)} wrong", file=sys.stderr, flush=True)
            return int(said.get("begun", seed))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="how many schedules; default: as many as --minutes allow")
    parser.add_argument("--minutes", type=float, default=1.0, help="for how long, without --seeds")
    parser.add_argument("--seed", type=int, help="the first seed; default: a random one, which is printed")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="with this bug, until it is found")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--trace", action="store_true", help="only --seed, with its trace")
    parser.add_argument("--shrink", action="store_true", help="the same, as small as it still fails")
    parser.add_argument("--json", type=Path, help="write the result there")
    arguments = parser.parse_args()
    first = secrets.randbits(40) if arguments.seed is None else arguments.seed
    plant = ["--plant", arguments.plant] if arguments.plant else []
    if arguments.trace or arguments.shrink:
        return _child("--first", str(first), "--shrink" if arguments.shrink else "--trace", *plant).wait()
    print(f"first seed {first}", flush=True)
    begun = time.monotonic()
    results = run(first, arguments.seeds, 60 * arguments.minutes, arguments.processes, arguments.plant or "")
    seconds = time.monotonic() - begun
    print(
        f"{results.done} schedules in {seconds:.0f} s, {60 * results.done / seconds:.0f} a minute,"
        f" {len(results.failures)} fail"
    )
    if arguments.json:
        found = {"first": first, "schedules": results.done, "seconds": round(seconds), "failures": results.failures}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if results.failures and not arguments.plant:
        seed = results.failures[0]["seed"]
        print(
            f"\nthe smallest form of seed {seed} (again: python -m tests.faults.simulate --shrink --seed {seed}):",
            flush=True,
        )
        _child("--first", str(seed), "--shrink").wait()
    return int(bool(results.failures) != bool(arguments.plant))


def run(first: int, seeds: int, seconds: float, processes: int, plant: str) -> Results:
    """So many schedules, or for so long, in several processes; with a planted bug until it is found."""
    results = Results()
    amount = ["--seeds", str(-(-seeds // processes))] if seeds else ["--seconds", str(seconds)]
    planted = ["--plant", plant, "--stop-at-first"] if plant else []
    children: list[subprocess.Popen[str]] = []

    def follow(child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        seed = -1
        for line in child.stdout:
            seed = results.take(line, seed)
            if plant and results.failures:
                break
        if plant:
            for each in children:
                each.kill()
        if child.wait() not in (0, -signal.SIGKILL):
            stuck = {"seed": seed, "violations": ["the schedule does not end; its stacks are on stderr"]}
            results.take(json.dumps(stuck), seed)

    try:
        threads = []
        for number in range(processes):
            each = "--first", str(first + number), "--step", str(processes), *amount, *planted
            with starting():
                children.append(_child(*each, stdout=subprocess.PIPE))
            threads.append(threading.Thread(target=follow, args=(children[-1],), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for child in children:
            child.kill()
    return results


def _child(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # the order in sets of names is part of a schedule
    command = [sys.executable, "-m", "tests.faults.simulate.child", *arguments]
    return subprocess.Popen(command, env=environment, text=True, **more)


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
