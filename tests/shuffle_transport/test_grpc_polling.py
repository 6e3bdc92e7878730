"""The thread that waits for a message reads the socket itself, in every process that uses channels, push or pull."""

from __future__ import annotations

import pytest

from tests.processes import run_apart
from tests.shuffle_transport.users import USERS

CALLS = 300

# What switches how often says who has taken part in the calls: with gRPC's event engine its threads do, eight times in
# each. Otherwise their timers switch, more often on a busy machine: the quietest of three rounds counts.
MANY = 4 * CALLS

PROGRAM = f"""
import os
import pyarrow.flight as fl
from tests.processes import event_engine_switches

class Server(fl.FlightServerBase):
    def do_action(self, context, action):
        yield b"."

server = Server("grpc+tcp://127.0.0.1:0")
client = fl.connect(f"grpc+tcp://127.0.0.1:{{server.port}}")

def switches():
    before = event_engine_switches(os.getpid())
    for _ in range({CALLS}):
        list(client.do_action(fl.Action("", b"")))
    return event_engine_switches(os.getpid()) - before

print(min(switches() for _ in range(3)), os.environ.get("GRPC_EXPERIMENTS"), flush=True)
os._exit(0)  # threads of the server
"""


def calls_after(first: str, **variables: str) -> tuple[int, str]:
    """How often the event engine's threads switch in the calls of a process after `first`; the variable it finds."""
    done = run_apart(f"{first}\n{PROGRAM}", "GRPC_EXPERIMENTS", **variables)
    assert "experiment" not in done.stderr  # this pyarrow's gRPC knows them all
    switches, variable = done.stdout.split()
    return int(switches), variable


@pytest.mark.parametrize("user", USERS.values(), ids=USERS.keys())
def test_no_other_thread_takes_part(user: str) -> None:
    switches, variable = calls_after(user)
    assert switches < CALLS
    assert variable == "None"  # not set for child processes and grpcio


def test_others_keep_the_event_engine() -> None:
    assert calls_after("import shuffle_transport.channels")[0] > MANY


def test_who_has_set_the_variable_keeps_it() -> None:
    switches, variable = calls_after(USERS["channels"], GRPC_EXPERIMENTS="event_engine_client")
    assert switches > MANY
    assert variable == "event_engine_client"
