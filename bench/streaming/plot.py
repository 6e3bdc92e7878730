"""The report as a picture. Needs matplotlib (extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = {"flight": "#1f77b4", "flink": "#ff7f0e", "flight_relayed": "#2ca02c"}


def draw(report: dict[str, Any], path: Path) -> None:
    """One PNG: records per second of every point at saturation, and the latency of every offered load."""
    figure = Figure(figsize=(13, 5), layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state
    speed, latency = figure.subplots(1, 2)
    full = [point for point in report["points"] if not point["rate"]]
    loaded = sorted((point for point in report["points"] if point["rate"]), key=lambda point: float(point["rate"]))
    for number, (side, colour) in enumerate(COLOURS.items()):
        own = [(at, point["sides"][side]) for at, point in enumerate(full) if side in point["sides"]]
        if own:
            where = [at + 0.4 * number for at, _ in own]
            speed.barh(where, [found["records_s"] for _, found in own], 0.4, label=side, color=colour)
        for name, style in (("p50_ms", "o:"), ("p99_ms", "s-")):
            known = [point for point in loaded if point["sides"].get(side, {}).get(name)]
            if known:
                heights = [point["sides"][side][name] for point in known]
                rates = [f"{point['rate']:,.0f}" for point in known]
                latency.plot(rates, heights, style, color=colour, label=f"{side} {name.removesuffix('_ms')}")
    speed.set_yticks([at + 0.2 for at in range(len(full))], [point["name"] for point in full])
    speed.set(title="at saturation", xlabel="records/s")
    latency.set(title="one way, by offered load", xlabel="records/s", ylabel="ms", yscale="log")
    for axes in (speed, latency):
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    machine = report["machine"]
    figure.suptitle(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']}, {report['date']}")
    figure.savefig(path, format="png", dpi=110)
