"""The corpus is answered as it should be, seconds of fuzzing find nothing, and planted faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import run as fuzzing
from tests.fuzz.plants import PLANTS
from tests.fuzz.run import Finding, corpus, fuzz, try_one
from tests.fuzz.targets import TARGETS

INPUTS = 300


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_answered_as_it_should_be(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    known = corpus(name)
    assert any(file.startswith("seed-") for file in known)
    read = target.begin(tmp_path)
    assert {file: what for file, data in known.items() if (what := try_one(target, read, data))} == {}


@pytest.mark.parametrize("name", TARGETS)
def test_the_good_inputs_of_the_corpus_are_those_of_this_release(name: str, tmp_path: Path) -> None:
    """So that a change of format shows here: python -m tests.fuzz --write-seeds"""
    read = TARGETS[name].begin(tmp_path)
    good = 0
    for file, data in corpus(name).items():
        try:
            read(data)
            good += file.startswith("seed-")
        except TARGETS[name].answers:
            continue
    assert good


@pytest.mark.parametrize("name", TARGETS)
def test_some_bad_inputs_find_nothing(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    seen: list[bytes] = []

    class Enough(Exception):
        pass

    def note(count: int, data: bytes) -> None:
        if count > INPUTS:
            raise Enough
        seen.append(data)

    with pytest.raises(Enough):
        assert fuzzing.run(target, tmp_path, 600, 1, note) == "", seen[-1]
    assert len(set(seen)) > INPUTS // 10


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("fail", "KeyError"),
        ("crash", "ended with exit status -9"),
        ("wait", "no answer within"),
        ("allocate", "MemoryError"),
    ],
)
def test_what_is_planted_is_found(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "HANG_SECONDS", 10.0 if name == "wait" else 200.0)
    count, finding = fuzz(PLANTS[name], 300, 1)
    assert finding is not None
    assert what in finding.what
    assert (count, bool(finding.data)) in ((1, True), (0, False))


def test_a_finding_is_kept_where_the_corpus_is_read() -> None:
    found = Finding("token", b"data", "why")
    assert found.path.parent == fuzzing.CORPUS / "token"
    assert found.path.match("found-*.bin")
