"""Two masters at `a,b`, which clients and workers are given: a leader that is frozen or cut off is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import ShuttingDown
from shuffle_api.interfaces import OptionValue
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.proto import flight_shuffle_pb2_grpc as rpc
from tests.certificates import make_party
from tests.faults.fault_proxy import FaultProxy
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.master.database import Database, running_database
from tests.shuffle_server.master_process import TIMEOUT, MasterProcess, reached_at, socket_of


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_database() as running:
        yield running


@pytest.mark.parametrize("secure", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["plain", "tls"])
def test_a_frozen_leader_is_replaced_in_the_middle_of_a_job_and_answers_nothing_afterwards(
    tmp_path: Path, database: Database, secure: bool
) -> None:
    metadata = database.fresh()
    servers: list[str] = []
    clients: dict[str, OptionValue] = {}
    if secure:
        party = make_party(tmp_path / "party")
        servers = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--tls-ca", str(party.ca)]
        clients = {"tls_ca": str(party.ca)}
    with MasterProcess(tmp_path / "one", metadata, servers) as one:
        one.await_leading()
        with MasterProcess(tmp_path / "two", metadata, servers) as two:
            two.await_standing_by()
            check_standby(one, two)
            both = f"{one.control},{two.control}"
            clients |= {"server": both, "timeout": 120, "retry": 120, "hand_over": "off"}
            with (
                ServerProcess(
                    tmp_path / "w", tmp_path / "w.log", ["--master", both, *servers], role="worker"
                ) as worker,
                RemoteShuffle(clients) as plugin,
                plugin.master("job") as job,
            ):
                handle = job.register_shuffle(4, 4)
                assert handle.endpoint == both
                expected = [record for n in (0, 1) for record in write_map(plugin, handle, n, 300)]
                question = None if secure else Question(one.control)
                one.stop()
                if question is not None:
                    question.ask()
                two.await_leading()
                assert two.metric("flight_shuffle_leader") == 1
                expected += [record for n in (2, 3) for record in write_map(plugin, handle, n, 300)]
                assert read_all(plugin, handle) == sorted(expected)
                epoch = two.metric("flight_shuffle_epoch")
                one.go_on()
                assert one.process.wait(TIMEOUT) == 1
                assert "does not lead any more" in one.log.read_text()
                if question is not None:
                    assert question.failure() is not None
                assert read_all(plugin, handle) == sorted(expected)
                assert {output.worker for output in job.map_outputs(handle)} == {worker.worker}
                assert two.metric("flight_shuffle_epoch") == epoch


def check_standby(leader: MasterProcess, standby: MasterProcess) -> None:
    """What probes and alerts see of the two."""
    assert standby.answer("/health") == (200, {"status": "standby", "checks": {}})
    assert standby.answer("/ready") == (200, {"status": "standby", "checks": {"database": {"ok": True, "reason": ""}}})
    assert standby.answer("/leader")[0] == 503
    assert leader.answer("/ready")[1]["status"] == "ok"
    assert leader.answer("/leader") == (200, {"status": "ok", "checks": {"leader": {"ok": True, "reason": ""}}})
    assert [each.metric("flight_shuffle_leader") for each in (leader, standby)] == [1, 0]
    assert [each.metric("flight_shuffle_ready") for each in (leader, standby)] == [1, 1]


class Question:
    """A call that reaches a master while it is frozen, from a client that waits for the answer."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub = rpc.ShuffleControlStub(self._channel)
        self._request = pb.HelloRequest(protocol=messages.PROTOCOL, client="test")
        self._stub.Hello(self._request, timeout=TIMEOUT)  # it is connected

    def ask(self) -> None:
        self._answer = self._stub.Hello.future(self._request, timeout=TIMEOUT)

    def failure(self) -> BaseException | None:
        try:
            found: BaseException | None = self._answer.exception(TIMEOUT)
            return found
        finally:
            self._channel.close()


def test_a_leader_that_is_cut_off_from_the_database_falls_silent_and_is_replaced(
    tmp_path: Path, database: Database
) -> None:
    metadata = database.fresh()
    with (
        FaultProxy(socket_of(metadata)) as proxy,
        MasterProcess(tmp_path / "one", reached_at(proxy.address, metadata)) as one,
    ):
        one.await_leading()
        with (
            MasterProcess(tmp_path / "two", metadata) as two,
            closing(ControlClient(one.control, client="test")) as old,
        ):
            two.await_standing_by()
            old.hello()
            proxy.freeze()
            two.await_leading()
            with pytest.raises(ShuttingDown, match="may not lead any more"):
                old.hello()
            assert one.answer("/leader")[0] == one.answer("/ready")[0] == 503
            assert one.metric("flight_shuffle_leader") == 0
            with closing(ControlClient(f"{one.control},{two.control}", client="test")) as client:
                client.hello()
            proxy.thaw()
            assert one.process.wait(TIMEOUT) == 1
