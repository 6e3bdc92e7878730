"""Headless Chromium, driven over the pipe that it takes commands from (the Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MISSING = "no Chromium: apt-get install chromium"
ANSWER_S = 240.0
STOP_S = 30.0
POLL_S = 0.05
COMMANDS, REPLIES = 3, 4  # the descriptors that Chromium reads from and writes to

_QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-gpu", "--disable-quic"]
_QUIET += ["--disable-sync", "--headless", "--no-first-run", "--no-sandbox"]


class Failed(Exception):
    """The browser refused a command, or an expression raised."""


class Browser:
    """One page in a browser of its own. A context manager.

    :ivar console: what the page's scripts, its policies and its requests complained of, in the browser's words.
    """

    def __init__(self, profile: Path) -> None:
        self.console: list[str] = []
        self._number, self._rest, self._session = 0, b"", ""
        commands, self._to = _pipe()
        self._from, replies = _pipe()
        assert CHROMIUM is not None, MISSING
        shell = f'exec "$@" {COMMANDS}<&{commands} {REPLIES}>&{replies} 1>/dev/null 2>"$0"'
        command = ["bash", "-c", shell, str(profile.with_suffix(".log")), CHROMIUM, *_QUIET]
        command += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, pass_fds=(commands, replies), start_new_session=True)
        os.close(commands)
        os.close(replies)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of one command. Raises Failed, TimeoutError."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        _write_all(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_S
        while True:
            reply = self._next(until, method)
            if reply.get("id") != self._number:
                self._heed(reply)
            elif "error" in reply:
                raise Failed(f"{method}: {reply['error']['message']}")
            else:
                return reply["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, of a promise what it is fulfilled with. Raises Failed."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failed(_exception(result["exceptionDetails"]))
        return result["result"].get("value")

    def open(self, url: str) -> None:
        """Load it in a new document."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """What the page is shown on."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def picture(self) -> bytes:
        """The whole page, a PNG image."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def trust_every_certificate(self) -> None:
        """Those of a test are of a CA that no browser knows."""
        self.call("Security.setIgnoreCertificateErrors", ignore=True)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Another tab is in front of the page inside."""
        front = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.wait_for("document.hidden")
        yield
        self.call("Target.closeTarget", targetId=front)
        self.wait_for("!document.hidden")

    def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def wait_for(self, expression: str, seconds: float = ANSWER_S) -> Any:
        """The first value of the expression that is true. Raises TimeoutError."""
        until = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            if time.monotonic() > until:
                raise TimeoutError(f"not after {seconds:g} s: {expression}; console: {self.console}")
            time.sleep(POLL_S)
        return value

    def close(self) -> None:
        """End it; idempotent."""
        for end in (self._to, self._from):
            with suppress(OSError):
                os.close(end)
        self._to = self._from = -1
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        with suppress(ProcessLookupError):  # its helpers as well
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, until: float, what: str) -> Any:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium has not answered {what} in {ANSWER_S:g} s")
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise Failed(f"Chromium ended in the middle of {what}")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def _heed(self, event: dict[str, Any]) -> None:
        method, given = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.console.append(_exception(given["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(each.get("value", each.get("description"))) for each in given["args"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{given['entry']['text']} {given['entry'].get('url', '')}".strip())


def _pipe() -> tuple[int, int]:
    """Its ends have numbers above those that the browser's are to have."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _write_all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]


def _exception(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details["text"])
