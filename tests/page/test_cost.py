"""`python -m tests.page --parts cost` in short."""

from pathlib import Path

import pytest

from tests.page import cost

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def test_both_kinds_of_work_have_figures_and_the_log_grows_with_neither(tmp_path: Path) -> None:
    report = cost.measure(tmp_path, 2, warm_up=0, seconds=2.0, shuffles=5)
    for kind in ("commits", "tiny_jobs"):
        found = report[kind]
        assert found["seconds"] > 0
        assert found["server_cpu"] > 0
        assert found["log_lines"] <= 1
        assert found["events"] <= 1
