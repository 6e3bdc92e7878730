"""The figures of calls whose tokens were looked at."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import Unauthenticated
from shuffle_server.tokens import AskedTokens, SecretTokens
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.security import Credentials
from shuffle_transport.tokens import app_token, cluster_token
from tests.shuffle_server.observe.helpers import Scrape
from tests.shuffle_server.test_asked_tokens import SECRET, MadeUpMaster, asked, master, show
from tests.shuffle_server.test_secrets import OLD, put

__all__ = ["asked", "master"]  # fixtures

CALLS = {
    "admitted": ([cluster_token(OLD.encode())], []),
    "missing": ([], ["app"]),
    "wrong": (["x"], ["app"]),
    "expired": ([app_token(OLD.encode(), "app", 1)], ["app"]),
    "revoked": ([app_token(OLD.encode(), "bad")], ["bad"]),
}


def test_each_call_is_counted_by_what_became_of_it(tmp_path: Path) -> None:
    secret, revoked = put(tmp_path / "secret", OLD), put(tmp_path / "revoked", "bad")
    with closing(SecretTokens(str(secret), str(revoked))) as tokens:
        assert set(tokens.statistics().checks.values()) == {0}
        for times, (given, apps) in enumerate(CALLS.values(), 1):
            for _ in range(times):
                with suppress(Unauthenticated):
                    tokens.authenticate([f"Bearer {token}" for token in given], apps)
        wanted = {outcome: times for times, outcome in enumerate(CALLS, 1)}
        assert tokens.statistics().checks == {**wanted, "unanswered": 0}


def test_questions_are_counted_and_what_is_known_asks_none(asked: AskedTokens, master: MadeUpMaster) -> None:
    for _ in range(3):
        show(asked, app_token(SECRET, "a"), "a")
    with pytest.raises(Unauthenticated):
        show(asked, "x", "a")
    figures = asked.statistics()
    assert (figures.questions, figures.known) == ({"good": 1, "refused": 1, "unanswered": 0}, 1)
    assert (figures.checks["admitted"], figures.checks["wrong"]) == (3, 1)


def test_a_server_shows_them_of_both_endpoints(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret", OLD)
    arguments = ["--secret-file", str(secret), "--metrics-listen", "127.0.0.1:0"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server:
        wrong = Credentials("app", "x")
        with closing(ControlClient(server.control, client="t", credentials=wrong)) as control:
            with pytest.raises(Unauthenticated):
                control.hello()
        with closing(FlightClient(server.data, timeout=60, credentials=wrong)) as client:
            with pytest.raises(Unauthenticated):
                client.act("nothing", b"")
        scrape = Scrape(server.metrics)
        assert scrape("token_checks_total", outcome="wrong") == 2
        assert scrape("token_checks_total", outcome="missing") == 0
        assert scrape("token_questions_total", outcome="good") == 0
        assert scrape("tokens_known") == 0
