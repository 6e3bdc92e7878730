"""tools.demo.report: the table and the JSON document."""

import io
import json

import pytest

from tools.demo.report import Line, Report, size

EQUAL = Line("tpch", "Q1", 4, 1.0, 1.5, 2048, None)
DIFFERENT = Line("tpch", "Q2", 9, 1.0, 1.0, 0, "9 rows against 8")
FAILED = Line("tpch", "Q3", None, 1.0, None, 0, "flight failed: no server")


def shown(*lines: Line, as_json: bool = False, problems: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    report = Report(out, as_json=as_json, err=io.StringIO())
    report.header()
    for line in lines:
        report.add(line)
    report.finish(list(problems))
    return out.getvalue()


def test_table_has_a_row_per_query_and_a_total() -> None:
    rows = shown(EQUAL).splitlines()
    assert rows[1].split() == ["tpch", "Q1", "4", "1.00", "s", "1.50", "s", "2.0", "KiB", "equal"]
    assert rows[2].split() == ["total", "1.00", "s", "1.50", "s", "2.0", "KiB", "all", "equal"]


def test_table_shouts_what_differs_failed_or_was_left_behind() -> None:
    text = shown(EQUAL, DIFFERENT, FAILED, problems=("the server still holds 1 shuffles",))
    assert "DIFFERENT: 9 rows against 8" in text
    assert "failed" in text
    assert "2 of 3 DIFFERENT" in text
    assert "problem: the server still holds 1 shuffles" in text


def test_json_is_one_document_with_the_verdict() -> None:
    document = json.loads(shown(EQUAL, as_json=True))
    assert document["equal"] is True
    assert document["queries"][0]["bytes_pushed"] == 2048
    assert json.loads(shown(EQUAL, DIFFERENT, as_json=True))["equal"] is False
    assert json.loads(shown(EQUAL, as_json=True, problems=("left",)))["equal"] is False


@pytest.mark.parametrize(("count", "said"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_size_is_for_people(count: int, said: str) -> None:
    assert size(count) == said
