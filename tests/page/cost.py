"""What the page, the events and the log cost a server.

One server does the same work with an open page and without one, in turn: commits of map outputs, by as many clients as
saturate the machine, and Spark jobs with a shuffle of next to nothing. The page is a thread that asks every two seconds
for all that a page asks for. The report has the median of the pairs' ratios, with the page to without, and their
quartiles; and how many lines of the log and events a run makes, which is all that those two may cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bench import spark_jobs as job
from bench.harness.cluster import wait_until
from bench.harness.process import cpu_seconds
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from bench.registry.load import Mode, load_from_processes
from shuffle_api.periodic import PeriodicTask
from shuffle_plugins.spark import spark_conf
from shuffle_transport.progress import say
from tests.shuffle_server.observe.helpers import Scrape, get

PAGE = (
    "/health",
    "/ready",
    *(f"/api/v1/{path}" for path in ("cluster", "workers", "apps", "shuffles", "events?limit=30")),
)
PAGE_PERIOD_S = 2.0
SATURATING = Mode(32, 1)
Figures = dict[str, float]


class PageCost:
    """A server, and a Spark driver whose jobs use it, for as long as `stack` is open.

    :param seconds: in which commits are counted.
    :param shuffles: of each run of jobs.
    """

    def __init__(self, root: Path, seconds: float, shuffles: int, stack: ExitStack) -> None:
        self._seconds, self._shuffles = seconds, shuffles
        options = ("--http-listen", "127.0.0.1:0", "--log-level", "info")
        self._server = stack.enter_context(ServerProcess(root / "server", root / "server.log", options))
        scratch = root / "spark"
        scratch.mkdir()
        conf = local_conf(scratch, memory="2g", partitions=4) | spark_conf(self._server.control, fallback="never")
        self._driver = stack.enter_context(SparkDriver(conf, root / "spark.log"))

    def in_turn(self, work: Callable[[], float], pairs: int, warm_up: int) -> dict[str, Any]:
        """The ratios of a kind of work, which returns seconds for a unit of it."""
        for number in range(warm_up):
            self._pair(work, number)
        written = self._written()
        found = [self._pair(work, number) for number in range(pairs)]
        lines, events = (after - before for before, after in zip(written, self._written(), strict=True))
        report: dict[str, Any] = {"log_lines": lines / (2 * pairs), "events": events / (2 * pairs)}
        for name in found[0]:
            low, median, high = (round(value, 4) for value in statistics.quantiles((each[name] for each in found), n=4))
            report |= {name: median, f"{name}_quartiles": (low, high)}
        return report

    @contextmanager
    def loaded(self, seconds: float) -> Iterator[None]:
        """Clients commit for so long. Ends with their errors, if they had some."""
        load = partial(load_from_processes, processes=2, clients=16, mode=SATURATING, seconds=seconds)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(load, self._server.control, "cost")
            wait_until(lambda: running.done() or self._committed() > 0, "the first commit")
            yield
            running.result()

    def commits(self) -> float:
        """Under the load."""
        before, began = self._committed(), time.monotonic()
        time.sleep(self._seconds)
        return (time.monotonic() - began) / (self._committed() - before)

    def tiny_jobs(self) -> float:
        """Of Spark, one after the other."""
        done: job.Run = self._driver.call(job.timed_tiny, shuffles=self._shuffles)
        return done.seconds

    def _pair(self, work: Callable[[], float], number: int) -> Figures:
        """The ratios of a run with the page to one without; which comes first alternates."""
        runs = {page: self._run(work, page=page) for page in ((True, False) if number % 2 else (False, True))}
        ratios = {name: runs[True][name] / runs[False][name] for name in runs[True]}
        say(f"{work.__name__} {number}: {ratios['seconds']:.3f}")
        return ratios

    def _run(self, work: Callable[[], float], *, page: bool) -> Figures:
        with ExitStack() as stack:
            if page:
                task = stack.enter_context(closing(PeriodicTask("page", self._look, PAGE_PERIOD_S, at_once=True)))
                task.start()
            before, began = cpu_seconds(self._server.pid), time.monotonic()
            seconds = work()
            units = (time.monotonic() - began) / seconds
            return {"seconds": seconds, "server_cpu": (cpu_seconds(self._server.pid) - before) / units}

    def _look(self) -> None:
        for path in PAGE:
            assert get(self._server.metrics, path).status == HTTPStatus.OK

    def _committed(self) -> float:
        return Scrape(self._server.metrics)("map_outputs", state="committed")

    def _written(self) -> tuple[int, int]:
        """Lines of the log, and events, so far."""
        events = get(self._server.metrics, "/api/v1/events?limit=1000").json()["rows"]
        return len(self._server.log.read_text().splitlines()), max(event["number"] for event in events)


def measure(root: Path, pairs: int, *, warm_up: int = 10, seconds: float = 4.0, shuffles: int = 50) -> dict[str, Any]:
    """See the module.

    :param warm_up: pairs of runs of jobs before those that count.
    """
    with ExitStack() as stack:
        cost = PageCost(root, seconds, shuffles, stack)
        tiny_jobs = cost.in_turn(cost.tiny_jobs, pairs, warm_up)
        with cost.loaded(2 * (pairs + 2) * seconds):
            commits = cost.in_turn(cost.commits, pairs, 1)
    return {"pairs": pairs, "tiny_jobs": tiny_jobs, "commits": commits}
