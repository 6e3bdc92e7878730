"""The table that `tests.dask_suite` makes of a run of pytest."""

from __future__ import annotations

from pathlib import Path

from tests.dask_suite.__main__ import read, table

REPORT = """<testsuites><testsuite>
<testcase name="test_a"/><testcase name="test_b[1]"><skipped message="calls functions"/></testcase>
<testcase name="test_c"><failure message="assert 1 == 2&#10;more"/></testcase>
</testsuite></testsuites>"""


def test_each_test_has_a_line_with_the_reason(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    lines = table(read(report)).split("\n")
    assert lines[2:] == [
        "| `test_a` | passed |  |",
        "| `test_b[1]` | not applicable | calls functions |",
        "| `test_c` | failed | assert 1 == 2 |",
        "",
        "1 passed, 1 not applicable, 1 failed",
    ]
