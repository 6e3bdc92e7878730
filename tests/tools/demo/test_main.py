"""tools.demo.__main__: the exit status follows from the results. Both sides and the server are stand-ins here."""

import argparse
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tools.demo import __main__ as demo
from tools.demo.report import Report

Rows = list[int]


class StandInServer:
    control, pid = "127.0.0.1:1", 0
    pushed = 0
    left: list[str] = []  # noqa: RUF012 - set by the tests

    def __init__(self, *_: object) -> None: ...
    def __enter__(self) -> "StandInServer":
        return self

    def __exit__(self, *_: object) -> None: ...
    def stop(self) -> None: ...
    def status(self) -> SimpleNamespace:
        return SimpleNamespace(bytes_pushed=StandInServer.pushed, shuffles=StandInServer.left)


class StandInSide:
    """Answers each query with rows, or with an error."""

    answers: dict[str, Rows | str] = {}  # noqa: RUF012 - set by the tests

    def __init__(self, name: str, scratch: Path, *_: object) -> None:
        self.name, self.results = name, scratch / f"{name}-results"

    def __enter__(self) -> "StandInSide":
        return self

    def __exit__(self, *_: object) -> None: ...
    def stop(self) -> None: ...
    def plan(self) -> list[dict[str, Any]]:
        return [{"section": "test", "name": "q", "ordered_by": []}]

    def run(self, number: int) -> dict[str, Any]:
        answer = StandInSide.answers[self.name]
        if self.name == "flight":
            StandInServer.pushed += 100
        if isinstance(answer, str):
            return {"error": answer}
        (self.results / str(number)).mkdir(parents=True)
        parquet.write_table(pa.table({"k": answer}), self.results / str(number) / "part-0.parquet")
        return {"seconds": 0.5}


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ServerProcess", StandInServer)
    monkeypatch.setattr(demo, "Side", StandInSide)
    monkeypatch.setattr(demo, "spark_conf", lambda *_, **__: {})
    monkeypatch.setattr(demo, "prepare", lambda *_: [])
    monkeypatch.setattr(demo, "RELEASE_TIMEOUT_S", 0.0)
    StandInServer.pushed, StandInServer.left = 0, []


def run(tmp_path: Path, sort: Rows | str, flight: Rows | str) -> tuple[int, str]:
    StandInSide.answers = {"sort": sort, "flight": flight}
    out = io.StringIO()
    status = demo.run(
        argparse.Namespace(memory="1g", timeout=1.0), tmp_path, Report(out, as_json=False, err=io.StringIO())
    )
    return status, out.getvalue()


def test_equal_results_are_status_0(tmp_path: Path) -> None:
    status, said = run(tmp_path, [1, 2], [2, 1])
    assert status == 0
    assert "100 B  equal" in said
    assert not list((tmp_path / "flight-results").iterdir())


def test_a_wrong_row_is_status_1(tmp_path: Path) -> None:
    status, said = run(tmp_path, [1, 2], [1, 3])
    assert status == 1
    assert "DIFFERENT: only in the first: (2,)" in said


def test_a_failed_query_is_status_1_and_says_why(tmp_path: Path) -> None:
    status, said = run(tmp_path, [1], "PySparkException: fetch failed")
    assert status == 1
    assert "flight failed: PySparkException: fetch failed" in said


def test_shuffles_left_on_the_server_are_status_1(tmp_path: Path) -> None:
    StandInServer.left = ["demo/0"]
    status, said = run(tmp_path, [1], [1])
    assert status == 1
    assert "still holds 1 shuffles" in said


def test_a_run_that_bypassed_the_server_is_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInServer, "status", lambda _: SimpleNamespace(bytes_pushed=0, shuffles=[]))
    status, said = run(tmp_path, [1], [1])
    assert status == 1
    assert "no byte went through the server" in said
