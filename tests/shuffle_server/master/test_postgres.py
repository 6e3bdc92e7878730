"""The registry in a real PostgreSQL: files as rows, who leads, and what a former leader cannot do any more."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuttingDown, StorageFailed
from shuffle_server.master.files import AppendFile, FlatDirectory, LocalDirectory
from shuffle_server.master.master import Master
from shuffle_server.master.postgres import directory as postgres_directory
from shuffle_server.master.postgres import session as postgres_session
from shuffle_server.master.postgres.directory import PostgresDirectory
from shuffle_server.master.postgres.session import PostgresSession
from tests.processes import stopped
from tests.shuffle_server.master.database import Database, running_database
from tests.shuffle_server.master.scene import BEGIN, SHUFFLE, commit

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_database() as running:
        yield running


@pytest.fixture
def url(database: Database) -> str:
    return database.fresh()


def never() -> bool:
    return False


class Leader:
    """A session that leads, and what became of it."""

    def __init__(self, url: str) -> None:
        self.lost: list[str] = []
        self.gone = threading.Event()
        self.session = PostgresSession(url, self._lost)
        self.session.lead(never, pause=0.05)
        self.directory = PostgresDirectory(self.session)
        [(self.pid,)] = self.session.execute("SELECT pg_backend_pid()")

    def _lost(self, why: str) -> None:
        self.lost.append(why)
        self.gone.set()

    def master(self) -> Master:
        return Master(self.directory, sync=True, sure=self.session.check)

    def close(self) -> None:
        self.session.close()


def ready_to_go_on(master: Master) -> bool:
    return not master.failing and master.given_up is None


def end_session(url: str, pid: int) -> None:
    """As the database ends that of a peer that has vanished."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))


def contents(directory: FlatDirectory) -> dict[str, bytes]:
    found = {}
    for name in directory.names():
        with directory.open(name) as file:
            found[name] = file.read()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_files_are_what_they_are_on_a_disk(url: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    names = ["log-1", "log-2", "log-2.new", "snapshot-1"]
    with closing(Leader(url)) as leader:
        both: tuple[FlatDirectory, ...] = (LocalDirectory(tmp_path / "disk"), leader.directory)
        opened: dict[str, tuple[AppendFile, ...]] = {}
        for _ in range(120):
            name, verb = rng.choice(names), rng.choice(["create", "write", "write", "truncate", "rename", "remove"])
            there = name in both[0].names()
            if verb == "create":
                opened[name] = tuple(each.create(name) for each in both)
            elif verb == "write" and there:
                files = opened.get(name) or tuple(each.append(name) for each in both)
                data = rng.randbytes(rng.randrange(1, 50))
                opened[name] = files
                for file in files:
                    file.write(data)
            elif verb == "truncate" and there:
                size = rng.randrange(1 + len(contents(both[0])[name]))
                opened.pop(name, None)
                for directory in both:
                    file = directory.append(name)
                    file.truncate(size)
                    file.close()
            elif verb == "rename" and there:
                new = rng.choice(names)
                for directory in both:
                    directory.rename(name, new)
                opened.clear()
            elif verb == "remove" and there:
                for directory in both:
                    directory.remove(name)
                opened.pop(name, None)
            assert contents(both[1]) == contents(both[0])
        for verb in ("open", "append", "remove"):
            for directory in both:
                with pytest.raises(FileNotFoundError):
                    getattr(directory, verb)("nothing")
        assert leader.directory.bytes() == sum(map(len, contents(both[0]).values()))


def test_what_was_acknowledged_is_there_for_the_next_leader(url: str) -> None:
    with closing(Leader(url)) as leader:
        master = leader.master()
        master.apply_all(BEGIN)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: master.apply(commit(n)), range(200)))
        master.materialize()
        master.apply(commit(200))
        epoch = master.epoch
    with closing(Leader(url)) as leader, closing(leader.master()) as master:  # the first one was not closed: it died
        assert master.epoch == epoch + 1
        outputs = master.registry.map_outputs(SHUFFLE)[0]
        assert [output.output.map for output in outputs] == list(range(201))


def test_an_epoch_rises_with_every_leader_that_changes_nothing(url: str) -> None:
    epochs = []
    for _ in range(4):
        with closing(Leader(url)) as leader, closing(leader.master()) as master:
            epochs.append(master.epoch)
    assert epochs == [1, 2, 3, 4]


def test_one_leads_and_the_next_does_when_it_is_gone(url: str) -> None:
    first = Leader(url)
    with ThreadPoolExecutor(1) as pool, closing(PostgresSession(url, lambda why: None)) as second:
        waiting = pool.submit(second.lead, never, 0.05)
        with pytest.raises(ShuttingDown):
            with closing(PostgresSession(url, lambda why: None)) as third:
                third.lead(lambda: True)
        assert not waiting.done()
        first.close()
        waiting.result(TIMEOUT)
    assert first.lost == []


