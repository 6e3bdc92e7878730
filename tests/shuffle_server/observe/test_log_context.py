"""Fields of log records: they belong to a thread, for as long as its context lasts."""

from __future__ import annotations

import threading

from shuffle_api.errors import StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.observe.log_context import (
    add_log_fields,
    current_fields,
    fields_of_error,
    log_context,
)


def test_inner_fields_are_added_to_outer_ones_and_gone_after() -> None:
    with log_context(peer="p", app="a"):
        with log_context(app="b", shuffle=1):
            assert current_fields() == {"peer": "p", "app": "b", "shuffle": 1}
        assert current_fields() == {"peer": "p", "app": "a"}
    assert current_fields() == {}


def test_fields_learned_late_last_as_long_as_the_context() -> None:
    with log_context(peer="p"):
        add_log_fields(app="a")
        assert current_fields() == {"peer": "p", "app": "a"}
    assert current_fields() == {}


def test_fields_that_are_added_outside_of_a_context_stay_with_nobody() -> None:
    add_log_fields(app="a")
    assert current_fields() == {}


def test_another_thread_has_its_own() -> None:
    seen: list[object] = []
    with log_context(app="a"):
        thread = threading.Thread(target=lambda: seen.append(dict(current_fields())))
        thread.start()
        thread.join(60)
    assert seen == [{}]


def test_a_text_that_a_peer_chose_is_cut() -> None:
    with log_context(app="x" * 10_000):
        assert current_fields() == {"app": "x" * 128}


def test_fields_of_an_error_say_what_was_refused() -> None:
    error = StorageFull("full", shuffle=ShuffleId("a", 1), output=MapAttempt(2, 3))
    assert fields_of_error(error) == {"app": "a", "shuffle": 1, "map": 2, "attempt": 3, "code": "STORAGE_FULL"}
    assert fields_of_error(StorageFull("full")) == {"code": "STORAGE_FULL"}
