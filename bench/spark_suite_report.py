"""What `bench.spark_suite` says about the times it took: ratios, a table, a picture."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.spark_shuffle import FLIGHT, SORT


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one case, by side: wall time, and processor time of all the side's processes."""

    name: str
    group: str
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, side: str, seconds: float, cpu_s: float) -> None:
        self.seconds[side].append(seconds)
        self.cpu_s[side].append(cpu_s)

    def median_s(self, side: str) -> float:
        return statistics.median(self.seconds[side])

    def report(self) -> dict[str, Any]:
        """The case's part of the JSON."""
        cpu = {side: statistics.median(spent) for side, spent in self.cpu_s.items()}
        return {
            "name": self.name,
            "group": self.group,
            "ratio": round(self.median_s(FLIGHT) / self.median_s(SORT), 3),
            "median_s": {side: round(self.median_s(side), 3) for side in (SORT, FLIGHT)},
            "median_cpu_s": {side: round(spent, 2) for side, spent in cpu.items()},
            "seconds": {side: [round(taken, 3) for taken in times] for side, times in self.seconds.items()},
        }


def groups(timings: Iterable[Timing]) -> dict[str, dict[str, float]]:
    """By group: the ratio of the sums of medians, and these sums in seconds."""
    sums: dict[str, defaultdict[str, float]] = {}
    for timing in timings:
        of_group = sums.setdefault(timing.group, defaultdict(float))
        for side in (SORT, FLIGHT):
            of_group[side] += timing.median_s(side)
    return {
        name: {"ratio": round(total[FLIGHT] / total[SORT], 3)} | {side: round(s, 3) for side, s in total.items()}
        for name, total in sums.items()
    }


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = ["| case | sort shuffle | Flight Shuffle | ratio |", "|---|---:|---:|---:|"]
    for case in report["cases"]:
        lines.append(_line(case["name"], case["median_s"][SORT], case["median_s"][FLIGHT], case["ratio"]))
    for name, total in report["groups"].items():
        lines.append(_line(f"all of {name}", total[SORT], total[FLIGHT], total["ratio"]))
    return "\n".join(lines)


def _line(name: str, sort_s: float, flight_s: float, ratio: float) -> str:
    return f"| {name} | {sort_s:.2f} s | {flight_s:.2f} s | {ratio:.2f} |"


def plot(report: dict[str, Any], target: Path) -> None:
    """A bar per case: its ratio. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = report["cases"]
    figure = Figure(figsize=(8, 1.2 + 0.25 * len(cases)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.barh([case["name"] for case in cases], [case["ratio"] for case in cases], color="#4477aa")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("seconds through Flight Shuffle / seconds through sort shuffle (below 1: Flight Shuffle is faster)")
    axes.set_title(
        f"{report['machine']['cpu']}, {report['machine']['cores']} cores, Spark {report['machine']['pyspark']}"
    )
    figure.savefig(target, dpi=120)
