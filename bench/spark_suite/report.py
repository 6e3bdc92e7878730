"""What `bench.spark_suite` reports about the times it took: ratios, stages, a table."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.harness import program
from bench.spark_jobs import Stage


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one case, by side: wall time, and processor time of all the side's processes."""

    name: str
    group: str
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    stages: defaultdict[str, list[tuple[Stage, ...]]] = field(default_factory=lambda: defaultdict(list))
    threads: dict[str, dict[str, defaultdict[str, float]]] = field(default_factory=dict)

    def add(self, side: str, seconds: float, cpu_s: float) -> None:
        self.seconds[side].append(seconds)
        self.cpu_s[side].append(cpu_s)

    def add_stages(self, side: str, stages: tuple[Stage, ...], threads: dict[str, dict[str, float]]) -> None:
        """Spark's own figures of a run, and processor time by process and thread."""
        self.stages[side].append(stages)
        for process, spent in threads.items():
            sums = self.threads.setdefault(side, {}).setdefault(process, defaultdict(float))
            for thread, seconds in spent.items():
                sums[thread] += seconds

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
        report = {
            "name": self.name,
            "group": self.group,
            "ratio": ratios(wall_s),
            "cpu_ratio": ratios(cpu_s),
            "more_s": more(self.seconds),
            "fork_ratios": self.fork_ratios(rounds),
            "median_s": {side: round(taken, 3) for side, taken in wall_s.items()},
            "median_cpu_s": {side: round(spent, 2) for side, spent in cpu_s.items()},
            "seconds": {side: [round(taken, 3) for taken in times] for side, times in self.seconds.items()},
        }
        if self.stages:
            report["stages"] = {side: list(map(_mean, zip(*runs, strict=True))) for side, runs in self.stages.items()}
            report["threads_cpu_s"] = {
                side: {name: _per_run(spent, len(self.seconds[side])) for name, spent in processes.items()}
                for side, processes in self.threads.items()
            }
        return report


def _mean(stages: tuple[Stage, ...]) -> dict[str, float]:
    means = {name: statistics.mean(asdict(stage)[name] for stage in stages) for name in asdict(stages[0])}
    return {name: round(mean, 3) if name.endswith("_s") else round(mean) for name, mean in means.items()}


def _per_run(threads: dict[str, float], runs: int) -> dict[str, float]:
    means = {thread: round(spent / runs, 2) for thread, spent in threads.items()}
    return dict(sorted(((t, s) for t, s in means.items() if s > 0), key=lambda pair: -pair[1]))


def ratios(spent: dict[str, float]) -> dict[str, float]:
    """Of each side but the first: its seconds over those of the first."""
    first, *others = spent
    return {side: round(spent[side] / spent[first], 3) for side in others}


def more(spent: dict[str, list[float]]) -> dict[str, float]:
    """Of each side but the first: the median of what its runs took longer than those of the first beside them."""
    first, *others = spent
    pairs = {side: zip(spent[side], spent[first], strict=True) for side in others}
    return {side: round(statistics.median(own - its for own, its in pair), 3) for side, pair in pairs.items()}


def figures(timings: Collection[Timing], rounds: int) -> dict[str, Any]:
    """The part of the JSON about warm runs, or about cold ones."""
    return {"groups": groups(timings), "cases": [timing.report(rounds) for timing in timings]}


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
    """The report as Markdown: seconds by side, and after each side but the first its ratio; cold runs first."""
    first, *others = report["parameters"]["sides"]
    rows = []
    for runs, part in [("cold", report.get("cold")), ("warm", report)]:
        for name, spent, ratio in _lines(part) if part else ():
            figures = (text for side in others for text in (f"{spent[side]:.2f} s", f"{ratio[side]:.2f}"))
            rows.append([runs, name, f"{spent[first]:.2f} s", *figures])
    return program.table(["runs", "case", first, *(title for side in others for title in (side, "ratio"))], rows)


def _lines(part: dict[str, Any]) -> list[tuple[str, dict[str, float], dict[str, float]]]:
    cases = [(case["name"], case["median_s"], case["ratio"]) for case in part["cases"]]
    return cases + [(f"all of {name}", total["s"], total["ratio"]) for name, total in part["groups"].items()]
