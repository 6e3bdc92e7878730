"""deploy/monitoring: Grafana's boards and Prometheus' alert rules, made from the server's own list of metric families.

A family without a panel of its own gets one by its kind, so no metric is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shuffle_server.observe import families as of
from shuffle_server.observe.families import Family
from tools.alert_rules import rules_document, series

DIRECTORY = Path(__file__).parents[1] / "deploy" / "monitoring"
CHART_RULES = Path(__file__).parents[1] / "deploy" / "helm" / "flight-shuffle" / "alerts.yaml"
WIDTH, HEIGHT, ACROSS = 8, 7, 24  # of a panel, and of a board, in Grafana's columns
SELECTED = 'job=~"$job", instance=~"$instance"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph: what is drawn, by legend, and of which families that is."""

    title: str
    queries: dict[str, str]
    shows: tuple[Family, ...]
    unit: str
    text: str = ""


@dataclass(slots=True)
class Row:
    title: str
    panels: list[Panel] = field(default_factory=list)
    collapsed: bool = False


def graph(title: str, unit: str, *families: Family, by: str = "instance", **labels: str) -> Panel:
    """The value of gauges, the rate of counters, the 50th and 99th percentile of histograms."""
    queries: dict[str, str] = {}
    for family in families:
        mine = {label: value for label, value in labels.items() if label in family.labels}
        rest = [label for label in family.labels if label not in mine]
        groups = [*([by] if by else []), *rest]
        name = family.name.removeprefix(of.PREFIX).removesuffix("_total")
        words = " ".join(
            [*(f"{{{{{group}}}}}" for group in groups), *([name] if len(families) > 1 or not groups else [])]
        )
        if family.kind == "histogram":
            rate = f"rate({series(family, '_bucket', SELECTED, **mine)}[$__rate_interval])"
            for part in (0.5, 0.99):
                legend = f"{words or name} p{part * 100:.0f}".strip()
                queries[legend] = f"histogram_quantile({part}, sum by ({', '.join([*groups, 'le'])}) ({rate}))"
        else:
            value = series(family, "", SELECTED, **mine)
            value = f"rate({value}[$__rate_interval])" if family.kind == "counter" else value
            queries[words] = f"sum by ({', '.join(groups)}) ({value})" if groups else f"sum({value})"
    return Panel(title, queries, families, unit, " ".join(family.help for family in families))


def cluster() -> list[Row]:
    """For who asks whether all is well."""
    traffic = graph("Payload in and out", "binBps", of.PUSHED_BYTES, of.PULLED_BYTES, by="")
    return [
        Row(
            "Is all well?",
            [
                graph("Ready", "none", of.READY),
                graph("Leads", "none", of.LEADER),
                graph("Workers, applications, shuffles", "none", of.WORKERS, of.APPS, of.SHUFFLES, by=""),
                graph("Lost: workers, map outputs", "none", of.WORKERS_LOST, of.OUTPUTS_LOST, by=""),
                graph("Refusals", "ops", of.REFUSALS, by=""),
                graph("Data directories out", "none", of.DISK_OUT),
            ],
        ),
        Row(
            "Traffic",
            [
                traffic,
                graph("Payload that crossed no socket", "binBps", of.HANDED_OVER_BYTES, by=""),
                graph("Streams", "none", of.STREAMS, by=""),
                graph("Pushes", "s", of.PUSH_SECONDS, by=""),
                graph("Commits", "s", of.COMMIT_SECONDS, by=""),
                graph("First byte of a pull", "s", of.PULL_FIRST_BYTE, by=""),
            ],
        ),
        Row(
            "What is held",
            [
                graph("Map outputs", "none", of.MAP_OUTPUTS, by=""),
                graph("Payload of map outputs", "bytes", of.MAP_OUTPUT_BYTES, by=""),
                graph("Free in data directories", "bytes", of.DISK_FREE),
                graph("Memory budget used", "bytes", of.POOL_USED, of.POOL_BUDGET, by=""),
                graph("Streams that wait for memory", "none", of.POOL_WAITING),
                graph("Registry's files", "bytes", of.JOURNAL_BYTES),
            ],
        ),
        Row(
            "Master",
            [
                graph("Control calls", "s", of.CONTROL_SECONDS, by=""),
                graph("Control calls in line", "none", of.CONTROL_CALLS, by=""),
                graph("Applications removed", "ops", of.APPS_REMOVED, by=""),
            ],
        ),
    ]


