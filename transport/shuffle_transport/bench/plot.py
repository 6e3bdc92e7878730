"""The report as a picture. Needs matplotlib (extra `plot`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from shuffle_transport.bench.case_codecs import PACKED, RAW_IPC
from shuffle_transport.bench.case_sizes import CHECKED
from shuffle_transport.bench.contender import CREDIT, RAW, RAW_POLLING, REMOTE, TCP
from shuffle_transport.bench.table import size

COLOURS = {
    CREDIT: "#1f77b4",
    CHECKED: "#9ecae1",
    RAW: "#ff7f0e",
    RAW_POLLING: "#ffbb78",
    REMOTE: "#2ca02c",
    TCP: "#7f7f7f",
    RAW_IPC: "#d62728",
    PACKED: "#9467bd",
}
Points = list[dict[str, Any]]


def draw(report: dict[str, Any], path: Path) -> None:
    """One PNG: throughput by size, by channels and by codec, delay by load. Cases that were not run are left empty."""
    figure = Figure(figsize=(14, 8), layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state
    grid = figure.subplots(2, 3)
    cases = report["cases"]
    for axes, way in zip(grid[0], ("put", "get", "exchange"), strict=True):
        points = [point for point in cases.get("sizes", []) if point["way"] == way]
        _lines(axes, points, lambda p: size(p["block_bytes"]), "gib_s")
        axes.set(title=f"{way}, one stream", xlabel="block", ylabel="GiB/s")
    by_channels, by_codec, by_load = grid[1]
    _lines(by_channels, cases.get("channels", []), lambda p: str(p["channels"]), "gib_s")
    by_channels.set(title="put, channels on one connection", xlabel="channels", ylabel="GiB/s")
    _bars(by_codec, cases.get("codecs", []))
    by_codec.set(title="put by codec, bytes before compression", ylabel="GiB/s")
    _lines(by_load, cases.get("load", []), lambda p: f"{p['blocks_s'] // 1000} k", "p99", scale="log")
    by_load.set(title="p99 one way, from when a block was due", xlabel="blocks/s offered", ylabel="µs")
    named = {name: drawn for axes in grid.flat for drawn, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    if named:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(COLOURS))
    machine = report["machine"]
    figure.suptitle(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']}, {report['date']}")
    figure.savefig(path, format="png", dpi=110)


def _lines(
    axes: Axes, points: Points, label: Callable[[dict[str, Any]], str], field: str, *, scale: str = "linear"
) -> None:
    for name in dict.fromkeys(name for point in points for name in point["sides"]):
        own = [point for point in points if name in point["sides"]]
        heights = [point["sides"][name][field] for point in own]
        axes.plot([label(point) for point in own], heights, marker="o", label=name, color=COLOURS[name])
    axes.grid(alpha=0.3)
    if scale == "log":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _bars(axes: Axes, points: Points) -> None:
    names = list(dict.fromkeys(name for point in points for name in point["sides"]))
    for place, name in enumerate(names):
        own = [(at, point["sides"][name]["gib_s"]) for at, point in enumerate(points) if name in point["sides"]]
        axes.bar(
            [at + 0.2 * (place - 1.5) for at, _ in own], [h for _, h in own], 0.19, label=name, color=COLOURS[name]
        )
    axes.set_xticks(range(len(points)), [f"{point['codec']}\n{point['data']}" for point in points])
    axes.grid(axis="y", alpha=0.3)
