"""scripts/advisories, against a source of advisories on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "advisories"
Answer = Callable[[list[Any]], bytes]


@contextmanager
def source(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer(queries))

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def check(url: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ADVISORIES": url}
    return subprocess.run(
        [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def about(*names: str) -> Answer:
    def answer(queries: list[Any]) -> bytes:
        bad = {"vulns": [{"id": "X-2026-1"}, {"id": "X-2026-2"}]}
        return json.dumps({"results": [bad if q["package"]["name"] in names else {} for q in queries]}).encode()

    return answer


def test_without_advisories_all_is_well() -> None:
    with source(about()) as url:
        done = check(url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all is well" in done.stdout


@pytest.mark.parametrize("name", ["pyarrow", "psycopg", "com.google.protobuf:protobuf-javalite"])
def test_a_vulnerable_dependency_fails_and_is_named_with_its_version(name: str) -> None:
    with source(about(name)) as url:
        done = check(url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"advisories: {name} ")
    assert done.stderr.split()[2][0].isdigit()
    assert "X-2026-1, X-2026-2" in done.stderr


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"results": []}', b'{"results": 1}', b"<html>"])
def test_a_source_that_is_none_fails_nothing_and_one_line_says_so(answer: bytes) -> None:
    with source(lambda queries: answer) as url:
        done = check(url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert "not checked" in done.stdout


def test_a_source_that_is_away_or_never_answers_fails_nothing() -> None:
    over = threading.Event()

    def never(queries: list[Any]) -> bytes:
        over.wait(120)
        return b""

    with source(never) as url:
        try:
            done = check(url)
        finally:
            over.set()
    assert (done.returncode, done.stderr) == (0, "")
    assert "not checked" in done.stdout
    done = check("http://127.0.0.1:1/")
    assert (done.returncode, done.stderr) == (0, "")
    assert "not checked" in done.stdout
