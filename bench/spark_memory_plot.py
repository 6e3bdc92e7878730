"""The report of `bench.spark_memory` as a picture: the ratios of time and bytes, point by point."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 360, 60, 50, 110
FONT = 'font-family="sans-serif" font-size="12"'
SERIES = (("time", "ratio", "#1f77b4"), ("bytes", "bytes_ratio", "#ff7f0e"))


def draw(report: dict[str, Any]) -> str:
    """An SVG. A point at which a side failed has no mark, and says so."""
    points = report["points"]
    top: float = max([1.5, *(point[name] for point in points for _, name, _ in SERIES if point[name] is not None)])
    step = (WIDTH - LEFT - 20) / max(1, len(points))

    def height(ratio: float) -> float:
        return HEIGHT - BOTTOM - ratio / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">Flight Shuffle to sort shuffle, by cores, heap and partitions</text>',
    ]
    for at in (0.0, 0.5, 1.0, *([1.5] if top >= 1.5 else [])):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{height(at):.1f}" y2="{height(at):.1f}" '
            f'stroke="{"#555" if at == 1 else "#ddd"}"/><text x="{LEFT - 30}" y="{height(at) + 4:.1f}">{at:.1f}</text>'
        )
    for number, (title, name, colour) in enumerate(SERIES):
        marks = [(LEFT + step * (i + 0.5), point[name]) for i, point in enumerate(points)]
        known = [(x, height(ratio)) for x, ratio in marks if ratio is not None]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in known]
        parts.append(f'<text x="{WIDTH - 160 + 80 * number}" y="22" fill="{colour}">{title}</text>')
    for i, point in enumerate(points):
        x, y = LEFT + step * (i + 0.5), HEIGHT - BOTTOM + 14
        failed = "".join(f", {side} failed" for side in point["failed"])
        text = escape(f"local[{point['cores']}] {point['memory']} {point['partitions']}{failed}")
        parts.append(f'<text transform="translate({x:.1f} {y}) rotate(35)">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