def workers() -> list[Row]:
    """For who asks what a worker waits for."""
    return [
        Row(
            "Traffic",
            [
                graph("Payload in", "binBps", of.PUSHED_BYTES, of.DISCARDED_BYTES),
                graph("Payload out", "binBps", of.PULLED_BYTES),
                graph("Streams", "none", of.STREAMS),
                graph("Pushes", "s", of.PUSH_SECONDS),
                graph("First byte of a pull", "s", of.PULL_FIRST_BYTE),
                graph("Commits", "ops", of.COMMITS),
            ],
        ),
        Row(
            "Memory and back-pressure",
            [
                graph("Memory used", "bytes", of.POOL_USED, of.POOL_LENT, of.POOL_OUTGOING),
                graph("Waiting for memory", "none", of.POOL_WAITING),
                graph("Senders that wait for credit", "none", of.CREDIT_STALL_SECONDS),
                graph("Pushes refused, pulls cut", "ops", of.POOL_REFUSALS, of.PULLS_CUT),
                graph("Memory is short", "none", of.POOL_PRESSED),
                graph("Longest wait", "s", of.POOL_OLDEST_WAIT),
            ],
        ),
        Row(
            "Disks",
            [
                graph("Free", "bytes", of.DISK_FREE),
                graph("Held", "bytes", of.STORED_BYTES),
                graph("Commits", "s", of.COMMIT_SECONDS),
                graph("Reads go to the disks", "none", of.DISK_BOUND),
                graph("Compaction", "ops", of.COMPACTION),
                graph("Rewritten by compaction", "binBps", of.REWRITTEN_BYTES),
            ],
        ),
        Row(
            "Who connects",
            [
                graph("Connections", "none", of.CONNECTIONS),
                graph("Connections cut", "ops", of.CONNECTIONS_CUT),
                graph("Tokens", "ops", of.TOKEN_CHECKS),
            ],
        ),
    ]


def rest(rows: Sequence[Row]) -> Iterator[Panel]:
    """A panel for each family that none of the rows shows."""
    shown = {family.name for row in rows for panel in row.panels for family in panel.shows}
    for family in of.ALL:
        if family.name not in shown:
            shown.add(family.name)
            yield graph(family.name.removeprefix(of.PREFIX), unit_of(family), family)


def unit_of(family: Family) -> str:
    """Grafana's unit, from the family's name."""
    base = family.name.removesuffix("_total")
    if family.kind == "counter":
        return "binBps" if base.endswith("_bytes") else "none" if base.endswith("_seconds") else "ops"
    return "bytes" if base.endswith("_bytes") else "s" if base.endswith("_seconds") else "none"


def board(uid: str, title: str, rows: Sequence[Row]) -> str:
    """Grafana's JSON."""
    document = {
        "uid": f"flight-shuffle-{uid}",
        "title": f"Flight Shuffle: {title}",
        "description": "Written by scripts/generate-monitoring.",
        "tags": ["flight-shuffle"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "links": [{"type": "dashboards", "tags": ["flight-shuffle"], "title": "Boards", "keepTime": True}],
        "panels": list(_panels(rows)),
    }
    return json.dumps(document, indent=1) + "\n"


def _variables() -> list[Document]:
    ready = of.READY.name
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    asked = {"job": f"label_values({ready}, job)", "instance": f'label_values({ready}{{job=~"$job"}}, instance)'}
    return [
        source,
        *(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": DATASOURCE,
                "query": query,
                "refresh": 2,
                "includeAll": True,
                "multi": True,
                "allValue": ".+",
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in asked.items()
        ),
    ]


def _panels(rows: Sequence[Row]) -> Iterator[Document]:
    number, y = 0, 0
    for row in rows:
        placed = []
        for at, panel in enumerate(row.panels):
            column, line = at % (ACROSS // WIDTH), at // (ACROSS // WIDTH)
            grid = {"x": column * WIDTH, "y": y + 1 + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            placed.append(_panel(number + 1 + at, panel, grid))
        head = {"id": number, "type": "row", "title": row.title, "collapsed": row.collapsed, "panels": []}
        head["gridPos"] = {"x": 0, "y": y, "w": ACROSS, "h": 1}
        if row.collapsed:
            yield head | {"panels": placed}
            y += 1
        else:
            yield head
            yield from placed
            y += 1 + HEIGHT * -(-len(placed) // (ACROSS // WIDTH))
        number += 1 + len(placed)


def _panel(number: int, panel: Panel, grid: Document) -> Document:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
        for at, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "gridPos": grid,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def documents() -> dict[str, str]:
    """Each file of deploy/monitoring."""
    overview, each = cluster(), workers()
    left = [panel for panel in rest([*overview, *each]) if panel.shows[0] is not of.BUILD]
    detail = [*each, Row("Everything else", left, collapsed=True)]
    return {
        "alerts.yaml": rules_document(),
        "cluster.json": board("cluster", "cluster", overview),
        "workers.json": board("workers", "workers", detail),
    }


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    for file, text in documents().items():
        (directory / file).write_text(text)
    if directory.resolve() == DIRECTORY:
        CHART_RULES.write_text(documents()["alerts.yaml"])
