"""What the tasks of a Spark process group are doing, for the message of a call that does not return."""

import os
import signal
import time
from pathlib import Path

DUMP_WITHIN_S = 5.0
WORTH = ("Executor task", "dag-scheduler", "task-result-getter", "stdout writer", "Worker Monitor", "barrier")
NOT_WORTH = "Idle Worker Monitor"  # one for each session that the JVM ever had; they sleep


def dump_tasks(group: int, log: Path) -> str:
    """Stacks of Spark's task threads, of all JVMs of the process group, and what else runs in it.

    :param log: where the JVMs' standard output goes.
    """
    members = list(_members(group))
    before = log.stat().st_size
    for pid, name, _ in members:
        if name == "java":
            os.kill(pid, signal.SIGQUIT)  # a JVM prints its threads
    time.sleep(DUMP_WITHIN_S)
    stacks = log.read_bytes()[before:].decode(errors="replace").split("\n\n")
    told = [stack for stack in stacks if _is_worth(stack.partition("\n")[0])]
    told += [f"{pid} {name} {state}" for pid, name, state in members]
    return "\n\n".join(told)


def _is_worth(thread: str) -> bool:
    return any(name in thread for name in WORTH) and NOT_WORTH not in thread


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
