"""The examples of docs/exactly-once.md: sinks and drivers are killed, each record is in the sink once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import exactly_once
import psycopg
import pytest
from file_sink import FileSink, records_in
from postgres_sink import TABLE, PostgresSink

from tests.flight_shuffle.killed_sink import KilledSink, plans_of
from tests.shuffle_server.master.database import Database, running_database

EXAMPLE = Path(exactly_once.__file__)
SEED = 47
RECORDS = 1000  # of each source: more than are needed until the last planned death


def expected(records: int = RECORDS) -> Counter[str]:
    return Counter(f"{map}/{number}" for map in range(exactly_once.SOURCES) for number in range(records))


def in_files(directory: Path) -> Counter[str]:
    return Counter(record.decode() for record in records_in(directory))


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_database("-c", "max_prepared_transactions=8") as running:
        yield running


@pytest.fixture
def url(database: Database) -> str:
    found = database.fresh()
    with closing(psycopg.connect(found, autocommit=True)) as connection:
        connection.execute(TABLE)
    return found


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, not the machine. (KilledSink does the same in theirs.)"""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.usefixtures("unsynced")
def test_file_sink_that_is_killed_between_any_two_lines_has_each_record_once(tmp_path: Path) -> None:
    plans = plans_of(FileSink, SEED)
    sink = KilledSink(partial(FileSink, tmp_path / "records"), plans, SEED)
    deaths = exactly_once.run(tmp_path / "checkpoints", sink, RECORDS)
    assert in_files(tmp_path / "records") == expected()
    assert deaths == sum(map(len, plans))


@pytest.mark.usefixtures("unsynced")
def test_postgres_sink_that_is_killed_between_any_two_lines_has_each_record_once(url: str, tmp_path: Path) -> None:
    plans = plans_of(PostgresSink, SEED)
    sink = KilledSink(partial(PostgresSink, url), plans, SEED)
    deaths = exactly_once.run(tmp_path / "checkpoints", sink, RECORDS)
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        found = Counter(record for (record,) in connection.execute("SELECT record FROM records"))
        assert connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() == (0,)
    assert found == expected()
    assert deaths == sum(map(len, plans))


def test_driver_that_is_killed_goes_on_from_the_last_complete_checkpoint(tmp_path: Path) -> None:
    checkpoints = exactly_once.Checkpoints(tmp_path / "checkpoints")
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    kill_at = random.Random(SEED).randrange(2, 6)
    with subprocess.Popen(command, env=environment) as driver:
        while checkpoints.latest() < kill_at:
            assert driver.poll() is None
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=True)
    assert in_files(tmp_path / "records") == expected(200)
    assert done.stdout == "400 records\n"
