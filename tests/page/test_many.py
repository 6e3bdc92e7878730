"""The page of many shuffles in a real browser; `python -m tests.page` has 100 workers and 10,000 shuffles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page import axe, looks, pictures
from tests.page.__main__ import complaints, seen
from tests.page.browser import CHROMIUM, MISSING, Browser, Failed
from tests.page.cluster import ManyShuffles

WORKERS, SHUFFLES = 30, 200
INTO, OUT = 7, 8  # columns

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=MISSING), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyShuffles]:
    with ManyShuffles(tmp_path_factory.mktemp("many"), WORKERS, SHUFFLES) as running:
        yield running


def test_it_fits_a_phone_and_nothing_complains(cluster: ManyShuffles, browser: Browser) -> None:
    report = seen(cluster, browser, axe.SCRIPT if axe.SCRIPT.exists() else None, None)
    assert list(complaints({"first_paint_s": 0, "update_cpu_ms": 0} | report)) == []
    assert list(report["sideways"]) == ["360", "768", "1280"]


def test_it_goes_on_asking_and_shows_the_page_and_the_order_that_are_chosen(
    cluster: ManyShuffles, browser: Browser
) -> None:
    looks.first_look(browser, cluster.url)
    assert "Application" in browser.evaluate("document.querySelector('#shuffles thead').textContent")
    browser.wait_for(f"document.querySelector('#shuffles .pager').textContent.includes('1 to 20 of {SHUFFLES}')")
    browser.evaluate("document.querySelector('#shuffles [aria-label=\"Next shuffles\"]').click()")
    browser.wait_for(f"document.querySelector('#shuffles .pager').textContent.includes('21 to 40 of {SHUFFLES}')")
    browser.evaluate("document.querySelector('#shuffles th button[data-key=shuffle]').click()")
    browser.wait_for("document.querySelector('#shuffles th[aria-sort=descending] button').dataset.key === 'shuffle'")
    assert browser.evaluate("document.querySelector('#shuffles tbody tr').cells[1].textContent") == str(SHUFFLES - 1)
    looks.await_updates(browser, looks.updates(browser) + 2)
    assert browser.console == []


def test_rates_of_workers_and_back_pressure_are_shown(cluster: ManyShuffles, browser: Browser) -> None:
    looks.first_look(browser, cluster.url)
    browser.wait_for("document.querySelector('#workers tbody tr').cells[7].innerText.match(/^[1-9].*\\/s/)")
    into, out = looks.rows(browser, "workers")[0][INTO : OUT + 1]
    for each in (into, out):
        assert re.fullmatch(r"[\d.]+ [KMG]iB/s\n[\d.]+ [KMG]iB in all", each)
    assert bytes_of(out) == pytest.approx(2 * bytes_of(into), rel=0.1), "each worker sends twice what it receives"
    assert re.match(
        r"memory in use [\d.]+ GiB of 240.0 GiB   (\d+) streams wait for memory", looks.text(browser, "memory")
    )
    assert 0 < float(browser.evaluate("document.getElementById('memory-used').getAttribute('width')")) < 600
    pressure = looks.rows(browser, "pressure")
    assert len(pressure) == 5
    assert [int(row[1]) for row in pressure] == [9, 9, 9, 8, 8], "those of which most streams wait"
    [stalls] = re.findall(r"([\d,]+) in all", looks.text(browser, "stalls"))
    assert int(stalls.replace(",", "")) > 0
    assert browser.console == []


def bytes_of(rate: str) -> float:
    number, unit = rate.split("/s")[0].split()
    return float(number) * 1024.0 ** ["B", "KiB", "MiB", "GiB"].index(unit)


def test_while_it_is_hidden_it_does_not_ask(cluster: ManyShuffles, browser: Browser) -> None:
    looks.first_look(browser, cluster.url)
    looks.await_updates(browser, 1)
    with browser.hidden():
        browser.wait_for("!asking")
        asked = browser.evaluate(looks.requests("/"))
        browser.evaluate("new Promise((done) => setTimeout(done, 3 * PERIOD_MS))")
        assert browser.evaluate(looks.requests("/")) == asked
        updates = looks.updates(browser)
    looks.await_updates(browser, updates + 2)


def test_the_browser_reports_what_is_wrong(browser: Browser) -> None:
    browser.resize(*looks.PHONE)
    browser.evaluate("document.body.innerHTML = '<p style=\"width: 500px\">wide</p>'")
    assert looks.sideways(browser)
    browser.evaluate("console.error('of a script'); setTimeout(() => { throw new Error('later'); })")
    browser.wait_for("new Promise((done) => setTimeout(() => done(true), 100))")
    assert browser.console[0] == "of a script"
    assert "later" in browser.console[1]
    with pytest.raises(Failed, match="no such thing"):
        browser.evaluate("(() => { throw new Error('no such thing'); })()")


@pytest.mark.skipif(not axe.SCRIPT.exists(), reason="python -m tests.page --fetch-axe")
def test_axe_finds_what_is_inaccessible(browser: Browser) -> None:
    browser.evaluate("document.body.innerHTML = '<button></button>'")
    assert any("button-name" in each for each in looks.inaccessible(browser, axe.fetch()))


def test_pictures_for_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "UPDATES", 2)
    made = pictures.pictures(tmp_path)
    assert sorted(made) == ["page-phone.png", "page.png"]
    for picture in made.values():
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 20_000
