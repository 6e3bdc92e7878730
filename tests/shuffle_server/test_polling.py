"""The thread that waits for a message reads the socket itself: those of gRPC's event engine have no part in a call."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import pyarrow.flight as fl
import pytest

from bench.server import ServerProcess
from shuffle_transport.connect import flight_connection
from shuffle_transport.control_client import ControlClient

CALLS = 300


def switches(pid: int) -> int:
    """How often the event engine's threads of a process have waited."""
    count = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may end just now
            if (thread / "comm").read_text().startswith("event_engine"):
                status = (thread / "status").read_text().splitlines()
                count += sum(int(line.split()[1]) for line in status if line.startswith("voluntary"))
    return count


@pytest.mark.parametrize("endpoint", ["control", "data"])
def test_no_other_thread_takes_part_in_a_servers_calls(endpoint: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        before = switches(server.pid)
        if endpoint == "control":
            with closing(ControlClient(server.control, client="test")) as control:
                for _ in range(CALLS):
                    control.hello()
        else:
            with closing(flight_connection(server.data, None)) as client:
                for _ in range(CALLS):
                    with pytest.raises(fl.FlightError, match="unknown action"):
                        list(client.do_action(("nothing", b"")))
        assert switches(server.pid) - before < CALLS  # else there are three or more a call
