"""bench.jvm_transport: its Python end speaks the protocol; a small run reports what its document says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness.spark_driver import ROOT
from bench.jvm_transport.__main__ import CORE, CORE_ZERO, OURS, Figures
from bench.jvm_transport.source_sink import SourceSink
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_transport import messages
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.flight_client import FlightClient, Pulled, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb


def test_the_python_end_takes_and_serves_what_the_protocol_says() -> None:
    blocks = [Block(n % 4, crc32c(bytes([n]) * 300_000), 300_000, 0, bytes([n]) * 300_000) for n in range(20)]
    totals = totals_of(table_rows(blocks))
    with SourceSink() as server:
        client = FlightClient(f"127.0.0.1:{server.port}", timeout=30)
        target = PushTarget(ShuffleId("bench", 0), MapAttempt(0, 0), 4, "none")
        reply = client.push(target, blocks, first_block=0, end=totals, commit=True)
        assert messages.totals(reply.committed.totals) == totals
        ticket = pb.GetTicket(shuffle=pb.ShuffleKey(app="bench-8192-1024-5"))
        pulled = list(client.pull(ticket))
        client.close()
    assert all(isinstance(block, Pulled) and len(block.payload) == 1024 for block in pulled)
    assert len(pulled) == 5 * 8


def test_a_side_reports_medians() -> None:
    report = Figures([1.0, 3.0, 2.0], [0.5, 0.1, 0.3], [0.5, 0.2, 0.3]).report()
    assert (report["gib_s"], report["cpu_s_per_gib"], report["client_cpu_s_per_gib"]) == (2.0, 0.6, 0.3)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_small_run_reports_all_sides(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    given = ["--pairs=1", "--mib=8", "--batch-kib", "1024", "--block-kib=64", f"--json={out}"]
    command = [sys.executable, "-m", "bench.jvm_transport", *given]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400, check=True)
    report = json.loads(out.read_text())
    assert set(report["results"]) == {"put_1024k", "get_1024k"}
    for result in report["results"].values():
        assert set(result["sides"]) == {OURS, CORE, CORE_ZERO}
        assert result["best_of_flight_core"] in (CORE, CORE_ZERO)
        assert len(result["ratios"]) == 1
        assert all(side["gib_s"] > 0 for side in result["sides"].values())
