"""The fault explorer: ``python -m tests.faults.explore``. See docs/faults.md.

Draws schedules from seeds, runs each over real processes, and compares every record that is read with what the winners
wrote. The exit status is 1 if anything was wrong; each failing seed is printed with the command that runs it again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bench.harness import machine
from bench.harness.ending import unwind_when_told_to_end
from tests.conftest import JAVA_OPTIONS
from tests.faults.explore import planted, plants
from tests.faults.explore.exploring import WEIGHTS, Score, explore, fresh_seed, schedules
from tests.faults.explore.running import Outcome
from tests.faults.explore.shrink import shrink
from tests.faults.explore.spark import close_spark


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    jobs = tuple(options.jobs.split(","))
    seed = fresh_seed() if options.seed is None else options.seed
    scratch = Path(tempfile.mkdtemp(prefix="explore-"))
    logging.basicConfig(filename=scratch / "explorer.log")  # of what runs in this process
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)  # Spark's JVMs run for seconds
    if options.plant:
        return _hunt(options, seed if options.replay is None else options.replay, scratch)
    count = 1 if options.replay is not None else options.seeds
    given = schedules(seed if options.replay is None else options.replay, jobs)
    print(
        f"explore: seeds from {seed if options.replay is None else options.replay} on, jobs {','.join(jobs)}",
        flush=True,
    )

    def more(score: Score) -> bool:
        return options.minutes is None or score.seconds < 60 * options.minutes

    score = explore(
        islice(given, count) if options.minutes is None or options.replay is not None else given,
        scratch,
        parallel=options.parallel,
        more=more,
        each=lambda outcome: _say(outcome, options.jobs),
    )
    for outcome in score.wrong:
        if options.shrink:
            small = shrink(outcome.schedule, scratch)
            print(f"shrunk to {len(small.faults)} faults, {small.shuffles} shuffles, {small.maps} maps: {small}")
    close_spark()
    print(_summary(score))
    if options.json:
        options.json.write_text(json.dumps(_report(score, seed, jobs), indent=1) + "\n")
    if not score.wrong:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(bool(score.wrong))


def _hunt(options: argparse.Namespace, seed: int, scratch: Path) -> int:
    """Hunt planted bugs, one after the other. The exit status is 1 if one was not found."""
    hunts = []
    for bug in sorted(planted.BUGS) if "all" in options.plant else options.plant:
        found = plants.hunt(bug, seed, scratch, parallel=options.parallel, only=options.replay is not None)
        hunts.append(found)
        for control in found.unsound:
            print(
                f"{bug}: wrong without it as well: {control.schedule}: {'; '.join(map(str, control.findings))[:1500]}"
            )
        if found.found is None:
            print(f"{bug}: NOT FOUND in {found.schedules} schedules, {found.seconds:g} s", flush=True)
            continue
        print(f"{bug}: found after {found.seconds:g} s, {found.schedules} schedules, by {found.found.schedule}")
        print(f"    right without it; with it: {str(found.found.findings[0])[:300]}")
        print(
            f"    again: python -m tests.faults.explore --plant {bug} --replay {found.found.schedule.seed}", flush=True
        )
    if options.json:
        report = {
            "benchmark": "explore",
            "machine": machine.facts(),
            "parallel": options.parallel,
            "limit": plants.LIMIT_S,
        }
        rows = [each.row() for each in hunts]
        options.json.write_text(json.dumps(report | {"planted": rows}, indent=1) + "\n")
    shutil.rmtree(scratch, ignore_errors=True)
    return int(any(each.found is None for each in hunts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.explore", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=_positive, default=20, metavar="N", help="schedules to run (default: 20)")
    parser.add_argument("--minutes", type=float, metavar="M", help="run schedules for so long instead")
    parser.add_argument("--seed", type=int, help="the first seed (default: a fresh one)")
    parser.add_argument("--jobs", type=_jobs, default="remote,hybrid,pipelined", help=f"of {','.join(WEIGHTS)}")
    parser.add_argument("--parallel", type=_positive, default=4, metavar="P", help="schedules at once (default: 4)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run the schedule of this seed alone")
    parser.add_argument("--shrink", action="store_true", help="look for the fewest faults that fail")
    parser.add_argument(
        "--plant",
        action="append",
        default=[],
        choices=[*sorted(planted.BUGS), "all"],
        metavar="BUG",
        help=f"look whether this bug is found within {plants.LIMIT_S:g} s, or each: {', '.join(planted.BUGS)}, all",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    return parser


def _jobs(text: str) -> str:
    if unknown := [name for name in text.split(",") if name not in WEIGHTS]:
        raise argparse.ArgumentTypeError(f"no job is called {', '.join(unknown)}; choose from {', '.join(WEIGHTS)}")
    return text


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _say(outcome: Outcome, jobs: str) -> None:
    if outcome.right:
        print(f"ok     {outcome.seconds:6.1f} s  {outcome.schedule}", flush=True)
        return
    print(f"WRONG  {outcome.seconds:6.1f} s  {outcome.schedule}", flush=True)
    for finding in outcome.findings:
        print(f"       {str(finding)[:1500]}")
    print(f"       files: {outcome.kept}")
    print(
        f"       again: python -m tests.faults.explore --replay {outcome.schedule.seed} --jobs {jobs} --shrink",
        flush=True,
    )


def _summary(score: Score) -> str:
    lines = [f"{'fault':40} schedules wrong"]
    lines += [f"{kind:40} {ran:9} {wrong:5}" for kind, ran, wrong in score.by_fault()]
    lines += [f"not checked in {count} schedules: {reason}" for reason, count in sorted(score.unchecked().items())]
    lines.append(f"{len(score.outcomes)} schedules in {score.seconds:g} s, {len(score.wrong)} wrong")
    return "\n".join(lines)


def _report(score: Score, seed: int, jobs: Sequence[str]) -> dict[str, object]:
    return {
        "benchmark": "explore",
        "machine": machine.facts(),
        "seed": seed,
        "jobs": list(jobs),
        "schedules": len(score.outcomes),
        "wrong": len(score.wrong),
        "seconds": score.seconds,
        "unchecked": score.unchecked(),
        "faults": [{"kind": kind, "schedules": ran, "wrong": wrong} for kind, ran, wrong in score.by_fault()],
        "failing": [
            {
                "seed": outcome.schedule.seed,
                "schedule": str(outcome.schedule),
                "findings": list(map(str, outcome.findings)),
            }
            for outcome in score.wrong
        ],
        "each": [
            {
                "seed": outcome.schedule.seed,
                "job": outcome.schedule.job,
                "seconds": outcome.seconds,
                "right": outcome.right,
            }
            for outcome in score.outcomes
        ],
    }


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
