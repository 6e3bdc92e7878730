"""The report as a table of Markdown."""

from __future__ import annotations

from typing import Any

HEAD = ("benchmark", "side", "records/s", "p50 ms", "p99 ms", "checkpoint ms", "times Flink's")


def table(report: dict[str, Any]) -> str:
    """A row per point and side."""
    rows = [HEAD, tuple("---" for _ in HEAD)]
    for point in report["points"]:
        for side, found in point["sides"].items():
            ratio = point.get("times_flink", {}) if side == "flight" else {}
            rows.append(
                (
                    point["name"],
                    side,
                    f"{found['records_s']:,.0f}",
                    _number(found.get("p50_ms")) if point["rate"] else "",
                    _number(found.get("p99_ms")) if point["rate"] else "",
                    _number(found.get("checkpoint_ms")),
                    ", ".join(_ratios(ratio, loaded=bool(point["rate"]))),
                )
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _ratios(ratio: dict[str, float], *, loaded: bool) -> list[str]:
    if loaded:
        return [f"{name.removesuffix('_ms')} {ratio[name]:.2f}" for name in ("p50_ms", "p99_ms") if name in ratio]
    return [f"{ratio['records_s']:.2f}"] if "records_s" in ratio else []


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
