"""Tasks that reach each other through a worker: they only dial out, and all else is as between peers."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument, Overloaded, ServerUnreachable, ShuffleError, Unauthenticated
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing import ShufflePluginTests
from shuffle_plugins.pipelined import PipelinedShuffle, endpoint, listener
from shuffle_transport.credential_files import load_keyring
from tests.certificates import make_party, make_secret
from tests.relay_process import RelayProcess
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene, data, records_of, rest, write

Options = dict[str, OptionValue]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with RelayProcess(tmp_path_factory.mktemp("relay"), ["--metrics-listen", "127.0.0.1:0"]) as process:
        yield process


@pytest.fixture
def own_relay(tmp_path: Path) -> Iterator[RelayProcess]:
    """One that a test may kill."""
    with RelayProcess(tmp_path) as process:
        yield process


def through(relay: RelayProcess, **options: OptionValue) -> Options:
    return {"local": False, "timeout": WAIT, "relay": relay.address, **options}


class TestPipelinedShuffleThroughRelay(ShufflePluginTests):
    plugin_class = PipelinedShuffle
    supports_blocks = True
    supports_batches = True

    @pytest.fixture
    def options(self, relay: RelayProcess) -> Options:
        return {"local": False, "relay": relay.address}


def test_task_listens_nowhere(relay: RelayProcess) -> None:
    with Scene(1, 1, through(relay)) as scene, scene.writer() as writer, scene.reader() as reader:
        assert scene.handle.endpoint.startswith(f"{relay.address}/")
        write(writer, range(10))
        committed = writer.commit()
        assert records_of(rest(reader)) == data(*range(10))
        assert committed.worker.startswith("relayed-")
        assert scene.plugin._endpoint._listener.address("x") != scene.handle.endpoint
        assert not hasattr(scene.plugin._endpoint._listener, "_server")


def test_reader_without_the_option_dials_out_to_the_relay_too(relay: RelayProcess) -> None:
    with Scene(1, 1, through(relay)) as scene, PipelinedShuffle({"local": False, "timeout": WAIT}) as other:
        with scene.writer() as writer, other.reader(scene.handle, range(1)) as reader:
            write(writer, range(10))
            writer.commit()
            assert [record for _, record in reader] == data(*range(10))


def test_slow_reader_makes_the_writer_wait_and_the_relay_holds_next_to_nothing(relay: RelayProcess) -> None:
    """What has come through while the reader stands still is the reader's own credit."""
    before = metric(relay, "relayed_channel_bytes_total")
    options = through(relay, window=1 << 20, queue_bytes=256 << 10, log_bytes=0, memory=64 << 20, debloat_target=0.0)
    with Scene(1, 1, {**options, "timeout": 8.0}) as scene:
        reader, writer = scene.reader(), scene.writer()
        record, written = bytes(16 << 10), 0
        with pytest.raises(Overloaded):
            while True:
                writer.write(0, record)
                written += 1
        assert 0 < written * len(record) < 4 << 20
        assert metric(relay, "relayed_channel_bytes_total") - before < 3 << 20
        assert metric(relay, "relayed_channel_held_bytes") <= 2 << 20
        assert metric(relay, "relayed_channels") == 1
        got = 0
        while got < written:
            got += len(records_of([event] if (event := reader.poll(WAIT)) is not None else []))
        writer.write(0, record)  # there is room again
        writer.commit()
        rest(reader)
        reader.close()
    assert metric(relay, "pool_budget_bytes") > metric(relay, "pool_peak_bytes") > 0


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_stream_goes_on_when_the_relay_was_killed_and_started_again(own_relay: RelayProcess, guarantee: str) -> None:
    with Scene(2, 1, through(own_relay, guarantee=guarantee)) as scene:
        with scene.writer() as writer, scene.reader() as reader:
            write(writer, range(100))
            writer.flush()
            got = records_of([reader.poll(WAIT)])  # type: ignore[list-item]
            for first in (100, 200):
                own_relay.kill()
                write(writer, range(first, first + 50))
                own_relay.restart()
                write(writer, range(first + 50, first + 100), partition=1)
            writer.commit()
            got += records_of(rest(reader))
            assert sorted(got, key=int) == data(*range(300))
        assert [found.output for found in scene.master.map_outputs(scene.handle)] == [MapAttempt(0, 0)]
        with scene.reader(attempt=1):  # the driver is still reached
            pass


