"""Which shuffle a worker's files are of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shuffle_api.ids import ShuffleId
from shuffle_server.worker.serials import ShuffleSerials

ID, OTHER = ShuffleId("my.app", 3), ShuffleId("my.app", 4)


def test_a_shuffle_that_begins_anew_has_the_files_of_the_last_one_removed(tmp_path: Path) -> None:
    removed: list[ShuffleId] = []
    serials = ShuffleSerials(tmp_path, removed.append)
    assert serials.begin(ID, 7, None)
    assert serials.begin(OTHER, 8, None)
    removed.clear()
    assert serials.begin(ID, 7, None)
    assert removed == []
    assert serials.begin(ID, 9, 7)
    assert removed == [ID]
    serials.end(ID, 7)  # the end of the first one, heard late
    assert (removed, serials.get(ID)) == ([ID], 9)
    serials.end(ID, 9)
    assert (removed, serials.get(ID)) == ([ID, ID], None)


def test_serials_outlive_the_process_and_what_is_unfinished_or_strange_is_passed_over(tmp_path: Path) -> None:
    ShuffleSerials(tmp_path, lambda id: None).begin(ID, 7, None)
    (tmp_path / "5.app.serial.new").write_text("1")
    (tmp_path / "5.app.serial").write_text("")
    (tmp_path / "x.app.serial").write_text("1")
    assert ShuffleSerials(tmp_path, lambda id: None).all() == [(ID, 7)]


def test_files_that_cannot_be_removed_now_are_removed_when_the_end_is_told_again(tmp_path: Path) -> None:
    broken: list[OSError] = []

    def remove(shuffle: ShuffleId) -> None:
        if broken:
            raise broken[0]

    serials = ShuffleSerials(tmp_path, remove)
    serials.begin(ID, 7, None)
    broken.append(OSError("input/output error"))
    serials.end(ID, 7)
    assert serials.get(ID) == 7
    broken.clear()
    serials.end(ID, 7)
    assert ShuffleSerials(tmp_path, remove).all() == serials.all() == []


def test_an_answer_of_the_master_that_comes_late_removes_nothing_of_the_shuffle_that_began_since(
    tmp_path: Path,
) -> None:
    removed: list[ShuffleId] = []
    serials = ShuffleSerials(tmp_path, removed.append)
    before = serials.get(ID)  # then the master was asked, said 7, and the answer was held up
    assert serials.begin(ID, 9, serials.get(ID))
    removed.clear()
    assert not serials.begin(ID, 7, before)
    assert (removed, serials.get(ID)) == ([], 9)


def test_a_serial_is_on_the_disk_before_the_first_file_of_its_shuffle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    ShuffleSerials(tmp_path, lambda id: None).begin(ID, 7, None)
    assert synced == []
    ShuffleSerials(tmp_path, lambda id: None, sync=True).begin(OTHER, 8, None)
    assert synced == [str(tmp_path / "4.my.app.serial.new"), str(tmp_path)]
