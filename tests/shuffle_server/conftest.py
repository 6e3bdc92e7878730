"""Fixtures of the server's tests: a real server process per test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer
from shuffle_transport import messages
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.certificates import make_party, make_secret
from tests.shuffle_server.helpers import write_map
from tests.shuffle_server.secured import Secured


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log") as process:
        yield process


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterServer]:
    """A master without a worker, in this process."""
    server = MasterServer(ServerOptions(data_dir=str(tmp_path / "m"), listen="127.0.0.1:0"))
    yield server
    server.stop()


@pytest.fixture
def plugin(server: ServerProcess) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": server.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as remote:
        yield remote


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    root = tmp_path_factory.mktemp("secured")
    party, secret_file = make_party(root / "tls"), make_secret(root / "secret")
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret_file))
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret_file)]
    arguments += ["--log-level", "debug"]
    with ServerProcess(root / "data", root / "log", arguments, credentials=keys.for_cluster()) as server:
        scene = Secured(server, keys, secret_file, party)
        with RemoteShuffle(scene.options) as plugin:
            for app in ("A", "B"):
                handle = ShuffleHandle("remote", ShuffleSpec(ShuffleId(app, 1), 2, 1), server.control)
                with closing(scene.control(keys.for_app(app))) as control:
                    control.call("RegisterApp", pb.RegisterAppRequest(app=app, instance="i"))
                    control.call("RegisterShuffle", messages.spec_message(handle.spec))
                write_map(plugin, handle, 0)
            yield scene
