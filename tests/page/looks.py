"""What a person sees of the page, asked of the browser that shows it."""

from __future__ import annotations

from pathlib import Path

from tests.page import axe
from tests.page.browser import Browser


def requests(path: str) -> str:
    """An expression: how many the page has made whose URL has this in it, since it was loaded."""
    return f"performance.getEntriesByType('resource').filter((each) => each.name.includes({path!r})).length"


PHONE, TABLET, DESK = (360, 740), (768, 1024), (1280, 1600)

_EVENTS = "document.querySelectorAll('#events tr').length > 0"
"""The events are the last of the page's parts."""
_UPDATES = requests("/api/v1/events")

_WATCH = f"""
performance.setResourceTimingBufferSize(100000);
new MutationObserver((_, watch) => {{
  if ({_EVENTS}) {{ window.shownAt = performance.now(); watch.disconnect(); }}
}}).observe(document, {{ childList: true, subtree: true }});
"""
_PAINT = "performance.getEntriesByType('paint').find((each) => each.name === 'first-contentful-paint')?.startTime"
_TOO_WIDE = """
[document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll('body *')]
  .filter((each) => !each.closest('.card') && each.getBoundingClientRect().right > innerWidth + 0.5)
  .map((each) => each.outerHTML.slice(0, 200))]
"""


def watch(browser: Browser) -> None:
    """Have each document note when it shows its first data. To be called once, before the first one."""
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)


def first_look(browser: Browser, url: str) -> tuple[float, float]:
    """Load the page: seconds until the first paint, and until all its tables are there."""
    browser.open(url)
    shown = browser.wait_for("window.shownAt")
    return browser.wait_for(_PAINT) / 1000, shown / 1000


def updates(browser: Browser) -> int:
    """How often the page has asked for all of its data since it was loaded."""
    return int(browser.evaluate(_UPDATES))


def await_updates(browser: Browser, count: int) -> None:
    """Return when there were so many."""
    browser.wait_for(f"{_UPDATES} >= {count}")


def rows(browser: Browser, place: str) -> list[list[str]]:
    """The lines of each cell of a table."""
    found: list[list[str]] = browser.evaluate(
        f"[...document.querySelectorAll('#{place} tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return found


def text(browser: Browser, id: str) -> str:
    """What is written in an element."""
    return str(browser.evaluate(f"document.getElementById({id!r}).innerText"))


def sideways(browser: Browser) -> list[str]:
    """What makes the page wider than the window, if it is; tables scroll in their own frames."""
    by, *what = browser.evaluate(_TOO_WIDE)
    return [f"{by:g} pixels too wide", *what] if by > 0 or what else []


def inaccessible(browser: Browser, script: Path | None) -> list[str]:
    """What axe finds wrong, by daylight and in the dark; nothing without its script."""
    found: list[str] = []
    if script is None:
        return found
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        found += [f"{scheme}: {each}" for each in axe.violations(browser, script)]
    browser.scheme("light")
    return found
