"""The lists of metrics in docs/operations.md, made from the server's own list of metric families."""

import sys
from pathlib import Path

from shuffle_server.observe import families
from shuffle_server.observe.families import Family
from tools.options_doc import listed

DOCUMENT = Path(__file__).parents[1] / "docs" / "operations.md"
BEGIN, END = "<!-- metrics: written by scripts/generate-metrics -->\n", "<!-- end of metrics -->\n"


def document(text: str) -> str:
    """`text` with the lists between its two marks. Raises ValueError when a mark is missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{DOCUMENT.name} has no place for the metrics: {BEGIN.strip()} ... {END.strip()}")
    return before + BEGIN + "\n" + metrics() + "\n" + END + after


def metrics() -> str:
    """A list per role, in the order of the code. The type shows in the name, except of gauges."""
    groups: dict[str, list[str]] = {"Of all": [], "Of a master": [], "Of a worker": []}
    for family in families.ALL:
        group = "Of all" if family.parts == families.BOTH else f"Of a {family.parts[0]}"
        groups[group].append(f"- `{family.name}`{labels(family)}: {family.help}")
    return "\n".join(f"{title}:\n\n{listed(rows)}" for title, rows in groups.items())


def labels(family: Family) -> str:
    """In parentheses."""
    return f" ({', '.join(f'`{label}`' for label in family.labels)})" if family.labels else ""


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(document(DOCUMENT.read_text()))
