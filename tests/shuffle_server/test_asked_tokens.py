"""A worker without the secret, which asks its master about the tokens that it is shown. The master is made up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import wait_until
from shuffle_api.errors import Overloaded, ServerUnreachable, ShuffleError, Unauthenticated
from shuffle_server import tokens
from shuffle_server.tokens import AskedTokens
from shuffle_transport.security import ANYBODY, Admission, Credentials, Principal
from shuffle_transport.tokens import app_token, cluster_token, worker_token

SECRET = bytes(range(32))


class MadeUpMaster:
    """Answers as one with the secret would: at once, unless `answers` is cleared; `tiered`: what it raises instead."""

    def __init__(self) -> None:
        self.asked: list[Credentials] = []
        self.answers = threading.Event()
        self.answers.set()
        self.tiered: ShuffleError | None = None
        self.admission = Admission((SECRET,))

    def call(self, method: str, request: Any, credentials: Credentials) -> None:
        assert method == "Hello"
        self.asked.append(credentials)
        assert self.answers.wait(60)
        if self.tiered is not None:
            raise self.tiered
        headers = dict(credentials.headers())
        app = headers.get("flight-shuffle-app")
        self.admission.authenticate([headers["authorization"]], [] if app is None else [app])

    def close(self) -> None:
        pass


@pytest.fixture
def master() -> MadeUpMaster:
    return MadeUpMaster()


@pytest.fixture
def asked(tmp_path: Path, master: MadeUpMaster, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedTokens]:
    file = tmp_path / "token"
    file.write_text("own\n")
    file.chmod(0o600)
    monkeypatch.setattr(tokens, "ControlClient", lambda *_, **__: master)
    with closing(AskedTokens(str(file), "127.0.0.1:1", None)) as made:
        yield made


def show(asked: AskedTokens, token: str, *apps: str) -> Principal:
    return asked.authenticate([f"Bearer {token}"], list(apps))


def test_whom_a_token_is_of_is_what_the_master_says(asked: AskedTokens, master: MadeUpMaster) -> None:
    assert asked.of_worker("w-1") == "own"
    for token, apps, principal in (
        (app_token(SECRET, "a"), ["a"], Principal("a")),
        (cluster_token(SECRET), [], ANYBODY),
        (cluster_token(SECRET), ["a"], Principal("a")),
        (worker_token(SECRET, "w-2"), [], Principal("", "w-2")),
    ):
        for _ in range(3):
            assert show(asked, token, *apps) == principal
    assert len(master.asked) == 4
    for token, wrong in (("x", ["a"]), (app_token(SECRET, "a"), ["b"]), (worker_token(SECRET, "w-2"), ["a"]), ("", [])):
        with pytest.raises(Unauthenticated):
            show(asked, token, *wrong)
    with pytest.raises(Unauthenticated, match="without a token"):
        asked.authenticate([], ["a"])


def test_a_token_that_expires_or_is_refused_after_a_while_is_good_no_more(
    asked: AskedTokens, master: MadeUpMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "GOOD_SECONDS", 0.0)
    token = app_token(SECRET, "a")
    show(asked, token, "a")
    master.admission = Admission((SECRET,), frozenset("a"))
    for tiered in (None, ServerUnreachable("m:1", "gone")):  # what was refused is not good because nobody can be asked
        master.tiered = tiered
        with pytest.raises(Unauthenticated if tiered is None else ServerUnreachable):
            show(asked, token, "a")
    master.admission, master.tiered = Admission((SECRET,), now=lambda: 0.0), None
    with pytest.raises(Unauthenticated, match="expired at 1970"):
        show(asked, app_token(SECRET, "a", 1), "a")


def test_while_the_master_is_away_what_was_good_is_and_nothing_else(
    asked: AskedTokens, master: MadeUpMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "GOOD_SECONDS", 0.0)
    show(asked, app_token(SECRET, "a"), "a")
    master.tiered = ServerUnreachable("m:1", "gone")
    assert show(asked, app_token(SECRET, "a"), "a") == Principal("a")
    for token, app in ((app_token(SECRET, "a"), "b"), (app_token(SECRET, "b"), "b"), ("x", "a")):
        with pytest.raises(ServerUnreachable):
            show(asked, token, app)


def test_no_more_than_so_many_tokens_are_asked_about_at_once(
    asked: AskedTokens, master: MadeUpMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(asked, app_token(SECRET, "a"), "a")
    monkeypatch.setattr(tokens, "ASK_SECONDS", 0.0)
    master.answers.clear()
    master.asked.clear()
    with ThreadPoolExecutor(20) as strangers:
        guesses = [strangers.submit(show, asked, f"guess-{n}", "a") for n in range(20)]
        wait_until(lambda: sum(guess.done() for guess in guesses) == 20 - tokens.MOST_QUESTIONS, "most are refused")
        assert show(asked, app_token(SECRET, "a"), "a") == Principal("a")  # what is known waits for nobody
        master.answers.set()
        outcomes = Counter(type(guess.exception(60)) for guess in guesses)
    assert outcomes == {Unauthenticated: tokens.MOST_QUESTIONS, Overloaded: 20 - tokens.MOST_QUESTIONS}
    assert len(master.asked) == tokens.MOST_QUESTIONS


def test_what_is_remembered_has_a_bound(
    asked: AskedTokens, master: MadeUpMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MOST_KNOWN", 3)
    for app in "abcde":
        show(asked, app_token(SECRET, app), app)
    assert len(asked._good) == 3
    master.asked.clear()
    for app in "edca":
        show(asked, app_token(SECRET, app), app)
    assert [credentials.app for credentials in master.asked] == ["a"]
