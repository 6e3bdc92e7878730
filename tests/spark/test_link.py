"""What comes over a slow link; ``python -m tests.spark.link`` measures jobs beside sort shuffle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.network_namespace import namespace, why_not
from tests.spark import link

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(autouse=True)
def needs_a_namespace() -> None:
    if missing := why_not():
        pytest.skip(f"this needs a network namespace: {missing}")


def test_executors_of_two_hosts_shuffle_over_the_link_and_half_of_the_bytes_cross_it(tmp_path: Path) -> None:
    file = tmp_path / "link.json"
    assert link.main(f"--scale 0.02 --rows 100000 --queries 3 --rounds 1 --input {tmp_path} --json {file}".split()) == 0
    groups = json.loads(file.read_text())["groups"]
    for group in groups.values():
        assert group["link_ratio"] > 0.3, "the blocks of the other host do not cross the link"
    assert groups["partitions"]["link_mib"]["flight"] > 2, "a block that this host does not have crossed no link"


def test_link_takes_so_much_and_counts_it() -> None:
    with namespace() as made:
        made.limit(100)
        before = made.carried()
        with made.run("-c", f"import socket; socket.create_connection(('{made.here}', 1), 5)") as refused:
            assert refused.wait(60) != 0
        assert made.carried() > before
