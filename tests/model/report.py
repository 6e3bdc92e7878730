"""What a run showed, as values and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tests.model.cluster import Cluster
from tests.model.parameters import MIB

PEAK_SECONDS = 10


def report(cluster: Cluster) -> dict[str, Any]:
    """Everything, after a run."""
    seconds = cluster.clock.now
    found = {
        "simulated_seconds": round(seconds, 1),
        "events": cluster.clock.events,
        "applications": _applications(cluster),
        "disks": _disks(cluster),
        "network": _network(cluster, seconds),
        "compaction": _compaction(cluster),
        "calls": _calls(cluster, seconds),
        "master": _master(cluster, seconds),
        "recovery": _recovery(cluster),
        "imbalance": _imbalance(cluster),
    }
    found["limits"] = _limits(cluster, seconds, found)
    return found


def _applications(cluster: Cluster) -> dict[str, Any]:
    large, *small = cluster.applications
    blocks = sum(each.job.maps * each.job.partitions for each in cluster.applications if each.map_seconds)
    return {
        "over": sum(each.over for each in cluster.applications),
        "blocks": blocks,
        "payload_mib": round(sum(each.job.maps * each.job.output_bytes for each in cluster.applications) / MIB),
        "large_map_stage_s": round(large.map_seconds, 1),
        "large_reduce_stage_s": round(large.reduce_seconds, 1),
        "large_reduce_tasks": round(large.reading.done) if large.reading is not None else 0,
        "small_map_stage_median_s": _median(each.map_seconds for each in small),
        "small_reduce_stage_median_s": _median(each.reduce_seconds for each in small),
        "maps_again": sum(each.runs_again for each in cluster.applications),
    }


def _disks(cluster: Cluster) -> dict[str, Any]:
    machines = cluster.machines
    reads, size, tasks = machines.reads.sum(), machines.read_bytes.sum(), _tasks(cluster)
    return {
        "reads": round(reads),
        "read_mib": round(size / MIB),
        "written_mib": round(machines.written_bytes.sum() / MIB),
        "kib_per_read": round(size / max(1, reads) / 1024, 1),
        "reads_per_task": round(reads / max(1, tasks), 1),
        "busy_mean": round(float(machines.disk_seconds.mean() / cluster.clock.now), 3),
        "busy_most": round(float(machines.disk_seconds.max() / cluster.clock.now), 3),
    }


def _network(cluster: Cluster, seconds: float) -> dict[str, Any]:
    machines = cluster.machines
    moved = machines.pushed_bytes + machines.pulled_bytes
    return {
        "pushed_mib": round(machines.pushed_bytes.sum() / MIB),
        "pulled_mib": round(machines.pulled_bytes.sum() / MIB),
        "pulls": round(machines.pulls.sum()),
        "pulls_per_task": round(machines.pulls.sum() / max(1, _tasks(cluster)), 1),
        "kib_per_pull": round(machines.pulled_bytes.sum() / max(1, machines.pulls.sum()) / 1024, 1),
        "busy_mean": round(float(moved.mean() / machines.network / seconds), 3),
    }


def _compaction(cluster: Cluster) -> dict[str, Any]:
    decided = [each.compaction.statistics().decisions for each in cluster.workers]
    files = sum(each.files_made for each in cluster.workers)
    rewritten = sum(each.rewritten for each in cluster.workers)
    outputs = {name: sum(each[name] for each in decided) for name in decided[0]}
    return {
        "files": files,
        "rewritten_mib": round(rewritten / MIB),
        "mib_per_file": round(rewritten / max(1, files) / MIB, 1),
        "outputs_per_file": round(outputs["compacted"] / max(1, files), 1),
        "outputs": outputs,
    }


def _calls(cluster: Cluster, seconds: float) -> dict[str, Any]:
    return {
        method: {
            "count": calls.count,
            "per_second": round(calls.count / seconds, 1),
            "us_each": round(1e6 * calls.seconds / calls.count, 1),
            "longest_ms": round(1e3 * calls.longest, 1),
        }
        for method, calls in sorted(cluster.master.calls.items(), key=lambda item: -item[1].seconds)
    }


def _master(cluster: Cluster, seconds: float) -> dict[str, Any]:
    master = cluster.master
    peak_calls, peak_busy = _peak(master.load), _peak(master.busy)
    count = sum(calls.count for calls in master.calls.values())
    spent = sum(calls.seconds for calls in master.calls.values())
    places = master.calls["Place"].count
    return {
        "calls_per_second": round(count / seconds, 1),
        "calls_per_second_peak": round(peak_calls, 1),
        "busy": round(spent / seconds, 4),
        "busy_peak": round(peak_busy, 4),
        "looked_at_per_place": round(master.looked / max(1, places), 1),
    }


def _peak(by_second: Mapping[int, float]) -> float:
    """The mean of the busiest PEAK_SECONDS."""
    if not by_second:
        return 0.0
    seconds = np.zeros(max(by_second) + PEAK_SECONDS)
    for second, amount in by_second.items():
        seconds[second] = amount
    return float(np.convolve(seconds, np.ones(PEAK_SECONDS)).max() / PEAK_SECONDS)


def _recovery(cluster: Cluster) -> dict[str, Any]:
    found = cluster.faults.recoveries.values()
    detected = [each.detected - each.killed for each in found if each.detected]
    rewritten = [each.recovered - each.killed for each in found if each.recovered and not each.left]
    return {
        "killed": len(cluster.faults.recoveries),
        "outputs_lost": sum(each.outputs for each in found),
        "detected_after_s": round(max(detected, default=0.0), 1),
        "rewritten_after_s": round(max(rewritten, default=0.0), 1),
        "not_rewritten": sum(len(each.left) for each in found),
        "loss_cpu_ms": round(1e3 * max((spent for _, spent, _ in cluster.master.losses), default=0.0), 1),
        "restarted": cluster.faults.restarted,
        "restart_over_s": round(cluster.faults.restart_over, 1),
    }


def _imbalance(cluster: Cluster) -> dict[str, Any]:
    pushed = cluster.machines.pushed_bytes
    fast = pushed[cluster.machines.speed == 1]
    slow = pushed[cluster.machines.speed < 1]
    mean = max(1.0, float(pushed.mean()))
    return {
        "most_to_mean": round(float(pushed.max() / mean), 2),
        "p99_to_mean": round(float(np.quantile(pushed, 0.99) / mean), 2),
        "least_to_mean": round(float(fast.min() / mean), 2),
        "slow_to_mean": round(float(slow.mean() / mean), 2) if len(slow) else None,
    }


def _limits(cluster: Cluster, seconds: float, found: Mapping[str, Any]) -> dict[str, float]:
    """How much of each thing was in use, the one that ends first in front: mean of the run, or its peak."""
    shares = {
        "disk of the busiest worker": found["disks"]["busy_most"],
        "disks": found["disks"]["busy_mean"],
        "network of the workers": found["network"]["busy_mean"],
        "a core of the master, peak": found["master"]["busy_peak"],
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _tasks(cluster: Cluster) -> float:
    return sum(each.reading.done for each in cluster.applications if each.reading is not None)


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if value]
    return round(statistics.median(known), 1) if known else 0.0


def table(found: Mapping[str, Any]) -> str:
    """For people."""
    lines = []
    for part, figures in found.items():
        if not isinstance(figures, Mapping):
            lines.append(f"{part:24} {_shown(figures)}")
            continue
        lines.append("")
        lines.append(part)
        for name, figure in figures.items():
            lines.append(f"  {name:28} {_shown(figure)}")
    return "\n".join(lines)


def _shown(figure: object) -> str:
    if isinstance(figure, Mapping):
        return "  ".join(f"{name} {_shown(each)}" for name, each in figure.items())
    return f"{figure:,}" if isinstance(figure, int | float) else str(figure)
