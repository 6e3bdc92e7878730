"""The edge between protobuf and values: everything survives the way there and back, nothing else gets in."""

from __future__ import annotations

import getpass
import os
import socket

import pytest

from shuffle_api.errors import ErrorCode, InvalidArgument, ProtocolMismatch, ShuffleError, error_class
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_typed_error_arrives_as_itself(code: ErrorCode) -> None:
    sent = error_class(code)(
        "what happened", remedy="what to do", worker="w", shuffle=ShuffleId("app", 3), output=MapAttempt(1, 2)
    )
    got = messages.typed_error(pb.Error.FromString(messages.error_message(sent).SerializeToString()))
    assert type(got) is type(sent)
    assert (got.message, got.remedy, got.worker, got.shuffle, got.output) == (
        "what happened", "what to do", "w", ShuffleId("app", 3), MapAttempt(1, 2),
    )  # fmt: skip


def test_every_code_has_a_place_in_the_protocol() -> None:
    assert {code.value for code in ErrorCode} <= set(pb.ErrorCode.values())


def test_a_code_of_a_later_release_is_an_internal_error_with_its_text() -> None:
    error = messages.typed_error(pb.Error(code=4711, message="the moon is full"))  # type: ignore[arg-type]
    assert isinstance(error, ShuffleError)
    assert error.code is ErrorCode.INTERNAL
    assert "the moon is full" in str(error)


def test_values_survive_the_way_there_and_back() -> None:
    totals = Totals(1, 2, 3, 4, 5)
    output = MapOutput(MapAttempt(7, 8), "w", totals)
    assert messages.map_output(messages.output_message(output)) == output
    worker = WorkerInfo("w", "host", 1234, 99)
    assert messages.worker_info(messages.worker_message(worker)) == worker
    spec = ShuffleSpec(ShuffleId("app", 1), 8, 4, "zstd:3", "records")
    assert messages.shuffle_spec(messages.spec_message(spec)) == spec


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="3 bytes that are no PutCommand"):
        messages.parse(pb.PutCommand, b"\xff\xff\xff")


def test_another_version_is_named_with_both_numbers() -> None:
    messages.check_protocol(messages.PROTOCOL, "x")
    with pytest.raises(ProtocolMismatch, match=f"the peer speaks protocol version 9, .* {messages.PROTOCOL}"):
        messages.check_protocol(9, "the peer")


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 100_000, "\U0001f600" * 5_000])
def test_an_error_that_repeats_a_long_request_fits_into_the_trailers_of_a_call(text: str) -> None:
    error = InvalidArgument(f"begin {text} end", remedy=text)
    sent = messages.error_message(error)
    assert sent.ByteSize() <= messages.MAX_MESSAGE_BYTES + messages.MAX_REMEDY_BYTES + 20
    assert sent.message.startswith("begin ")
    assert sent.message.endswith(" end")
    assert f"[{len(error.message.encode())} bytes]" in sent.message
    assert len(messages.status_text(error).encode()) <= messages.MAX_MESSAGE_BYTES


def test_a_text_that_fits_is_not_touched() -> None:
    text = "é" * (messages.MAX_MESSAGE_BYTES // 2)
    assert messages.shortened(text, messages.MAX_MESSAGE_BYTES) is text


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, 1 << 21, (1 << 21) - 1])
def test_a_field_joined_by_hand_is_what_protobuf_writes(size: int) -> None:
    written = pb.WholeGet(payload=bytes(size)).SerializeToString()
    assert messages.bytes_head(pb.WholeGet.PAYLOAD_FIELD_NUMBER, size) + bytes(size) == written


def test_a_driver_whose_user_has_no_name_is_the_users_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nobody)
    driver = messages.this_driver()
    assert (driver.user, driver.host) == (str(os.getuid()), socket.gethostname())


def test_a_driver_whose_user_is_no_text_has_a_name_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "j\udcf6rg")  # b"j\xf6rg" as Python reads it from the environment
    assert messages.this_driver().user == "j?rg"
