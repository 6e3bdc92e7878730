"""What the log says of refused calls: few lines, with the peer, and nothing of a stranger's text unquoted."""

from __future__ import annotations

import logging

import pytest

from shuffle_api.errors import Unauthenticated
from shuffle_server.master.auth import principal_of
from shuffle_server.observe import calls
from shuffle_server.observe.calls import LINES, CallObserver, LineLimit, StrangersObserver
from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.logs import TextFormatter
from shuffle_transport.security import Admission

PEER = "ipv4:10.0.0.1:1234"


def test_the_refusals_of_a_host_make_few_lines_and_those_left_out_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = CallObserver(Instruments())
    for port in range(1000):
        observer.refused(f"ipv4:10.0.0.1:{port}", "Hello", Unauthenticated("no token"))
    observer.refused("ipv4:10.0.0.2:1", "Hello", Unauthenticated("another host"))
    assert len(caplog.messages) == LINES + 1
    assert "another host" in caplog.messages[-1]
    monkeypatch.setattr(calls, "SECONDS", 0.0)
    observer.refused(PEER, "Hello", Unauthenticated("no token"))
    assert caplog.messages[-2] == f"{1000 - LINES} more calls of ipv4:10.0.0.1 were refused"


def test_calls_that_the_data_endpoint_refuses_by_their_headers_share_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = StrangersObserver(Instruments())
    for _ in range(1000):
        observer.refused(Unauthenticated("no token"))
    assert len(caplog.messages) == LINES
    monkeypatch.setattr(calls, "SECONDS", 0.0)
    observer.refused(Unauthenticated("no token"))
    assert caplog.messages[-2] == f"{1000 - LINES} more calls to the data endpoint were refused"


def test_of_many_hosts_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "HOSTS", 10)
    limit = LineLimit()
    for number in range(1000):
        assert limit.omitted(f"ipv4:10.0.{number // 256}.{number % 256}") == 0
    assert len(limit._hosts) == 10


def test_a_strangers_text_is_quoted_and_short(caplog: pytest.LogCaptureFixture) -> None:
    app = "a\nFAKE LOG LINE \x1b[31mred" + "x" * 7000
    with pytest.raises(Unauthenticated) as caught:
        principal_of(Admission((b"s" * 32,)).authenticate, [("authorization", "Bearer x"), ("flight-shuffle-app", app)])
    CallObserver(Instruments()).refused(PEER, "unknown", caught.value)
    StrangersObserver(Instruments()).refused(caught.value)
    assert len(caplog.records) == 2
    for record in caplog.records:
        check_line(record)


def check_line(record: logging.LogRecord) -> None:
    line = TextFormatter().format(record)
    assert record.levelno == logging.WARNING
    assert "FAKE" not in line
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 1500
