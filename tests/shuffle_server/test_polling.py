"""The thread that waits for a message reads the socket itself: those of gRPC's event engine have no part in a call."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_transport.connect import flight_connection
from shuffle_transport.control_client import ControlClient
from tests.processes import event_engine_switches

CALLS = 300


@pytest.mark.parametrize("endpoint", ["control", "data"])
def test_no_other_thread_takes_part_in_a_servers_calls(endpoint: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        before = event_engine_switches(server.pid)
        if endpoint == "control":
            with closing(ControlClient(server.control, client="test")) as control:
                for _ in range(CALLS):
                    control.hello()
        else:
            with closing(flight_connection(server.data, None)) as client:
                for _ in range(CALLS):
                    with pytest.raises(fl.FlightError, match="unknown action"):
                        list(client.do_action(("nothing", b"")))
        assert event_engine_switches(server.pid) - before < CALLS  # else there are three or more a call
