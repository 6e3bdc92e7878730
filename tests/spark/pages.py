"""The tab Flight Shuffle of Spark's pages, live and in a history server, as tables of cells."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from shuffle_plugins.spark import find_jar
from tests.spark.observe import TIMEOUT_S
from tests.spark.standalone import SPARK_CLASS

STARTED = re.compile(r"started at (http://\S+)")
READY_TIMEOUT_S = 300.0


class Tables(HTMLParser):
    """The tables of a page by id, each a list of lines by column; a cell is its exact figure, or its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[dict[str, str]]] = {}
        self._heads: list[str] = []
        self._line: list[str] = []
        self._exact: str | None = None
        self._text: str | None = None
        self._table = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self._table, self._heads = given.get("id") or "", []
            self.tables[self._table] = []
        elif tag == "tr":
            self._line = []
        elif tag in ("td", "th"):
            self._exact, self._text = given.get("sorttable_customkey"), ""

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "th":
            self._heads.append(self._text or "")
            self._text = None
        elif tag == "td":
            self._line.append(self._text or "" if self._exact is None else self._exact)
            self._text = None
        elif tag == "tr" and self._line:
            self.tables[self._table].append(dict(zip(self._heads, self._line, strict=True)))


def page(base: str) -> str:
    """The tab's page, by the address of the application's pages."""
    with urllib.request.urlopen(f"{base}/flight-shuffle/", timeout=TIMEOUT_S) as reply:
        return str(reply.read().decode())


def live(spark: SparkSession) -> str:
    """The page of the running application, when all that has happened is on it."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(TIMEOUT_S * 1000)
    return page(spark.sparkContext.uiWebUrl or "")


def tabs(spark: SparkSession) -> str:
    """One of Spark's own pages, with the names of all tabs."""
    with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/executors/", timeout=TIMEOUT_S) as reply:
        return str(reply.read().decode())


def application_id(spark: SparkSession) -> str:
    """Spark's own."""
    return str(spark.sparkContext.applicationId)


class HistoryServer:
    """Spark's, over the event logs in a directory, with its store on disk; a context manager."""

    def __init__(self, events: Path, directory: Path) -> None:
        log = directory / "history.log"
        options = f"-Dspark.history.fs.logDirectory={events.as_uri()} -Dspark.history.ui.port=0"
        options += f" -Dspark.history.store.path={directory / 'store'}"
        environment = os.environ | {
            "SPARK_HISTORY_OPTS": f"{options} -Djava.io.tmpdir={directory}",
            "SPARK_DAEMON_CLASSPATH": str(find_jar()),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_PUBLIC_DNS": "127.0.0.1",
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [SPARK_CLASS, "org.apache.spark.deploy.history.HistoryServer"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        try:
            self.url = self._await(log)
        except BaseException:
            self._stop()
            raise

    def _await(self, log: Path) -> str:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (found := STARTED.search(log.read_text(errors="replace"))) is None:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"no history server: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        return found[1]

    def page(self, application: str) -> str:
        """The tab's page of an ended application; waits until the server has its event log."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while application not in [known["id"] for known in self._applications()]:
            assert time.monotonic() < deadline, f"{application} is not among {self._applications()}"
            time.sleep(0.2)
        return page(f"{self.url}/history/{application}")

    def _applications(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/applications", timeout=TIMEOUT_S) as reply:
            return json.load(reply)

    def _stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(READY_TIMEOUT_S)

    def __enter__(self) -> HistoryServer:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
