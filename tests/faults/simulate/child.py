"""A process that runs schedules and does nothing else: it writes JSON, one object a line, or a readable trace."""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import os
import signal
import sys
import traceback
from dataclasses import asdict

from tests.faults.simulate import patches

patches.install()

from tests.faults.simulate.planted import PLANTS  # noqa: E402  # the product is imported once all is patched
from tests.faults.simulate.run import Result, simulate  # noqa: E402
from tests.faults.simulate.schedule import Schedule, make  # noqa: E402
from tests.faults.simulate.shrink import shrink  # noqa: E402

STUCK_SECONDS = 60.0  # of processor time, for one schedule
ASLEEP_SECONDS = 1200.0  # of the real clock; a machine with much else to do is no fault
TOLD_EVERY = 10  # schedules


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--plant", default="")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--hashes", action="store_true")
    parser.add_argument("--stop-at-first", action="store_true")
    arguments = parser.parse_args()
    _use_one_processor(arguments.first % max(1, arguments.step))
    if arguments.plant:
        PLANTS[arguments.plant].plant()
    if arguments.shrink or arguments.trace:
        _show(arguments.first, arguments.shrink)
    else:
        _many(arguments)
    sys.stdout.flush()
    os._exit(0)  # at once: what modules do at exit finds threads, clocks and files patched


def _many(arguments: argparse.Namespace) -> None:
    begun, done = patches.real_seconds(), 0
    for at in range(arguments.seeds) if arguments.seeds else itertools.count():
        if arguments.seconds and patches.real_seconds() - begun > arguments.seconds:
            break
        seed = arguments.first + at * arguments.step
        _tell(begun=seed)
        result = _run(make(seed))
        done += 1
        if arguments.hashes:
            _tell(hash=result.hash)
        if result.violations:
            _tell(
                seed=result.seed,
                violations=result.violations,
                hash=result.hash,
                seconds=round(patches.real_seconds() - begun, 2),
            )
        if done % TOLD_EVERY == 0:
            _tell(done=TOLD_EVERY)
        if result.violations and arguments.stop_at_first:
            break
    _tell(done=done % TOLD_EVERY)


def _run(schedule: Schedule, *, keep: bool = False) -> Result:
    """Ends the process, after the stacks of its threads, when the schedule does not end."""
    faulthandler.register(signal.SIGPROF, chain=True)
    signal.setitimer(signal.ITIMER_PROF, STUCK_SECONDS)
    faulthandler.dump_traceback_later(ASLEEP_SECONDS, exit=True)
    result = simulate(schedule, keep=keep)
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return result


def _show(seed: int, small: bool) -> None:
    schedule = make(seed)
    if small:
        schedule = shrink(schedule, lambda each: bool(_run(each).violations))
    result = _run(schedule, keep=True)
    print(f"seed {seed}, trace {result.hash}")
    print(json.dumps(asdict(schedule.shape)))
    for each in (*schedule.jobs, *schedule.faults):
        print(f"  {each}")
    print("\n".join(result.trace))
    print("\n".join(result.violations) or "no violation")


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def _use_one_processor(number: int) -> None:
    """One thread runs at a time: to hand over on the same processor takes a fifth of the time."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # noqa: BLE001  # as above: a patched thread would keep this process
        traceback.print_exc()
        os._exit(1)
