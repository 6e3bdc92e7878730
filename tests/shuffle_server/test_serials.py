"""Which shuffle a worker's files are of."""

from __future__ import annotations

from pathlib import Path

from shuffle_api.ids import ShuffleId
from shuffle_server.worker.serials import ShuffleSerials

ID, OTHER = ShuffleId("my.app", 3), ShuffleId("my.app", 4)


def test_a_shuffle_that_begins_anew_has_the_files_of_the_last_one_removed(tmp_path: Path) -> None:
    removed: list[ShuffleId] = []
    serials = ShuffleSerials(tmp_path, removed.append)
    serials.begin(ID, 7)
    serials.begin(OTHER, 8)
    removed.clear()
    serials.begin(ID, 7)
    assert removed == []
    serials.begin(ID, 9)
    assert removed == [ID]
    serials.end(ID, 7)  # the end of the first one, heard late
    assert (removed, serials.get(ID)) == ([ID], 9)
    serials.end(ID, 9)
    assert (removed, serials.get(ID)) == ([ID, ID], None)


def test_serials_outlive_the_process_and_what_is_unfinished_or_strange_is_passed_over(tmp_path: Path) -> None:
    ShuffleSerials(tmp_path, lambda id: None).begin(ID, 7)
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
    serials.begin(ID, 7)
    broken.append(OSError("input/output error"))
    serials.end(ID, 7)
    assert serials.get(ID) == 7
    broken.clear()
    serials.end(ID, 7)
    assert ShuffleSerials(tmp_path, remove).all() == serials.all() == []
