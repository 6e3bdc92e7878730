"""The commands that look at a server, and those that change it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bench.harness.server import ServerProcess, lasting_addresses
from shuffle_api.errors import InvalidArgument, ServerUnreachable
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.tables import counted, size_shown, time_shown
from shuffle_plugins.pipelined import PipelinedShuffle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.cli import main
from shuffle_server.cli.machine import check_directory
from shuffle_server.cli.status import arrange, render
from shuffle_server.cli.top import rates_between, view
from shuffle_server.options import ServerOptions, check_options, data_listen, not_default
from shuffle_server.server import JOIN_SECONDS
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import write_map
from tests.shuffle_server.test_server import run_cli
from tests.shuffle_transport.channels.helpers import eventually


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(arguments) == status, capsys.readouterr().err
    return capsys.readouterr().out


def test_shuffles_events_and_forget(
    server: ServerProcess, plugin: RemoteShuffle, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--server", server.control)
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        write_map(plugin, handle, 0)
        run, number = handle.spec.id.app, handle.spec.id.shuffle
        for which in ("app", run, f"{run}/{number}"):
            [found] = json.loads(shown(capsys, "shuffles", which, "--json", *at))
            assert (found["partitions"], found["committed"]) == (8, 1)
        assert str(handle.spec.id) in shown(capsys, "shuffles", *at)
        assert main(["shuffles", f"{run}/77", *at]) == 1
        assert "no shuffle" in capsys.readouterr().err
        assert main(["forget", "nobody", "--yes", *at]) == 1
        assert main(["forget", "app", "--json", *at]) == 2
        [removed] = json.loads(shown(capsys, "forget", "app", "--yes", "--json", *at))["removed"]
        assert (removed["app"], removed["shuffles"]) == (run, 1)
        assert json.loads(shown(capsys, "status", "--json", *at))["apps"] == []
    lines = [json.loads(line) for line in shown(capsys, "events", "--json", *at).splitlines()]
    assert [line["kind"] for line in lines][:4] == ["leader", "worker-joined", "application-began", "application-ended"]
    assert lines[3]["app"] == run
    assert "application-ended" in shown(capsys, "events", "--limit", "1", *at)
    [look] = [json.loads(line) for line in shown(capsys, "top", "--count", "1", "--json", *at).splitlines()]
    assert [worker["state"] for worker in look["workers"]] == ["in use"]


def test_doctor_finds_a_server_well_and_one_that_is_not_there(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(shown(capsys, "doctor", "--json", "--server", server.control, "--data-dir", str(tmp_path)))
    states = {each["check"]: each["state"] for each in found}
    for check in (f"master {server.control}", "version", "clocks", "token", f"disk of {tmp_path}"):
        assert states[check] == "ok", found
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    text = shown(capsys, "doctor", "--server", nobody, "--timeout", "5s", status=1)
    assert f"FAILED  master {nobody}" in text
    assert "fix: see that the server runs" in text


def test_doctor_names_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    [found] = check_directory("/proc/nothing/below")
    assert (found.state, "cannot be written" in found.seen) == ("failed", True)
    assert all(each.state != "failed" for each in check_directory(str(tmp_path / "not" / "yet")))


def test_doctor_names_a_worker_that_is_announced_as_what_no_other_machine_reaches() -> None:
    from shuffle_api.address import Address
    from shuffle_server.cli.reachability import _check_worker

    worker = pb.Worker(id="w", host="127.0.0.1", port=1)
    [found] = _check_worker(worker, (Address("192.0.2.1", 9110),), None, 1.0)
    assert (found.state, "--advertise" in found.fix) == ("failed", True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["server"], "the data directory is missing"),
        (["server", "a", "--data-dir", "b"], "both DIR and --data-dir"),
        (["server", "d", "--memory", "1m"], "'--memory': '1m': use 16m or more"),
        (["server", "d", "--durability", "maybe"], "'written', 'fsynced'"),
        (["server", "d", "--listen", "h:x"], "--listen 'h:x' is not HOST:PORT"),
        (["server", "d", "--data-listen", "h:x"], "--data-listen 'h:x'"),
        (["server", "d", "--http-listen", ":1"], "--http-listen ':1'"),
        (["server", "d", "--metrics-listen", ":1"], "--http-listen ':1'"),
        (["server", "d", "--advertise", "http://x y"], "--advertise 'http://x y' is no host name"),
        (["server", "d", "--advertise", "h:9110"], "without a port"),
        (["server", "d", "--advertise", "[::]"], "--advertise '[::]' is every address"),
        (["server", "d", "--free-floor", "150"], "'--free-floor': '150': use 99 or less"),
        (["server", "d", "--free-floor", "-1"], "use 0 or more"),
        (["server", "d,,e"], "--data-dir 'd,,e' names a directory twice, or an empty one"),
        (["server", "d", "--device", "tape"], "--device 'tape'"),
        (["server", "d", "--copies-apart", "a b"], "--copies-apart 'a b'"),
        (["worker", "d"], "'--master'. To do: give --master: HOST:PORT"),
        (["token", "--secret-file", "/nonexistent", "--cluster"], "--secret-file /nonexistent cannot be read"),
        (["token", "--secret-file", "s", "--cluster", "--valid", "1x"], "30d"),
        (["worker", "d", "--master", "nowhere"], "--master 'nowhere'"),
        (["master", "d", "--metadata", "a", "--metadata-file", "b"], "both --metadata and --metadata-file"),
        (["status", "--colour"], "--colour"),
        (["status", "--timeout", "0"], "'--timeout': '0': use 100ms or more"),
        (["top", "--interval", "0"], "use 200ms or more"),
        (["bench", "cluster", "--size", "0"], "use 1 or more"),
        (["spark-conf", "--server", "h:1", "--option", "a=1", "--option", "a=2"], "--option a is given twice"),
        (["drain", "w"], "address is missing"),
        (["token", "--secret-file", "s"], "give one of --app, --worker and --cluster"),
        (["sing"], "No such command 'sing'"),
    ],
)
def test_wrong_usage_is_named_with_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_listen_address_that_is_not_of_this_machine_is_named(tmp_path: Path) -> None:
    nowhere = "192.0.2.1:9110"  # for documentation (RFC 5737)
    failed = run_cli("server", str(tmp_path), "--listen", nowhere)
    assert failed.returncode == 1
    said = failed.stderr.splitlines()[-1]  # after a warning: strangers could reach this address
    assert said.startswith(f"flight-shuffle: cannot listen on {nowhere}: Cannot assign requested address. ")
    assert "choose another --listen address" in said


@pytest.mark.parametrize("role", [["server", "--listen", "127.0.0.1:0"], ["worker", "--master", "127.0.0.1:1"]])
def test_a_data_address_that_is_taken_is_named(tmp_path: Path, role: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        failed = run_cli(*role, "--data-dir", str(tmp_path), "--data-listen", taken)
    assert failed.returncode == 1
    [said] = failed.stderr.splitlines()
    assert said.startswith(f"flight-shuffle: cannot listen on {taken}: Address already in use. ")
    assert "choose another --data-listen address" in said


def test_a_drain_waits_no_longer_for_an_absent_master_than_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def away(server: str, credentials: object, *, timeout: float, retry: float, **_: object) -> NoReturn:
        waits.extend((timeout, retry))
        raise ServerUnreachable(server, "it is away")

    monkeypatch.setattr(sys.modules["shuffle_server.cli.drain"], "control_client", away)
    assert main(["drain", "w-1", "--server", "127.0.0.1:1", "--timeout", "3s"]) == 1
    assert waits == [3.0, 3.0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "_FLIGHT_SHUFFLE_COMPLETE" in shown(capsys, "completion", shell)


def test_the_program_is_loaded_without_arrow_and_grpc() -> None:
    """A server bounds and sets up both before it loads them."""
    code = "import sys; from shuffle_server.cli import program; program()\n"
    code += "sys.exit(bool({'pyarrow', 'grpc'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], timeout=240, check=True)


def test_a_server_is_loaded_without_what_arrow_computes() -> None:
    """It makes no columns: this is a tenth of its start."""
    code = "import sys, shuffle_server.server; sys.exit('pyarrow.compute' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], timeout=240, check=True)


def test_help_shows_values_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "server", "--help").split())
    for part in ("(default: 1g)", "(default: 10m)", "[written|fsynced]", "--http-listen, --metrics-listen HOST:PORT"):
        assert part in text


def test_the_data_port_is_fixed_where_the_control_port_is() -> None:
    assert str(data_listen(ServerOptions("d"))) == "127.0.0.1:9111"
    assert str(data_listen(ServerOptions("d", "[::1]:7"))) == "[::1]:9111"
    assert str(data_listen(ServerOptions("d", "h:0"))) == "h:0"
    assert str(data_listen(ServerOptions("d", data_listen="my_host"))) == "my_host:9111"
    check_options(ServerOptions("d", "h", data_listen="[::1]", http_listen="0.0.0.0"))
    with pytest.raises(InvalidArgument, match="--listen '::1'"):
        check_options(ServerOptions("d", "::1"))


def test_options_that_are_not_default_are_logged_without_secrets() -> None:
    options = ServerOptions("/d", memory=64 << 20, app_timeout=90.0, tier="s3://key:secret@b")
    assert not_default(options) == "--data-dir /d, --memory 64m, --tier ***, --app-timeout 90s"


def test_the_log_goes_on_in_a_new_file_after_sighup(tmp_path: Path) -> None:
    log, moved = tmp_path / "server.log", tmp_path / "server.log.1"
    with ServerProcess(tmp_path / "data", tmp_path / "stderr", ["--log-file", str(log)]) as server:
        assert "serves: control=" in log.read_text()
        log.rename(moved)
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: log.exists() and "opened again" in log.read_text())
        assert server.running
    assert "the server has stopped" in log.read_text()
    assert "the server has stopped" not in moved.read_text()


def test_a_worker_that_looks_for_its_master_can_be_stopped(tmp_path: Path) -> None:
    [nobody] = lasting_addresses(1)
    options = ["--master", nobody, "--data-listen", "127.0.0.1:0"]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        worker = subprocess.Popen(
            [sys.executable, "-m", "shuffle_server", "worker", str(tmp_path / "data"), *options], stderr=stderr
        )
    try:
        eventually(lambda: "is not joined" in log.read_text())
        worker.terminate()
        assert worker.wait(JOIN_SECONDS / 2) == 0
    finally:
        worker.kill()
        worker.wait()


def reply(**fields: Any) -> pb.StatusReply:
    return pb.StatusReply(
        workers=[
            pb.Worker(id="w-1", host="h", port=1),
            pb.Worker(id="w-2", host="h", port=2, silent=True, draining=True),
        ],
        lost=[pb.LostWorker(worker="w-3", address="h:3", seconds=100, reason="silent for 61 s")],
        shuffles=[
            pb.ShuffleStatus(shuffle=pb.ShuffleKey(app="a", shuffle=n), totals=pb.Totals(bytes=n)) for n in range(30)
        ],
        **fields,
    )


def test_status_shows_silent_and_lost_workers_and_the_largest_first() -> None:
    whole = reply(workers_lost=1, outputs_lost=2)
    some = arrange(whole, "bytes", 20)
    assert [each.shuffle.shuffle for each in some.shuffles] == list(range(29, 9, -1))
    text = render(some, 0, whole.shuffles)
    assert "w-2     h:2      silent" in text
    assert "w-3          h:3      100 s ago  silent for 61 s" in text
    assert "(20 of 30 shuffles; --limit 0 shows all)" in text
    assert "2 workers (1 silent), 30 shuffles" in text
    assert "1 worker and 2 map outputs lost" in text
    assert [each.shuffle.shuffle for each in arrange(whole, "name", 0).shuffles] == list(range(30))


def test_rates_are_of_what_has_come_since_the_last_look() -> None:
    first = reply(bytes_pushed=1000, states=[pb.WorkerStatus(worker="w-1", bytes_pushed=500)])
    second = reply(bytes_pushed=3000, states=[pb.WorkerStatus(worker="w-1", bytes_pushed=100, bytes_pulled=8)])
    rates = rates_between((0.0, first), (2.0, second))
    assert rates.of == {"": (1000.0, 0.0), "w-1": (0, 4.0)}
    assert rates_between(None, (0.0, first)).of == {}
    text = view(second, rates, 10)
    assert "1000 B/s in" in text
    assert "lost" in text


def test_top_shows_what_passes_through_a_worker_between_running_tasks(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("top", "--count", "1", "--server", server.control)
    assert json.loads(shown(capsys, *at, "--json"))["relays"] == []
    assert "RELAYED" not in shown(capsys, *at)
    options: dict[str, OptionValue] = {"local": False, "relay": server.data, "timeout": 240.0}
    with PipelinedShuffle(options) as plugin, plugin.master("stream") as master:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer, plugin.reader(handle, range(1)) as reader:
            writer.write(0, b"one")
            writer.flush()
            assert next(iter(reader)) == (0, b"one")
            [relay] = json.loads(shown(capsys, *at, "--json"))["relays"]
            assert (relay["tasks"], relay["channels"] >= 1, relay["bytes"] > 0) == (1, True, True)
            assert "RELAYED TASKS" in shown(capsys, *at)


def test_top_shows_the_lag_of_streaming_shuffles() -> None:
    stream = pb.StreamStatus(
        shuffle=pb.ShuffleKey(app="live-1", shuffle=3),
        writers=2,
        readers=1,
        totals=pb.Totals(records=5000, bytes=1 << 20),
        queued_records=1200,
        queued_bytes=1 << 10,
        lag_seconds=0.25,
    )
    relay = pb.RelayStatus(tasks=2, channels=3, bytes=300, streams=[stream])
    first = pb.StatusReply(states=[pb.WorkerStatus(worker="w", relay=pb.RelayStatus(bytes=100))])
    second = pb.StatusReply(states=[pb.WorkerStatus(worker="w", relay=relay)])
    lines = view(second, rates_between((0.0, first), (2.0, second)), 10).splitlines()
    assert ["w", "2", "3", "100", "B/s", "0", "B"] in [line.split() for line in lines]
    [row] = [line.split() for line in lines if line.startswith("live-1/3")]
    assert row == ["live-1/3", "w", "2", "1", "5,000", "1.0", "MiB", "1,200", "1.0", "KiB", "250", "ms"]


def test_sizes_and_times_are_shown_as_people_write_them() -> None:
    assert [counted(each, "worker") for each in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]
    assert [size_shown(each) for each in (0, 1023, 1536, 1 << 40, 1 << 62)] == [
        "0 B", "1023 B", "1.5 KiB", "1.0 TiB", "4096.0 PiB",
    ]  # fmt: skip
    assert [time_shown(each) for each in (0, 0.03, 45, 600, 18_000, 400_000)] == [
        "0 s",
        "30 ms",
        "45 s",
        "10 min",
        "5 h",
        "5 d",
    ]