def test_a_leader_sees_who_stands_by_and_nobody_of_another_schema(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Others"')
    with closing(Leader(url)) as leader, closing(Leader(f"{url}&options=-csearch_path%3D%22Others%22")) as other:
        assert leader.session.standbys() == other.session.standbys() == []
        with closing(PostgresSession(url, lambda why: None)):
            [standby] = leader.session.standbys()
            assert standby.endswith(f"/{os.getpid()}")
        assert other.session.standbys() == []


def test_masters_of_two_schemas_do_not_stand_in_each_others_way(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
    with closing(Leader(url)) as one, closing(Leader(f"{url}&options=-csearch_path%3Dother")) as other:
        one.directory.create("log-1")
        assert other.directory.names() == []


def test_a_former_leader_records_nothing_and_tells_nothing(url: str) -> None:
    with closing(Leader(url)) as former:
        master = former.master()
        master.apply_all([*BEGIN, commit(0)])
        end_session(url, former.pid)
        with closing(Leader(url)) as leader, closing(leader.master()) as next_master:
            next_master.apply(commit(1))
            with pytest.raises((StorageFailed, DeadlineExceeded)):
                master.apply(commit(2))
            assert former.gone.wait(TIMEOUT)
            with pytest.raises(ShuttingDown, match="may not lead any more"):
                master.settle()
            with pytest.raises(ShuttingDown):
                master.apply(commit(0))  # known, so nothing is to be written
            assert master.given_up is not None
        with closing(Leader(url)) as leader, closing(leader.master()) as last:
            assert [each.output.map for each in last.registry.map_outputs(SHUFFLE)[0]] == [0, 1]
    assert len(former.lost) == 1


def test_a_leader_that_hears_nothing_tells_nothing_until_it_hears_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_session, "VALID_SECONDS", 3.0)  # a busy machine must not look like a dead one
    monkeypatch.setattr(postgres_session, "RENEW_SECONDS", 0.05)
    with closing(Leader(url)) as leader, closing(leader.master()) as master:
        master.apply_all(BEGIN)
        master.settle()
        with stopped(leader.pid):
            deadline = time.monotonic() + TIMEOUT
            with pytest.raises(ShuttingDown, match="does not answer"):
                while time.monotonic() < deadline:
                    master.settle()
                    time.sleep(0.05)
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                master.settle()
                break
            except ShuttingDown:
                assert time.monotonic() < deadline
        master.apply(commit(0))
    assert leader.lost == []


def test_a_leader_that_does_not_renew_its_lease_is_replaced_and_records_and_tells_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped, or cut off while the database does not notice it."""
    monkeypatch.setattr(postgres_session, "RENEW_SECONDS", 3600.0)
    monkeypatch.setattr(postgres_session, "CHECK_SECONDS", 0.1)
    with closing(Leader(url)) as former:
        master = former.master()
        master.apply_all([*BEGIN, commit(0)])
        monkeypatch.setattr(postgres_session, "LEASE_SECONDS", 1.0)
        monkeypatch.setattr(postgres_session, "VALID_SECONDS", 0.8)
        with closing(Leader(url)) as leader, closing(leader.master()) as next_master:
            assert next_master.epoch == master.epoch + 1
            assert [each.output.map for each in next_master.registry.map_outputs(SHUFFLE)[0]] == [0]
            with pytest.raises((StorageFailed, DeadlineExceeded)):
                master.apply(commit(1))
            with pytest.raises(ShuttingDown):
                master.settle()
            assert former.gone.wait(TIMEOUT)
            next_master.apply(commit(2))
            assert [each.output.map for each in next_master.registry.map_outputs(SHUFFLE)[0]] == [0, 2]
    assert len(former.lost) == 1


def test_a_leader_that_renews_its_lease_is_not_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(postgres_session, "LEASE_SECONDS", 3.0)
    looks = iter(range(100))
    with closing(Leader(url)) as leader, closing(PostgresSession(url, lambda why: None)) as standby:
        with pytest.raises(ShuttingDown, match="stood by"):
            standby.lead(lambda: next(looks) == 99, pause=0.05)
        assert standby.silent() == ""
        assert leader.session.leads
        assert not standby.leads
    assert leader.lost == []


def test_a_transaction_of_a_term_that_is_over_does_nothing(url: str) -> None:
    """Whatever has become of its session."""
    with closing(Leader(url)) as former:
        former.directory.create("log-1")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE flight_shuffle_lease SET term = term + 1")
        with pytest.raises(OSError, match="another master leads"):
            former.directory.create("log-2")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT name FROM flight_shuffle_file").fetchall() == [("log-1",)]
        assert not former.session.leads
    assert former.lost == ["another master leads"]


def test_a_large_file_is_read_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_directory, "PIECES", 3)
    with closing(Leader(url)) as leader:
        for count in (0, 2, 3, 7):
            file = leader.directory.create("log-1")
            for n in range(count):
                file.write(bytes([n]) * (n + 1))
            with leader.directory.open("log-1") as read:
                assert read.read() == b"".join(bytes([n]) * (n + 1) for n in range(count))


def test_what_the_database_refuses_is_not_acknowledged(url: str) -> None:
    with closing(Leader(url)) as leader:
        master = leader.master()
        master.apply_all(BEGIN)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE flight_shuffle_piece ADD CHECK (length(data) < 5) NOT VALID")
            with pytest.raises(StorageFailed, match="check constraint"):
                master.apply(commit(0))
            assert ready_to_go_on(master) is False
            connection.execute("ALTER TABLE flight_shuffle_piece DROP CONSTRAINT flight_shuffle_piece_data_check")
        master.apply(commit(1))
        assert ready_to_go_on(master)
    with closing(Leader(url)) as leader, closing(leader.master()) as master:
        assert [each.output.map for each in master.registry.map_outputs(SHUFFLE)[0]] == [1]


@pytest.mark.parametrize("change", [{"dbname": "nothing"}, {"user": "nobody-here"}])
def test_a_database_that_cannot_be_used_is_named_and_its_password_is_not(url: str, change: dict[str, Any]) -> None:
    wrong = psycopg.conninfo.make_conninfo(url, password="secret-word", **change)
    with pytest.raises(InvalidArgument, match="--metadata") as caught:
        PostgresSession(wrong, lambda why: None)
    assert "secret-word" not in str(caught.value)
