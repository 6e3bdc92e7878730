"""Names: what is one, what is not, and that ids order and hash as values."""

from __future__ import annotations

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MAX_ID, MapAttempt, ShuffleId, check_app, name_of, new_run


@pytest.mark.parametrize("app", ["a", "_", "-x", "app_2026.11-21", "A" * 128])
def test_valid_application_id_is_returned(app: str) -> None:
    assert check_app(app) == app


@pytest.mark.parametrize("app", ["", ".", "..", ".a", "a/b", "a b", "a\n", "é", "A" * 129, "a\0"])
def test_application_id_that_could_be_a_path_or_is_no_name_is_refused(app: str) -> None:
    with pytest.raises(InvalidArgument, match="application id"):
        ShuffleId(app, 0)


def test_runs_of_one_application_are_names_of_their_own() -> None:
    first, second = new_run("my.app"), new_run("my.app")
    assert first != second
    assert name_of(first) == name_of(second) == name_of("my.app") == "my.app"
    assert ShuffleId(first, 0) != ShuffleId(second, 0)
    with pytest.raises(InvalidArgument, match="application id"):
        new_run(first)


@pytest.mark.parametrize("run", ["~a", "a~", "a~b~", "a~b~c~d", "a~b.c", "a~../b", "a~" + "b" * 65])
def test_run_that_could_be_a_path_or_is_no_name_is_refused(run: str) -> None:
    with pytest.raises(InvalidArgument, match="for one run of it add ~"):
        ShuffleId(run, 0)


def test_a_number_that_is_registered_anew_has_another_id() -> None:
    id = ShuffleId("app", 3)
    assert id.anew() != id.anew()
    assert id.anew().current() == id
    with pytest.raises(InvalidArgument, match="shuffle generation"):
        ShuffleId("app", 3, -1)


def test_application_id_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="7"):
        ShuffleId(7, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [-1, MAX_ID + 1, 1.0, "1", None])
def test_numbers_outside_int64_or_of_another_type_are_refused_by_name(number: int) -> None:
    with pytest.raises(InvalidArgument, match="shuffle number"):
        ShuffleId("app", number)
    with pytest.raises(InvalidArgument, match="map number"):
        MapAttempt(number, 0)
    with pytest.raises(InvalidArgument, match="attempt number"):
        MapAttempt(0, number)


def test_ids_are_values_that_hash_and_order() -> None:
    assert {ShuffleId("a", 1), ShuffleId("a", 1)} == {ShuffleId("a", 1)}
    assert sorted([MapAttempt(2, 0), MapAttempt(1, 5), MapAttempt(1, MAX_ID)]) == [
        MapAttempt(1, 5),
        MapAttempt(1, MAX_ID),
        MapAttempt(2, 0),
    ]


def test_ids_read_as_people_write_them() -> None:
    assert str(ShuffleId("app", 3)) == "app/3"
    assert str(MapAttempt(4, 1)) == "map 4 attempt 1"
