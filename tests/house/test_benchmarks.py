"""docs/benchmarks keeps one result per benchmark, and the tables of Spark's figures are those of the kept result."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "benchmarks"
FILES = 12
CASES = {  # a row of the tables: which report of the file, which case; none is the sum of the group
    "TPC-H, scale 5, 22 queries": (0, None),
    "10 million rows into 64 partitions": (1, "into 64"),
    "into 500": (1, "into 500"),
    "into 5,000": (2, "into 5000"),
    "50 tiny jobs": (3, "50 tiny"),
    "random bytes": (4, "random bytes"),
}
ON_THE_FRONT_PAGE = {
    "into 500 partitions": "into 500",
    "into 5,000 partitions": "into 5,000",
    "50 jobs that shuffle next to nothing": "50 tiny jobs",
    "random bytes, which sort shuffle does not compress": "random bytes",
}


def ratios(row: str) -> list[str]:
    report, case = CASES[row]
    measured = json.loads((KEPT / "spark_suite.json").read_text())[report]
    found = measured["groups"]["tpch"] if case is None else {c["name"]: c for c in measured["cases"]}[case]
    return [f"{found['ratio'][side]:.2f}" for side in ("flight", "wire")]


def test_few_results_are_kept_and_each_is_named() -> None:
    results = sorted(path.name for path in KEPT.iterdir() if path.suffix != ".md")
    text = (KEPT / "README.md").read_text()
    assert len(results) <= FILES
    assert [name for name in results if f"]({name})" not in text] == []


def test_figures_of_spark_are_those_of_the_result() -> None:
    text = (KEPT / "README.md").read_text()
    for row in CASES:
        [cells] = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", text, re.MULTILINE)
        assert [cells.split("|")[number].strip() for number in (3, 5)] == ratios(row), row


def test_figures_on_the_front_page_are_those_of_the_result() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (\d\.\d+) \| (\d\.\d+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == len(CASES)
    for name, *shown in rows:
        assert shown == ratios(ON_THE_FRONT_PAGE.get(name, name)), name
