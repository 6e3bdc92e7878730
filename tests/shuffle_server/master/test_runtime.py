"""A master that stops receives no heartbeat, and expires nobody for that."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shuffle_api.registry.operations import RegisterApp
from shuffle_server.master.runtime import MasterRuntime
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions
from shuffle_server.security import OPEN

APP_TIMEOUT = 1.0


@pytest.mark.parametrize("stops", [True, False])
def test_no_application_expires_while_the_endpoint_stops(stops: bool, tmp_path: Path) -> None:
    options = ServerOptions(str(tmp_path), listen="127.0.0.1:0", app_timeout=APP_TIMEOUT)
    part = MasterRuntime(options, Instruments())
    part.serve(OPEN)
    part.master.apply(RegisterApp("job", "i", "a job"))
    if stops:
        part.stop()
    give_up = time.monotonic() + (3 * APP_TIMEOUT if stops else 60.0)
    while part.master.registry.apps() and time.monotonic() < give_up:
        part.maintain()
        time.sleep(part.look_seconds / 2)
    assert bool(part.master.registry.apps()) is stops
    part.stop()
    part.close()
