"""The page of a large cluster in a real browser: ``python -m tests.page``.

Serves the page of a master with many simulated workers and shuffles, opens it in headless Chromium, and measures the
first paint, the master's own processor time for an update, console errors, sideways scrolling, and what axe-core finds
about its accessibility. The part `cost` measures what an open page costs the registry and small jobs; it takes ten
minutes. Exit status: 1 if a figure is above its limit or something is wrong, 3 without axe-core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import program
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.process import cpu_seconds
from tests.page import axe, cost, looks
from tests.page.browser import CHROMIUM, MISSING, Browser
from tests.page.cluster import ManyShuffles, app_of

FIRST_PAINT_S, UPDATE_MS = 2.0, 200.0
"""The limits."""
LOADS = 5
IDLE_S = 20.0
WRONG, NOT_CHECKED = 1, 3
PAGE, COST = PARTS = "page", "cost"


@dataclass(frozen=True, slots=True)
class Parameters:
    workers: int = 100
    shuffles: int = 10_000
    updates: int = 20
    pairs: int = 24


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        script: Path | None = axe.fetch()
    except axe.NotFetched as error:
        print(f"accessibility is NOT CHECKED: {error}", file=sys.stderr)
        script = None
    if given.fetch_axe:
        return 0 if script else NOT_CHECKED
    parameters = Parameters(given.workers, given.shuffles, given.updates, given.pairs)
    parts: dict[str, Callable[[Parameters, Path], dict[str, Any]]]
    parts = {PAGE: partial(_page, script=script, pictures=given.screenshots), COST: _cost}
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as root:
        report = program.measure("page", parameters, Path(root), given.parts, parts)
    program.publish({**program.kept(given.json), **report}, given.json)
    wrong = list(complaints(report[PAGE])) if PAGE in report else []
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return WRONG if wrong else 0 if script or PAGE not in report else NOT_CHECKED


def _page(parameters: Parameters, root: Path, script: Path | None, pictures: Path | None) -> dict[str, Any]:
    with (
        ManyShuffles(root, parameters.workers, parameters.shuffles) as cluster,
        Browser(root / "profile") as browser,
    ):
        return measure(cluster, browser, parameters.updates) | seen(cluster, browser, script, pictures)


def _cost(parameters: Parameters, root: Path) -> dict[str, Any]:
    return cost.measure(root, parameters.pairs)


def measure(cluster: ManyShuffles, browser: Browser, updates: int) -> dict[str, Any]:
    """The slowest of some first looks, and what an update costs the master beyond what it does without one."""
    looks.watch(browser)
    browser.resize(*looks.DESK)
    times = [looks.first_look(browser, cluster.url) for _ in range(LOADS)]
    browser.call("Page.navigate", url="about:blank")
    pid = cluster.master.pid
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(IDLE_S)
    idle = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    looks.first_look(browser, cluster.url)
    first = looks.updates(browser)
    before, began = cpu_seconds(pid), time.monotonic()
    looks.await_updates(browser, first + updates)
    spent = cpu_seconds(pid) - before - idle * (time.monotonic() - began)
    return {
        "first_paint_s": round(max(paint for paint, _ in times), 3),
        "all_shown_s": round(max(shown for _, shown in times), 3),
        "updates": updates,
        "update_cpu_ms": round(1000 * spent / updates, 1),
    }


def seen(cluster: ManyShuffles, browser: Browser, script: Path | None, pictures: Path | None) -> dict[str, Any]:
    """What is wrong on a phone, a tablet and a desk, with the sizes of a shuffle's partitions shown."""
    wide: dict[str, list[str]] = {}
    violations: list[str] = []
    for size in (looks.PHONE, looks.TABLET, looks.DESK):
        browser.resize(*size, phone=size == looks.PHONE)
        looks.first_look(browser, f"{cluster.url}#{app_of(0)}/0")
        wide[str(size[0])] = looks.sideways(browser)
        violations += [f"at {size[0]} pixels, {each}" for each in looks.inaccessible(browser, script)]
        if pictures:
            pictures.mkdir(parents=True, exist_ok=True)
            (pictures / f"page-{size[0]}.png").write_bytes(browser.picture())
    checked = {"axe": axe.VERSION if script else "not checked", "violations": violations}
    return {"sideways": wide, **checked, "console": browser.console}


def complaints(report: dict[str, Any]) -> Iterator[str]:
    """What a report has above its limits, or wrong."""
    for name, limit in (("first_paint_s", FIRST_PAINT_S), ("update_cpu_ms", UPDATE_MS)):
        if report[name] > limit:
            yield f"{name} is {report[name]}, above {limit:g}"
    for width, found in report["sideways"].items():
        yield from (f"at {width} pixels: {each}" for each in found)
    yield from (f"axe: {each}" for each in report["violations"])
    yield from (f"console: {each}" for each in report["console"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.page", description=(__doc__ or "").split("\n")[0])
    helps = {"updates": "that are measured", "pairs": "of runs, for the cost"}
    program.add_options(
        parser, **{name: (value, helps.get(name, name)) for name, value in asdict(Parameters()).items()}
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=[PAGE], help="the file keeps the other (default: page)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    parser.add_argument("--screenshots", type=Path, metavar="DIR", help="write pictures of the page there")
    parser.add_argument("--fetch-axe", action="store_true", help="only have npm put axe-core into build/axe")
    return parser


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit(MISSING)
    unwind_when_told_to_end()
    sys.exit(main())
