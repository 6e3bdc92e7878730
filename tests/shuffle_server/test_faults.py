"""What goes wrong at one place of the store harms nothing else: other outputs, committed ones, later attempts."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputLost, Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.scrub import Pace, check_all, check_one
from shuffle_server.store.staged import StagedOutput
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block

OUTPUT = MapAttempt(0, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    store.add_shuffle(SPEC.id)
    yield store
    store.close()


def stage(store: Store, output: MapAttempt = OUTPUT, payload: bytes = b"payload") -> tuple[StagedOutput, int]:
    staged = store.stage(SPEC, output, "none")
    turn = staged.take_turn()
    staged.append(turn, batch([block(0, payload)]))
    return staged, turn


def commit(store: Store, output: MapAttempt = OUTPUT, payload: bytes = b"payload") -> None:
    assert store.publish(*stage(store, output, payload)) is not None


def read(store: Store, output: MapAttempt = OUTPUT) -> bytes:
    file, fd = store.open_output(SPEC.id, output)
    with open(fd, "rb") as opened:
        return os.pread(opened.fileno(), int(file.index["length"][0]), int(file.index["offset"][0]))


def test_no_file_is_lent_below_a_stream(store: Store) -> None:
    waiting = store.stage(SPEC, MapAttempt(1, 0), "none")
    waiting.take_turn()  # its first batch is still under way
    for staged in (waiting, stage(store)[0]):
        with pytest.raises(InvalidArgument, match="a stream writes"):
            staged.lend()


def test_file_of_another_shuffle_under_this_name_is_not_served(store: Store, tmp_path: Path) -> None:
    commit(store)
    app = tmp_path / "apps" / "app"
    shutil.copytree(app / "3", app / "4")
    shutil.copy(app / "3" / "0.out", app / "3" / "7.out")
    again = Store(tmp_path)
    assert [(d.shuffle_id, d.output) for d in again.recover()] == [(SPEC.id, OUTPUT)]
    assert sorted(path.name for path in app.rglob("*.torn")) == ["0.torn", "7.torn"]


def test_file_that_was_exchanged_is_not_served(tmp_path: Path) -> None:
    other = replace(SPEC, id=ShuffleId("app", 4))
    store = Store(tmp_path)
    for spec in (SPEC, other):
        store.add_shuffle(spec.id)
        staged = store.stage(spec, OUTPUT, "none")
        assert store.publish(staged, staged.take_turn()) is not None
    (tmp_path / "apps/app/4/0.out").replace(tmp_path / "apps/app/3/0.out")
    with pytest.raises(MapOutputLost, match="it holds"):
        store.open_output(SPEC.id, OUTPUT)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.EINTR])
def test_want_of_descriptors_or_memory_says_nothing_about_a_file(
    store: Store, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store)

    def short(path: Any, *_: Any) -> int:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", short)
        with pytest.raises(Overloaded):
            store.open_output(SPEC.id, OUTPUT)
        with pytest.raises(Overloaded):
            store.describe(SPEC.id, OUTPUT.map)
        with pytest.raises(Overloaded):
            check_one(store, SPEC.id, OUTPUT)  # what ReportLost asks
        with pytest.raises(Overloaded):
            list(check_all(store, None, Pace(0)))
    assert read(store) == b"payload"
    assert check_one(store, SPEC.id, OUTPUT) == ""