def test_tasks_may_start_while_the_relay_does(own_relay: RelayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (listener, endpoint):  # a start takes as long as it takes
        monkeypatch.setattr(module, "RELAY_BACK_WITHIN", 2 * WAIT)
    with Scene(1, 1, through(own_relay)) as scene, PipelinedShuffle(through(own_relay, timeout=2 * WAIT)) as task:
        own_relay.strike()  # kill -9, and another start
        with task.writer(scene.handle, MapAttempt(0, 0)) as writer, scene.reader() as reader:
            write(writer, range(10))
            writer.commit()
            assert records_of(rest(reader)) == data(*range(10))


def test_relay_that_is_stopped_in_order_waits_for_nobody(tmp_path: Path) -> None:
    """Its channels break, as if it had died, and both ends come back."""
    with RelayProcess(tmp_path) as own_relay, Scene(1, 1, through(own_relay)) as scene:
        with scene.writer() as writer, scene.reader() as reader:
            write(writer, range(10))
            writer.flush()
            got = records_of([reader.poll(WAIT)])  # type: ignore[list-item]
            own_relay.stop()
            own_relay.restart()
            write(writer, range(10, 20))
            writer.commit()
            assert got + records_of(rest(reader)) == data(*range(20))


def test_application_streams_with_its_token_and_over_tls_and_sees_no_others(tmp_path: Path) -> None:
    party, secret = make_party(tmp_path / "tls"), make_secret(tmp_path / "secret")
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret))
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret)]
    with RelayProcess(tmp_path, arguments, credentials=keys.for_cluster()) as relay:
        own = through(relay, tls_ca=str(party.ca))  # nobody needs a certificate to serve with
        driver = PipelinedShuffle({**own, "secret_file": str(secret)})
        task = PipelinedShuffle({**own, "token": keys.for_app("A").token})
        stranger = PipelinedShuffle({**own, "token": keys.for_app("B").token})
        with driver, task, stranger, driver.master("A") as master:
            handle = master.register_shuffle(1, 1)
            with task.writer(handle, MapAttempt(0, 0)) as writer, task.reader(handle, range(1)) as reader:
                write(writer, range(10))
                writer.commit()
                assert [record for _, record in reader] == data(*range(10))
            with pytest.raises(Unauthenticated):  # its token is not that of A
                stranger.reader(handle, range(1))
            with pytest.raises(Unauthenticated):
                PipelinedShuffle({**own, "token": "x" * 44}).master("A")


def test_producer_that_leaves_is_named_to_its_reader(relay: RelayProcess) -> None:
    with Scene(1, 1, through(relay, guarantee="exactly_once")) as scene:
        task = PipelinedShuffle(through(relay, linger=0.0))
        writer = task.writer(scene.handle, MapAttempt(0, 0))
        with scene.reader() as reader:
            write(writer, range(3))
            writer.flush()
            assert reader.poll(WAIT) is not None
            task.close()
            with pytest.raises(ShuffleError, match=f"the producer at {relay.address}/.* is lost"):
                rest(reader)


def test_relay_that_is_not_there_is_named() -> None:
    with PipelinedShuffle({"relay": "127.0.0.1:1", "timeout": 2.0}) as plugin:
        with pytest.raises(ServerUnreachable, match="127.0.0.1:1"):
            plugin.master("app")


@pytest.mark.parametrize("relay_option", ["nowhere", "host:", "host:port", ":9"])
def test_relay_option_is_checked_where_it_is_given(relay_option: str) -> None:
    with pytest.raises(InvalidArgument, match="HOST:PORT"):
        PipelinedShuffle({"relay": relay_option})


def metric(relay: RelayProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{relay.metrics}/metrics", timeout=WAIT) as reply:
        lines = reply.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"flight_shuffle_{name} "))
