"""The server's log, as text and as JSON; and what a real server writes into it."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import MapOutputLost, Unauthenticated, UnknownApp, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.observe.log_context import log_context
from shuffle_server.observe.logs import set_up_logging
from shuffle_transport.control_client import ControlClient
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Keyring
from shuffle_transport.tokens import app_token, cluster_token
from tests.certificates import make_secret
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.test_server import run_cli

log = logging.getLogger("shuffle_server.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is written; logging is as it was afterwards."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:], threading.excepthook = handlers, hook
    root.setLevel(level)
    logging.captureWarnings(False)


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_text_lines_have_time_level_logger_fields_and_message(stream: io.StringIO) -> None:
    set_up_logging("text", "info", stream)
    with log_context(app="etl", shuffle=3, peer="ipv4:10.0.0.1:5"):
        log.info("took %d bytes", 7)
    log.warning("plain")
    first, second = stream.getvalue().splitlines()
    time, rest = first.split(" ", 1)
    assert len(time) == len("2026-11-21T09:41:07.123Z")
    assert rest == "INFO shuffle_server.test [app=etl shuffle=3 peer=ipv4:10.0.0.1:5]: took 7 bytes"
    assert second.endswith("WARNING shuffle_server.test: plain")


def test_json_lines_have_the_same_as_members(stream: io.StringIO) -> None:
    set_up_logging("json", "info", stream)
    with log_context(app="etl", map=0, attempt=1):
        log.info("took %d bytes", 7)
    [record] = records(stream.getvalue())
    assert record.pop("time").endswith("Z")
    assert record == {
        "level": "info",
        "logger": "shuffle_server.test",
        "thread": threading.current_thread().name,
        "message": "took 7 bytes",
        "app": "etl",
        "map": 0,
        "attempt": 1,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_text_from_outside_cannot_begin_a_record_or_play_with_a_terminal(stream: io.StringIO, form: str) -> None:
    set_up_logging(form, "info", stream)
    with log_context(app="a\n2026 INFO x: forged] y"):
        log.info("%s", "a\n\x1b[2J\u2028\x9bforged\x7f")
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert not set(written[:-1]) & {"\x1b", "\u2028", "\x9b", "\r"}
    if form == "text":
        assert '[app="a\\n2026 INFO x: forged] y"]' in written


def test_levels_below_the_chosen_one_are_not_written(stream: io.StringIO) -> None:
    set_up_logging("text", "warning", stream)
    log.info("no")
    log.warning("yes")
    assert "no" not in stream.getvalue()
    assert "yes" in stream.getvalue()


def test_errors_of_threads_warnings_and_tracebacks_are_records_too(stream: io.StringIO) -> None:
    set_up_logging("json", "info", stream)

    def fail() -> None:
        raise ConnectionError("cut")

    thread = threading.Thread(target=fail, name="worker-7")
    thread.start()
    thread.join(60)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("soon gone", DeprecationWarning, stacklevel=1)
    died, warned = records(stream.getvalue())
    assert (died["level"], "worker-7" in died["message"]) == ("critical", True)
    assert "ConnectionError: cut" in died["exception"]
    assert "soon gone" in warned["message"]


def test_logging_goes_to_standard_error(stream: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("text", "info")
    [handler] = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr


# ------------------------------------------------------------------ a real server


def find(log_records: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """The first record whose message has this text."""
    return next(record for record in log_records if text in record["message"])


def test_records_of_a_server_say_whom_they_are_about(tmp_path: Path) -> None:
    arguments = ["--log-format", "json", "--log-level", "debug"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server:
        with RemoteShuffle({"server": server.control}) as plugin, plugin.master("job") as master:
            handle = master.register_shuffle(8, 1, shuffle=5)
            write_map(plugin, handle, 0, attempt=3)
            target = PushTarget(ShuffleId("job", 99), MapAttempt(7, 1), 8, "lz4")
            with closing(FlightClient(server.data)) as client, pytest.raises(UnknownShuffle):
                client.push(target, [], first_block=0, end=Totals(), commit=True)
            with closing(ControlClient(server.control, client="test")) as control, pytest.raises(UnknownApp):
                control.call("Heartbeat", pb.HeartbeatRequest(app="stranger"))
            [path] = server.data_dir.rglob("0.3.out")
            path.unlink()
            with pytest.raises(MapOutputLost):
                read_all(plugin, handle)
    written = records((tmp_path / "log").read_text())

    committed = find(written, "committed map 0")
    about = {"app": handle.spec.id.app, "shuffle": 5, "map": 0, "attempt": 3}
    assert about.items() <= committed.items()
    assert "127.0.0.1" in committed["peer"]
    refused = find(written, "push refused")
    assert {"app": "job", "shuffle": 99, "map": 7, "attempt": 1, "code": "UNKNOWN_SHUFFLE"}.items() <= refused.items()
    call = find(written, "call refused")
    assert {"app": "stranger", "method": "Heartbeat", "code": "UNKNOWN_APP"}.items() <= call.items()
    assert "127.0.0.1" in call["peer"]
    lost = find(written, "lost: map 0")
    assert about.items() <= lost.items()
    assert "127.0.0.1" in lost["peer"]
    assert find(written, "unregistered")["app"] == handle.spec.id.app


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_token_is_in_the_log(tmp_path: Path, form: str) -> None:
    secret_file = make_secret(tmp_path / "secret")
    keys, wrong = load_keyring(secret_file=str(secret_file)), Keyring(secrets=(bytes(32),))
    arguments = ["--secret-file", str(secret_file), "--log-level", "debug", "--log-format", form]
    arguments += ["--metrics-listen", "127.0.0.1:0"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        with RemoteShuffle({"server": server.control, "secret_file": str(secret_file)}) as plugin:
            with plugin.master("job") as master:
                handle = master.register_shuffle(2, 1)
                written = write_map(plugin, handle, 0)
                assert read_all(plugin, handle) == written
        for credentials in (wrong.for_app("job"), wrong.for_cluster(), replace(keys.for_app("other"), app="job")):
            with closing(ControlClient(server.control, client="test", credentials=credentials)) as control:
                with pytest.raises(Unauthenticated):
                    control.hello()
            with closing(FlightClient(server.data, credentials=credentials)) as client, pytest.raises(Unauthenticated):
                target = PushTarget(ShuffleId("job", 0), MapAttempt(0, 0), 2, "lz4")
                client.push(target, [], first_block=0, end=Totals(), commit=True)
    said = (tmp_path / "log").read_text()
    assert said.count("refused") == 6
    assert "committed map 0" in said
    secret = secret_file.read_text().strip()
    hidden = [secret, cluster_token(secret.encode()), wrong.for_app("job").token, wrong.for_cluster().token]
    hidden += [app_token(secret.encode(), app) for app in ("job", "other")]
    assert [text for text in hidden if text[:16] in said] == []


def test_an_unknown_log_format_lists_the_known(tmp_path: Path) -> None:
    result = run_cli("server", "--data-dir", str(tmp_path), "--log-format", "xml")
    assert result.returncode == 2
    assert "'text', 'json'" in result.stderr
