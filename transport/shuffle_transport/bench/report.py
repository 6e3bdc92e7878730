"""The report for people: as tables, and as a picture, which needs matplotlib (extra `plot`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shuffle_transport.bench.contender import CHECKED, CREDIT, PACKED, RAW, RAW_IPC, RAW_POLLING, REMOTE, TCP
from shuffle_transport.bench.plan import KIB, MIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = dict[str, Any]


def tables(report: dict[str, Any]) -> str:
    """All of the report that is worth reading at once."""
    machine, limits = report["machine"], report["limits_gib_s"]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, load before {machine['load_before']}, {report['date']}\n"
        f"limits: memcpy {limits['memcpy']} GiB/s, one loopback TCP stream {limits['loopback_tcp']} GiB/s\n"
        f"medians of {report['parameters']['rounds']} rounds; x = ratio to raw Flight, median of pairs\n"
    ]
    parts += [_case(name, points) for name, points in report["cases"].items() if points]
    parts.append(_table("targets", ("", "figure", "limit", "met"), map(_target, report["targets"])))
    return "\n".join(parts)


def _case(name: str, points: list[Point]) -> str:
    return _TABLES[name](points)


def _speeds(title: str, label: Callable[[Point], Sequence[str]], *labels: str) -> Callable[[list[Point]], str]:
    def table(points: list[Point]) -> str:
        names = list(dict.fromkeys(name for point in points for name in point["sides"]))
        rows = [[*label(point), *(_speed(point["sides"].get(name)) for name in names)] for point in points]
        return _table(title, (*labels, *names), rows)

    return table


def _speed(side: Point | None) -> str:
    if side is None:
        return ""
    cpu = sum(side["cpu_s_per_gib"].values())
    return f"{side['gib_s']:.2f}  x{side['ratio']['median']:.2f}  {cpu:.2f} s"


def _delays(title: str, label: Callable[[Point], str], heading: str) -> Callable[[list[Point]], str]:
    def table(points: list[Point]) -> str:
        rows = [
            [label(point), name, *(f"{side[at]:.0f}" for at in ("p50", "p99", "p99_9", "max"))]
            for point in points
            for name, side in point["sides"].items()
        ]
        return _table(title, (heading, "", "p50", "p99", "p99.9", "max"), rows)

    return table


def _isolation(points: list[Point]) -> str:
    rows = [
        [p["side"], str(p["channels"]), f"{p['kept']['median']:.2f}", *_growths(p["growth_bytes"]["one_stopped"])]
        for p in points
    ]
    return _table("one consumer stopped: others keep; memory growth, MiB", ("", "channels", "kept", *_ENDS), rows)


def _memory(points: list[Point]) -> str:
    rows = [[p["side"], str(p["budget_bytes"] // MIB), *_growths(p["growth_bytes"])] for p in points]
    return _table("slow consumers: memory growth by the pool's budget, MiB", ("", "budget", *_ENDS), rows)


def _growths(growth: dict[str, int]) -> list[str]:
    return [f"{growth[end] / MIB:.0f}" for end in _ENDS]


def _target(target: Point) -> list[str]:
    limit = f">= {target['at_least']:g}" if target["at_least"] is not None else f"<= {target['at_most']:g}"
    figure = "not measured" if target["figure"] is None else f"{target['figure']:.4g} {target['unit']}"
    return [target["name"], figure, limit, {True: "yes", False: "NO", None: ""}[target["met"]]]


def _table(title: str, heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(heading), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join([f"# {title}", *text, ""])


def sent(point: Point) -> str:
    """Bytes sent per raw byte, of each kind of credit stream."""
    return " / ".join(f"{part:.2f}" for part in point["sent_part"].values())


def size(count: int) -> str:
    """4 KiB, 1 MiB."""
    return f"{count // MIB} MiB" if count >= MIB else f"{count // KIB} KiB"


_ENDS = ("client", "peer")
_UNITS = "GiB/s, ratio, processor seconds per GiB of both ends"
_TABLES: dict[str, Callable[[list[Point]], str]] = {
    "sizes": _speeds(f"by block size, {_UNITS}", lambda p: (p["way"], size(p["block_bytes"])), "", "block"),
    "messages": _speeds(f"one block per message, {_UNITS}", lambda p: (p["way"], size(p["block_bytes"])), "", "block"),
    "channels": _speeds(f"by channels on one connection, {_UNITS}", lambda p: (str(p["channels"]),), "channels"),
    "codecs": _speeds(f"by codec, raw bytes, {_UNITS}", lambda p: (p["codec"], p["data"], sent(p)), "", "", "sent"),
    "latency": _delays("round trip, us", lambda p: f"{p['bytes']} B", "message"),
    "load": _delays("one way at offered load, us", lambda p: f"{p['blocks_s']}", "blocks/s"),
    "isolation": _isolation,
    "memory": _memory,
}

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


def draw(report: dict[str, Any], path: Path) -> None:
    """One PNG: throughput by size, by channels and by codec, delay by load. Cases that were not run are left empty."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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
    axes: Axes, points: list[Point], label: Callable[[dict[str, Any]], str], field: str, *, scale: str = "linear"
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


def _bars(axes: Axes, points: list[Point]) -> None:
    names = list(dict.fromkeys(name for point in points for name in point["sides"]))
    for place, name in enumerate(names):
        own = [(at, point["sides"][name]["gib_s"]) for at, point in enumerate(points) if name in point["sides"]]
        axes.bar(
            [at + 0.2 * (place - 1.5) for at, _ in own], [h for _, h in own], 0.19, label=name, color=COLOURS[name]
        )
    axes.set_xticks(range(len(points)), [f"{point['codec']}\n{point['data']}" for point in points])
    axes.grid(axis="y", alpha=0.3)
