"""How many calls to the data endpoint one application may have under way."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import Overloaded, PermissionDenied
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.flight_client import FlightClient
from tests.certificates import make_secret
from tests.shuffle_server.half_open import HalfOpenClient
from tests.shuffle_server.observe.helpers import Scrape

DO_PUT = "/arrow.flight.protocol.FlightService/DoPut"


def test_calls_of_one_application_are_bounded_and_leave_those_of_another(tmp_path: Path) -> None:
    secret = make_secret(tmp_path / "secret")
    keys = load_keyring(secret_file=str(secret))
    arguments = ["--secret-file", str(secret), "--app-max-calls", "3", "--metrics-listen", "127.0.0.1:0"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        headers = [(name.encode(), value.encode()) for name, value in keys.for_app("evil").headers()]
        evil = FlightClient(server.data, credentials=keys.for_app("evil"))
        other = FlightClient(server.data, credentials=keys.for_app("other"))
        with closing(evil), closing(other), closing(HalfOpenClient(server.data)) as hostile:
            for _ in range(3):
                hostile.begin(DO_PUT, headers)
            wait_until(lambda: Scrape(server.metrics)("app_data_calls_most") == 3, "they are there")
            with pytest.raises(Overloaded, match="application evil: 3 calls are under way.*--app-max-calls"):
                evil.act("unknown", b"")
            with pytest.raises(PermissionDenied):
                other.act("unknown", b"")
            assert Scrape(server.metrics)("data_calls") == 3
        wait_until(lambda: Scrape(server.metrics)("data_calls") == 0, "they have ended")
