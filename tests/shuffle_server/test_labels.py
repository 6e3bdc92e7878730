"""Labels of workers: copies go apart, outputs stay near, applications are held to some workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument, ServerUnreachable
from shuffle_api.interfaces import OptionValue
from shuffle_api.registry import RegisterApp, Registry
from shuffle_api.registry.encoding import Decoder
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.cli.status import _workers as shown
from shuffle_server.observe.api import _worker as row
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import read_all, write_map

LABELS = {"a1": "rack=a,disk=hdd", "a2": "rack=a,disk=ssd", "a3": "rack=a,disk=ssd", "b1": "rack=b,disk=hdd"}
MAPS = 6


class Cell:
    def __init__(self, directory: Path) -> None:
        self.master = MasterServer(
            ServerOptions(data_dir=str(directory / "m"), listen="127.0.0.1:0", copies_apart="rack")
        )
        self.workers = {name: self._worker(directory / name, labels) for name, labels in LABELS.items()}
        self.names = {worker.worker.info.id: name for name, worker in self.workers.items()}

    def _worker(self, directory: Path, labels: str) -> WorkerServer:
        return WorkerServer(
            ServerOptions(
                data_dir=str(directory), master=self.master.control_address, data_listen="127.0.0.1:0", label=labels
            )
        )

    def close(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        self.master.stop()

    def placed(self, **options: OptionValue) -> list[set[str]]:
        """Which workers hold each output of an application with these options."""
        given = {"server": self.master.control_address, "retry": 60, "timeout": 100, "hand_over": "off", **options}
        with RemoteShuffle(given) as plugin, plugin.master("job") as master:
            handle = master.register_shuffle(4, MAPS)
            written = [each for map_id in range(MAPS) for each in write_map(plugin, handle, map_id)]
            assert read_all(plugin, handle) == sorted(written)
            return [{self.names[worker] for worker in output.workers} for output in master.map_outputs(handle)]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with closing(Cell(tmp_path_factory.mktemp("labels"))) as cell:
        yield cell


def test_the_copies_of_an_output_lie_in_different_racks(cell: Cell) -> None:
    for workers in cell.placed(replicas=2):
        assert len(workers) == 2
        assert "b1" in workers


def test_outputs_go_to_workers_with_the_label_that_a_client_prefers(cell: Cell) -> None:
    assert cell.placed(near="rack=b") == [{"b1"}] * MAPS
    assert len(cell.placed(near="rack=none")) == MAPS


def test_an_application_is_held_to_workers_with_its_label_for_copies_too(cell: Cell) -> None:
    assert set().union(*cell.placed(only="disk=ssd", near="rack=b")) == {"a2", "a3"}
    assert cell.placed(only="disk=ssd", replicas=2) == [{"a2", "a3"}] * MAPS


def test_without_a_worker_that_has_the_label_a_writer_fails(cell: Cell) -> None:
    with pytest.raises(ServerUnreachable, match="no worker takes map outputs"):
        cell.placed(only="disk=none", retry=0)


def test_a_label_that_is_none_is_refused(cell: Cell) -> None:
    with pytest.raises(InvalidArgument, match="label 'ssd' is not valid"):
        cell.placed(only="ssd")


def test_labels_show_in_status_and_api(cell: Cell) -> None:
    with closing(ControlClient(cell.master.control_address, client="test")) as control:
        reply: pb.StatusReply = control.call("Status", pb.StatusRequest())
    assert {cell.names[each.id]: ",".join(sorted(each.labels)) for each in reply.workers} == {
        name: ",".join(sorted(labels.split(","))) for name, labels in LABELS.items()
    }
    assert "disk=hdd,rack=b" in shown(reply)
    assert ["disk=hdd", "rack=b"] in [row(each, pb.WorkerStatus())["labels"] for each in reply.workers]


def test_what_an_application_is_held_to_outlives_the_master() -> None:
    register = RegisterApp("app", "i", "n", "disk=ssd")
    registry, again = Registry(), Registry()
    registry.apply(register)
    for operation in Decoder().decode(b"".join(registry.records())):
        again.apply(operation)
    assert again.app("app").only == "disk=ssd"
    old = b'{"op":"RegisterApp","app":"app","instance":"i","name":"n"}'
    (found,) = Decoder().decode(b"\x4a" + len(old).to_bytes(4, "little") + old)
    assert found == RegisterApp("app", "i", "n")
