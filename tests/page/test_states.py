"""The page of a server that wants a token, that is not well, or that stands by, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_server.observe import observation as observation_module
from shuffle_server.observe.families import MASTER
from shuffle_server.observe.observation import Observation
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.security import Principal
from tests.certificates import make_party, make_secret
from tests.page import axe, looks
from tests.page.browser import CHROMIUM, MISSING, Browser
from tests.shuffle_server.observe.conftest import Parts, parts_in

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=MISSING), pytest.mark.timeout(900)]
FORM = "document.getElementById('login')?.hidden"
"""False where the form for the token is seen."""


def give(browser: Browser, token: str) -> None:
    """Type it, and press the button."""
    browser.evaluate(
        f"document.getElementById('token').value = {token!r}; document.querySelector('#login button').click()"
    )


def await_text(browser: Browser, id: str, text: str) -> None:
    browser.wait_for(f"document.getElementById({id!r})?.innerText === {text!r}")


def test_over_tls_a_wrong_token_is_refused_in_a_sentence_and_a_right_one_shows_the_page(
    tmp_path: Path, browser: Browser
) -> None:
    party, secret = make_party(tmp_path / "tls"), make_secret(tmp_path / "secret")
    credentials = load_keyring(tls_ca=str(party.ca), secret_file=str(secret)).for_cluster()
    arguments = ["--http-listen", "127.0.0.1:0", "--secret-file", str(secret)]
    arguments += ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--tls-ca", str(party.ca)]
    with ServerProcess(tmp_path / "d", tmp_path / "log", arguments, credentials=credentials) as server:
        browser.trust_every_certificate()
        browser.open(f"https://{server.metrics}/")
        browser.wait_for(f"{FORM} === false")
        assert looks.text(browser, "refusal") == "", "nothing was refused yet"
        await_text(browser, "health", "healthy, but not shown")
        assert looks.rows(browser, "workers") == []
        if axe.SCRIPT.exists():
            assert looks.inaccessible(browser, axe.SCRIPT) == []
        give(browser, "wrong")
        sentence = browser.wait_for("document.getElementById('refusal')?.textContent")
        asked, checked = browser.evaluate(looks.requests("/api/")), browser.evaluate(looks.requests("/ready"))
        browser.wait_for(f"{looks.requests('/ready')} > {checked + 1}")
        assert browser.evaluate(looks.requests("/api/")) == asked, "the wrong token is shown once"
        assert "token" in sentence
        assert "To do: " in sentence
        give(browser, credentials.token)
        browser.wait_for("window.shownAt")
        assert [row[1] for row in looks.rows(browser, "workers")] == [server.data]
        assert browser.evaluate(FORM)
        assert looks.text(browser, "refusal") == ""
        assert looks.text(browser, "health") == "healthy"
        browser.call("Page.reload")
        browser.wait_for("window.shownAt")
        assert browser.evaluate(FORM), "the token is kept as long as the tab"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path / "parts") as made:
        yield made


def test_an_endpoint_that_takes_no_tokens_says_so_and_asks_for_none(
    browser: Browser, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_module, "is_loopback", lambda host: False)
    observation = Observation("127.0.0.1:0", MASTER, lambda tokens, apps: Principal(None))
    try:
        observation.attach(parts.sources, need_bytes=1 << 20)
        browser.open(f"http://{observation.address}/")
        assert "--tls-cert" in browser.wait_for("document.getElementById('refusal')?.textContent")
        assert browser.evaluate(FORM)
    finally:
        observation.close()


def test_the_reasons_of_failed_checks_and_the_masters_are_shown(browser: Browser, parts: Parts) -> None:
    observation = Observation("127.0.0.1:0")
    try:
        observation.attach(parts.sources, need_bytes=1 << 20)
        shutil.rmtree(parts.journal_dir)
        browser.open(f"http://{observation.address}/")
        await_text(browser, "health", "2 things are wrong")
        reasons = looks.text(browser, "reasons").splitlines()
        assert sorted(reasons) == [f"journal: {parts.journal_dir}: No such file or directory", "no worker has joined"]
        assert "no other master stands by" in looks.text(browser, "masters")
    finally:
        observation.close()


def test_a_master_that_stands_by_shows_that_and_its_checks(browser: Browser) -> None:
    observation = Observation("127.0.0.1:0", MASTER)
    try:
        observation.stand_by(lambda: "the database is silent")
        browser.open(f"http://{observation.address}/")
        await_text(browser, "reasons", "database: the database is silent")
        observation.stand_by(lambda: "")
        await_text(browser, "health", "stands by: another master leads")
    finally:
        observation.close()
