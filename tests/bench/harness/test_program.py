"""bench.harness.program: options and reports of all benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.harness import program


def test_options_have_the_type_of_their_default_and_lists_take_several_values() -> None:
    parser = program.parser("some", "What it measures.\n\nMore.")
    program.add_options(parser, rows=(10, "of the input"), rate=(0.5, "per second"), batch_kib=([1, 2], "of a message"))
    options = parser.parse_args(["--rows", "3", "--rate", "2", "--batch-kib", "4", "8"])
    assert (options.rows, options.rate, options.batch_kib) == (3, 2.0, [4, 8])
    assert parser.parse_args([]).batch_kib == [1, 2]
    assert parser.description == "What it measures."


def test_a_wrong_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = program.parser("some", None)
    program.add_options(parser, threads=([1], "at a time"))
    with pytest.raises(SystemExit):
        parser.parse_args(["--threads", "many"])
    assert "--threads: invalid int value: 'many'" in capsys.readouterr().err


def test_a_value_may_contain_the_sign_between_it_and_its_name() -> None:
    assert program.pairs(["a=1", "b=c=d"]) == {"a": "1", "b": "c=d"}


def test_a_report_is_printed_and_written_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = program.heading("some", {"rows": 3})
    assert list(report) == ["benchmark", "date", "machine", "parameters"]
    assert {"cpu", "cores", "load_before", "java", "pyspark", "pyarrow"} <= set(report["machine"])
    program.publish(report, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert capsys.readouterr().out == (tmp_path / "report.json").read_text()


def test_a_table_is_one_of_markdown() -> None:
    assert program.table(("case", "s"), [("one", "1.5")]) == "| case | s |\n| --- | --- |\n| one | 1.5 |"
