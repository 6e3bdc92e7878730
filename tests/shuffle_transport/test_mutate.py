"""The program that breaks the transport's rules: it runs, and the tests that it calls can fail in its copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.shuffle_transport.mutate import ROOT, read_mutations

PROGRAM = Path(__file__).with_name("mutate.py")


def mutate(*names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROGRAM, *names], capture_output=True, text=True, timeout=240, check=False)


def test_each_mutation_is_of_something_that_is_there_once() -> None:
    stale = [each.label for each in read_mutations() if (ROOT / each.file).read_text().count(each.old) != 1]
    assert stale == []


@pytest.mark.parametrize(
    "name", ["credits: grant off by one", pytest.param("channels/receiver: ", marks=pytest.mark.nightly)]
)
def test_a_broken_rule_is_found(name: str) -> None:
    first = next(each.label for each in read_mutations() if each.label.startswith(name))
    done = mutate(first)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every mutation was found, 1" in done.stdout


def test_a_name_that_no_mutation_has_is_refused() -> None:
    done = mutate("no such rule")
    assert done.returncode == 2
    assert "no mutation has one of these in its name: no such rule" in done.stderr
