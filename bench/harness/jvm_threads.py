"""What a Spark driver and its tasks are doing, for the message of a call that does not return."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PYTHON_STACKS = signal.SIGUSR1  # `bench.harness.spark_child` answers it
PYTHON_WITHIN_S = 1.0
DUMP_WITHIN_S = 5.0
SAID_BYTES = 3000
FRAMES = 30  # of each stack; the call in which a thread waits is on top

# By a thread's name, and by what stands in its stack. The most telling come first: a message may be cut off.
NAMES = ("Executor task", "dag-scheduler", "task-result-getter", "stdout writer", "barrier")
CALLED = ("py4j.commands.", "org.apache.spark.shuffle.flight.")
IDLE = "ThreadPoolExecutor.getTask"
HEAP = "Heap\n"


def dump_tasks(group: int, log: Path) -> str:
    """Stacks of Spark's threads that have something to do, of all JVMs of the process group; those of the driver's
    Python; what else runs in it; the end of the log.

    :param group: the process id of the driver, which leads it.
    :param log: where all of them print.
    """
    members = list(_members(group))
    said = log.read_bytes()[-SAID_BYTES:].decode(errors="replace")
    python = _printed(log, [group], PYTHON_STACKS, PYTHON_WITHIN_S)
    jvms = [pid for pid, name, _ in members if name == "java"]
    told = telling(_printed(log, jvms, signal.SIGQUIT, DUMP_WITHIN_S))
    told += [python.strip(), *(f"{pid} {name} {state}" for pid, name, state in members), f"Said before:\n{said}"]
    return "\n\n".join(told)


def telling(dump: str) -> list[str]:
    """The stacks of a JVM's dump that can say why a job does not go on, the most telling first; its heap last."""
    ranked = [(_rank(stack), stack) for stack in dump.split("\n\n")]
    stacks = [stack for _, stack in sorted((each for each in ranked if each[0] >= 0), key=lambda each: each[0])]
    return ["\n".join(stack.splitlines()[:FRAMES]) for stack in stacks]


def _rank(stack: str) -> int:
    """The place in the order; -1 for what says nothing."""
    name, _, calls = stack.strip().partition("\n")
    if IDLE in calls:
        return -1
    places = [place for place, part in enumerate(NAMES) if part in name]
    places += [len(NAMES) + place for place, part in enumerate(CALLED) if part in calls]
    if stack.lstrip().startswith(HEAP):
        places.append(len(NAMES) + len(CALLED))
    return min(places, default=-1)


def _printed(log: Path, processes: list[int], at: signal.Signals, within: float) -> str:
    """What they print to the log when they get a signal, a JVM its threads at SIGQUIT."""
    before = log.stat().st_size
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, at)
    time.sleep(within)
    return log.read_bytes()[before:].decode(errors="replace")


def _members(group: int) -> list[tuple[int, str, str]]:
    """Process id, name, and state with what the kernel waits for, of a process group."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            head, _, rest = (process / "stat").read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group:
                found.append((int(process.name), head.partition("(")[2], f"{state} {(process / 'wchan').read_text()}"))
        except (OSError, ValueError):
            continue  # not a process, or one that has just ended
    return found
