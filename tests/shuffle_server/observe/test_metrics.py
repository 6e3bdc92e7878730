"""A real server, real pushes and pulls through the Python plugin, and a scrape that must say the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics_families

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import MapOutputLost, UnknownApp, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.observe import families
from shuffle_server.observe.observation import Observation
from shuffle_transport.blocks import table_rows, totals_of
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block, read_all, write_map
from tests.shuffle_server.observe.helpers import Scrape, get
from tests.shuffle_server.test_server import run_cli

MEMORY = 64 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    arguments = ["--metrics-listen", "127.0.0.1:0", "--memory", str(MEMORY)]
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", arguments) as process:
        yield process


def test_a_scrape_says_what_was_pushed_and_pulled(server: ServerProcess, plugin: RemoteShuffle) -> None:
    maps = 3
    with plugin.master("job") as master:
        handle = master.register_shuffle(8, maps)
        expected = sorted(record for m in range(maps) for record in write_map(plugin, handle, m, 2000))
        held = [output.totals for output in master.map_outputs(handle)]
        blocks, size = sum(totals.blocks for totals in held), sum(totals.bytes for totals in held)
        scrape = Scrape(server.metrics)
        assert (scrape("pushed_blocks_total"), scrape("pushed_bytes_total")) == (blocks, size)
        assert scrape("pushed_messages_total") >= maps
        assert scrape("pulled_bytes_total") == scrape("discarded_bytes_total") == 0
        assert scrape("commits_total", outcome="won") == scrape("commit_seconds_count") == maps
        assert (scrape("apps"), scrape("shuffles"), scrape("workers")) == (1, 1, 1)
        assert (scrape("app_shuffles_most"), scrape("monitoring_cut_total")) == (1, 0)
        assert scrape("map_outputs", state="committed") == maps
        assert scrape("stored_bytes", state="committed") == scrape("map_output_bytes") == size
        assert (scrape("staged_outputs"), scrape("stored_bytes", state="staged")) == (0, 0)

        for times in (1, 2):
            assert read_all(plugin, handle) == expected
            scrape = Scrape(server.metrics)
            assert scrape("pulled_blocks_total") == times * blocks
            assert scrape("pulled_bytes_total") == times * size
            assert scrape("pull_first_byte_seconds_count") >= times

        winner = plugin.writer(handle, MapAttempt(0, 1))
        with winner:
            winner.write(0, b"late")
            assert winner.commit().output == MapAttempt(0, 0)
        scrape = Scrape(server.metrics)
        assert scrape("commits_total", outcome="superseded") == 1
        assert scrape("discarded_bytes_total") > 0
        assert scrape("pushed_bytes_total") == size
        assert scrape("push_seconds_count", outcome="completed") >= maps + 1
        assert scrape("control_seconds_count", method="RegisterShuffle") == 1
    # The worker removes data behind the answer to the driver.
    wait_until(lambda: Scrape(server.metrics)("stored_bytes", state="committed") == 0, "the data is gone")
    scrape = Scrape(server.metrics)
    assert (scrape("apps"), scrape("shuffles"), scrape("stored_bytes", state="committed")) == (0, 0, 0)
    assert scrape("apps_removed_total", reason="unregistered") == 1


def test_large_pushes_show_memory_stalls_and_spare_files(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("job") as master:
        handle = master.register_shuffle(2, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for _ in range(3):
                writer.write(0, os.urandom(9 << 20))
            wait_until(lambda: all_staged(Scrape(server.metrics)), "what has come is staged and counted")
            writer.commit()
        scrape = Scrape(server.metrics)
        assert scrape("pool_budget_bytes") == MEMORY
        assert 0 < scrape("pool_peak_bytes") <= MEMORY
        assert scrape("pool_used_bytes") == scrape("pool_waiting_streams") == scrape("streams", direction="push") == 0
        size = scrape("stored_bytes", state="committed")
        master.unregister_shuffle(handle)
        assert Scrape(server.metrics)("stored_bytes", state="spare") >= size


def all_staged(scrape: Scrape) -> bool:
    """All that has been pushed, and that is something, lies in one output that has not committed."""
    pushed = scrape("pushed_bytes_total")
    return scrape("staged_outputs") == 1 and scrape("stored_bytes", state="staged") == pushed > 0


def test_a_sender_without_credit_is_a_stall(server: ServerProcess, plugin: RemoteShuffle) -> None:
    """Blocks above the first credit of 1 MiB: the second cannot be sent before a grant."""
    with plugin.master("job") as master, closing(FlightClient(server.data, timeout=60)) as client:
        handle = master.register_shuffle(2, 1)
        blocks = [block(0, os.urandom(3 << 19)) for _ in range(3)]
        target = PushTarget(handle.spec.id, MapAttempt(0, 0), 2, handle.spec.codec)
        client.push(target, blocks, first_block=0, end=totals_of(table_rows(blocks)), commit=True)
        scrape = Scrape(server.metrics)
        assert scrape("pushed_messages_total") == 3
        assert scrape("credit_stalls_total") >= 1
        assert scrape("credit_stall_seconds_total") > 0


def test_refusals_and_losses_are_counted_by_their_code(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("job") as master:
        handle = master.register_shuffle(8, 1)
        write_map(plugin, handle, 0)
        with closing(FlightClient(server.data, timeout=60)) as client, pytest.raises(UnknownShuffle):
            target = PushTarget(ShuffleId("job", 99), MapAttempt(0, 0), 8, "lz4")
            client.push(target, [], first_block=0, end=Totals(), commit=True)
        with closing(ControlClient(server.control, client="test")) as control, pytest.raises(UnknownApp):
            control.call("Heartbeat", pb.HeartbeatRequest(app="stranger"))
        [path] = server.data_dir.rglob("0.0.out")
        path.unlink()
        with pytest.raises(MapOutputLost):
            read_all(plugin, handle)
        scrape = Scrape(server.metrics)
        assert scrape("refusals_total", endpoint="data", code="UNKNOWN_SHUFFLE") == 1
        assert scrape("push_seconds_count", outcome="refused") == 1
        assert scrape("refusals_total", endpoint="control", code="UNKNOWN_APP") == 1
        assert scrape("refusals_total", endpoint="data", code="MAP_OUTPUT_LOST") >= 1
        assert scrape("map_outputs_lost_total") == scrape("map_outputs", state="lost") == 1
        assert scrape("map_outputs", state="committed") == 0


def test_the_families_exposed_are_those_of_the_list_with_its_types_and_helps(server: ServerProcess) -> None:
    server.status()  # a control call, which is counted after its reply
    seconds = families.CONTROL_SECONDS.name
    wait_until(lambda: bool(Scrape(server.metrics).families[seconds].samples), "the control call is counted")
    exposed = {
        name: family for name, family in Scrape(server.metrics).families.items() if not name.startswith("process_")
    }
    listed = {family.name.removesuffix("_total"): family for family in families.ALL}
    assert sorted(exposed) == sorted(listed)
    for name, family in listed.items():
        kind = "gauge" if family.kind == "info" else family.kind  # the text format knows no info
        assert (exposed[name].type, exposed[name].documentation) == (kind, family.help)
        assert {key for sample in exposed[name].samples for key in sample.labels} - {"le"} == set(family.labels)


def test_names_follow_prometheus() -> None:
    for family in families.ALL:
        assert family.name.startswith("flight_shuffle_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not family.name.endswith(("_ms", "_mb", "_kb", "_mib", "_percent"))
        assert family.help.endswith(".")


def test_open_metrics_are_served_to_who_asks_for_them(server: ServerProcess) -> None:
    answer = get(server.metrics, "/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    parsed = open_metrics_families(answer.text)  # type: ignore[no-untyped-call]
    assert "flight_shuffle_commits" in {family.name for family in parsed}


def test_a_server_that_starts_shows_what_it_has_counted_and_no_state(observation: Observation) -> None:
    observation.instruments.traffic.pushed(1, 30)
    scrape = Scrape(observation.address)
    assert (scrape("ready"), scrape("pushed_bytes_total")) == (0, 30)
    assert not {"flight_shuffle_apps", "flight_shuffle_pool_used_bytes"} & set(scrape.families)


def test_a_server_that_cannot_start_ends_and_names_the_address(server: ServerProcess, tmp_path: Path) -> None:
    taken = {
        server.metrics: ["--listen", "127.0.0.1:0", "--metrics-listen", server.metrics],
        server.control: ["--listen", server.control, "--metrics-listen", "127.0.0.1:0"],
    }
    for address, arguments in taken.items():
        failed = run_cli("server", "--data-dir", str(tmp_path / "other"), *arguments)
        assert failed.returncode == 1
        assert f"cannot listen on {address}" in failed.stderr


def test_a_real_server_is_well_and_ready(server: ServerProcess) -> None:
    assert get(server.metrics, "/health").status == 200
    assert get(server.metrics, "/ready").failed() == {}
    assert Scrape(server.metrics)("ready") == 1
    assert Scrape(server.metrics).labels("data_dir_free_bytes", "path") == {str(server.data_dir / "worker")}
