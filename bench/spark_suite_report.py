"""What `bench.spark_suite` says about the times it took: ratios, a table, a picture."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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

    def median_cpu_s(self, side: str) -> float:
        return statistics.median(self.cpu_s[side])

    def fork_ratios(self, rounds: int) -> dict[str, list[float]]:
        """By side: what its ratio would be in each fork alone. A fork has so many rounds."""
        forks = range(0, max(map(len, self.seconds.values())), rounds)
        alone = [
            ratios({side: statistics.median(times[at : at + rounds]) for side, times in self.seconds.items()})
            for at in forks
        ]
        return {side: [each[side] for each in alone] for side in alone[0]}

    def report(self, rounds: int) -> dict[str, Any]:
        """The case's part of the JSON."""
        wall_s = {side: self.median_s(side) for side in self.seconds}
        cpu_s = {side: self.median_cpu_s(side) for side in self.cpu_s}
        return {
            "name": self.name,
            "group": self.group,
            "ratio": ratios(wall_s),
            "cpu_ratio": ratios(cpu_s),
            "fork_ratios": self.fork_ratios(rounds),
            "median_s": {side: round(taken, 3) for side, taken in wall_s.items()},
            "median_cpu_s": {side: round(spent, 2) for side, spent in cpu_s.items()},
            "seconds": {side: [round(taken, 3) for taken in times] for side, times in self.seconds.items()},
        }


def ratios(spent: dict[str, float]) -> dict[str, float]:
    """Of each side but the first: its seconds over those of the first."""
    first, *others = spent
    return {side: round(spent[side] / spent[first], 3) for side in others}


def groups(timings: Iterable[Timing]) -> dict[str, dict[str, dict[str, float]]]:
    """By group: the sums of the medians in seconds, of wall and processor time, and their ratios."""
    wall: dict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    cpu: dict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for timing in timings:
        for side in timing.seconds:
            wall[timing.group][side] += timing.median_s(side)
            cpu[timing.group][side] += timing.median_cpu_s(side)
    return {
        name: {
            "ratio": ratios(wall[name]),
            "cpu_ratio": ratios(cpu[name]),
            "s": {side: round(spent, 3) for side, spent in wall[name].items()},
            "cpu_s": {side: round(spent, 2) for side, spent in cpu[name].items()},
        }
        for name in wall
    }


def table(report: dict[str, Any]) -> str:
    """The report as Markdown: seconds by side, and after each side but the first its ratio."""
    first, *others = report["parameters"]["sides"]
    lines = [_row(["case", first, *(title for side in others for title in (side, "ratio"))])]
    lines.append(_row(["---", "---:", *("---:" for _ in others for _ in range(2))]))
    totals = [(f"all of {name}", total["s"], total["ratio"]) for name, total in report["groups"].items()]
    for name, spent, ratio in [(c["name"], c["median_s"], c["ratio"]) for c in report["cases"]] + totals:
        figures = (text for side in others for text in (f"{spent[side]:.2f} s", f"{ratio[side]:.2f}"))
        lines.append(_row([name, f"{spent[first]:.2f} s", *figures]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def plot(report: dict[str, Any], target: Path) -> None:
    """A bar per case and side: its ratio. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = report["cases"]
    first, *others = report["parameters"]["sides"]
    figure = Figure(figsize=(8, 1.2 + 0.25 * len(cases) * max(1, len(others) * 0.8)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    height = 0.8 / max(1, len(others))
    for number, side in enumerate(others):
        places = [place + (number - (len(others) - 1) / 2) * height for place in range(len(cases))]
        axes.barh(places, [case["ratio"][side] for case in cases], height=height, label=side)
    axes.set_yticks(range(len(cases)), [case["name"] for case in cases])
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.legend()
    axes.set_xlabel(f"seconds / seconds through {first} shuffle (below 1: Flight Shuffle is faster)")
    axes.set_title(
        f"{report['machine']['cpu']}, {report['machine']['cores']} cores, Spark {report['machine']['pyspark']}"
    )
    figure.savefig(target, dpi=120)
