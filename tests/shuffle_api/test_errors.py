"""Errors: the wire's codes, a class each, text that says what to do, and pickling."""

from __future__ import annotations

import pickle

import pytest

from shuffle_api import errors
from shuffle_api.errors import ErrorCode, ServerUnreachable, ShuffleError, UnknownCodec, UnknownOption, UnknownPlugin
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_transport.proto import flight_shuffle_pb2 as pb

WIRE_CLASSES = [errors.error_class(code) for code in ErrorCode]


EXAMPLES: list[ShuffleError] = [
    *(
        cls("it broke", worker="w1", shuffle=ShuffleId("a", 1), output=MapAttempt(2, 3))
        for cls in [*WIRE_CLASSES, errors.StreamBroken]
    ),
    errors.StorageFull("it broke", remedy="mend it"),
    ServerUnreachable("host:1", OSError("refused")),
    *(unknown("x", ["y", "z"]) for unknown in (UnknownPlugin, UnknownCodec, UnknownOption)),
]


def test_codes_are_those_of_the_protocol() -> None:
    assert {code.name: code.value for code in ErrorCode} == dict(pb.ErrorCode.items())


@pytest.mark.parametrize("code", ErrorCode)
def test_each_code_has_a_class_of_its_own_named_after_it(code: ErrorCode) -> None:
    cls = errors.error_class(code)
    assert cls.code is code
    words = {"InternalError": "Internal", "DeadlineExceeded": "Deadline"}.get(cls.__name__, cls.__name__)
    assert words == code.name.title().replace("_", "")


def test_code_of_a_newer_peer_is_an_internal_error() -> None:
    assert errors.error_class(10_000) is errors.InternalError


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_is_the_same_after_pickling(error: ShuffleError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert (again.args, str(again)) == (error.args, str(error))


def test_notes_survive_pickling() -> None:
    error = errors.StorageFull("full")
    error.add_note("while writing map 3")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while writing map 3"]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_says_what_to_do(error: ShuffleError) -> None:
    assert error.remedy
    assert str(error).endswith(f"To do: {error.remedy}")


def test_text_names_what_where_and_the_remedy() -> None:
    error = errors.MapOutputLost(
        "file gone", worker="w1", shuffle=ShuffleId("a", 1), output=MapAttempt(2, 3), remedy="run it"
    )
    assert str(error) == "file gone (worker w1, shuffle a/1, map 2 attempt 3). To do: run it"


def test_places_that_do_not_apply_are_left_out() -> None:
    assert str(errors.StorageFull("full", remedy="free space")) == "full. To do: free space"


def test_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    error = UnknownOption("windw", ["timeout", "window"])
    assert isinstance(error, errors.InvalidArgument)
    assert (error.value, error.known) == ("windw", ("timeout", "window"))
    assert str(error) == "unknown option 'windw'. To do: did you mean 'window'? known: timeout, window"


def test_unknown_name_says_so_when_nothing_is_known() -> None:
    assert UnknownPlugin("x", []).remedy == "known: none"


def test_unreachable_server_names_address_and_cause() -> None:
    error = ServerUnreachable("host:1", ConnectionRefusedError("refused"))
    assert (error.address, error.cause) == ("host:1", "refused")
    assert "host:1" in str(error)
    assert "refused" in str(error)
