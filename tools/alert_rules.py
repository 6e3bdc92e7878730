"""Prometheus' alert rules, made from the server's own list of metric families: deploy/monitoring/alerts.yaml.

A rule names a metric, a label or one of its values through its `Family`, so none can be named that a server does not
have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from shuffle_server.observe import families as of
from shuffle_server.observe.families import Family

JOB = "flight-shuffle"


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert: fires when `expr` has a value for so long."""

    name: str
    expr: str
    summary: str
    lasting: str = ""
    severity: str = "warning"


def series(family: Family, suffix: str = "", selected: str = "", **labels: str) -> str:
    """A family as PromQL names it. Raises ValueError for a label, or a value of one, that it cannot have."""
    known = dict(zip(family.labels, family.values, strict=False))
    matchers = [selected] if selected else []
    for label, values in labels.items():
        wrong = set(values.split("|")) - set(known.get(label) or values.split("|"))
        if label not in family.labels or wrong:
            raise ValueError(f"{family.name} has no {label}={'|'.join(sorted(wrong)) or values}")
        matchers.append(f'{label}=~"{values}"' if "|" in values else f'{label}="{values}"')
    return f"{family.name}{suffix}" + (f"{{{', '.join(matchers)}}}" if matchers else "")


def rules() -> list[Rule]:
    """Every alert."""
    free, size = series(of.DISK_FREE), series(of.DISK_SIZE)
    pushes = series(of.PUSH_SECONDS, "_count")
    broken = series(of.PUSH_SECONDS, "_count", outcome="broken")
    full = series(of.REFUSALS, code="STORAGE_FULL|STORAGE_FAILED")
    wrong = series(of.REFUSALS, code="COMMIT_MISMATCH|BLOCK_CORRUPT")
    strangers = series(of.REFUSALS, code="UNAUTHENTICATED|PERMISSION_DENIED")
    commits = f"sum by (instance, le) (rate({series(of.COMMIT_SECONDS, '_bucket')}[5m]))"
    return [
        Rule(
            "Down",
            f'up{{job="{JOB}"}} == 0',
            "does not answer; running jobs wait for it for as long as they retry",
            "1m",
            "critical",
        ),
        Rule("NotReady", f"{series(of.READY)} == 0", "takes no new work; GET /ready says why", "5m"),
        Rule(
            "NoLeader",
            f"sum by (job) ({series(of.LEADER)}) < 1",
            "no master leads: jobs wait; GET /ready of each master says why",
            "1m",
            "critical",
        ),
        Rule(
            "TaskFails",
            f"{series(of.TASK_FAILING)} > 60",
            "a periodic task of the server fails again and again; its log has the traceback",
        ),
        Rule(
            "WorkerLost",
            f"increase({series(of.WORKERS_LOST)}[10m]) > 0",
            "a worker was silent for --worker-timeout; maps whose output has no other copy run again",
        ),
        Rule(
            "DirectoryOut",
            f"{series(of.DISK_OUT)} == 1",
            "a data directory is failing and takes nothing new; the log says why",
            severity="critical",
        ),
        Rule(
            "DiskFillsUp",
            f"({free} / ({size} > 0) < 0.1) or (predict_linear({free}[1h], 4 * 3600) < 0)",
            "less than a tenth is free, or will be gone in four hours",
            "10m",
        ),
        Rule(
            "RefusesData",
            f"sum by (instance, code) (increase({full}[5m])) > 0",
            "a disk is full or failing: pushes or commits are refused",
            severity="critical",
        ),
        Rule(
            "OutputsLost",
            f"increase({series(of.OUTPUTS_LOST)}[10m]) > 0",
            "committed data is gone or corrupt; its maps run again. Look at the disk",
        ),
        Rule(
            "CommitsMismatch",
            f"sum by (instance) (increase({wrong}[1h])) > 0",
            "what arrived is not what was sent: network, memory, or a fault of a client",
        ),
        Rule(
            "MemoryShort",
            f"rate({series(of.POOL_WAIT_SECONDS)}[5m]) > 1 or increase({series(of.POOL_REFUSALS)}[5m]) > 0",
            "pushes wait for memory: raise --memory, or look why the disk is slow",
            "10m",
        ),
        Rule(
            "CommitsSlow",
            f"histogram_quantile(0.99, {commits}) > 1",
            "one commit in a hundred takes more than a second",
            "10m",
        ),
        Rule(
            "PushesBreak",
            f"sum by (instance) (rate({broken}[5m])) > 0.1 * sum by (instance) (rate({pushes}[5m]))",
            "one push in ten ends with a lost connection: executors die, or the network does",
            "10m",
        ),
        Rule(
            "ApplicationsExpire",
            f"increase({series(of.APPS_REMOVED, reason='expired')}[1h]) > 0",
            "a driver fell silent and its data was removed",
        ),
        Rule(
            "Strangers",
            f"sum by (instance) (increase({strangers}[15m])) > 20",
            "calls without a right token; the log names the peers of the control endpoint",
        ),
        Rule("Restarts", f"changes({series(of.EPOCH)}[30m]) > 2", "the server starts again and again"),
        Rule(
            "FewFilesLeft",
            "process_open_fds / process_max_fds > 0.8",
            "each attempt being written and each pull holds a file open: raise the limit (ulimit -n)",
            "5m",
        ),
    ]


def rules_document() -> str:
    """Prometheus' rule file: YAML, the strings as JSON writes them."""
    lines = ["# Written by scripts/generate-monitoring.", "groups:", f"  - name: {JOB}", "    rules:"]
    for rule in rules():
        lines += [f"      - alert: FlightShuffle{rule.name}", f"        expr: {json.dumps(rule.expr)}"]
        lines += [f"        for: {rule.lasting}"] if rule.lasting else []
        lines.append(f"        labels: {{severity: {rule.severity}}}")
        lines.append(f"        annotations: {{summary: {json.dumps(rule.summary)}}}")
    return "\n".join(lines) + "\n"
