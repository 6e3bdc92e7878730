"""A worker: the product's catalog and compaction over a simulated disk, and what it sends to the master."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shuffle_api.errors import StaleEpoch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, WorkerInfo
from shuffle_server.master.client import Identity
from shuffle_server.proto import registry_pb2
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_files import LITTLE_BYTES, CompactedFiles
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_server.store.directories import Directories
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.ranges import OutputRange
from shuffle_server.worker.master_session import SHUFFLES_AT_ONCE
from shuffle_server.worker.runtime import MERGE_SECONDS
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.model.compacted import Path, Shape, SharedIndexModel, SimulatedCompactedFile, SimulatedDirectory
from tests.model.machines import WRITE_BACK_SECONDS

if TYPE_CHECKING:
    from tests.model.cluster import Cluster

ROOM = 1 << 44
PULLS = 2  # with the second one, small outputs that are read file by file are compacted; a stage has more


class Cost(NamedTuple):
    """What a disk does for a reduce task at one worker: reads, and bytes of them; and the payload that it is sent."""

    reads: int
    read_bytes: int
    payload: int


class _Own(NamedTuple):
    """A map output in a file of its own: when it was committed, and the bytes this worker had taken until then."""

    since: float
    taken: float
    size: int


class Worker:
    """One worker, its place in the arrays of the machines, and its membership."""

    def __init__(self, cluster: Cluster, number: int, info: WorkerInfo, options: CompactionOptions) -> None:
        self.cluster, self.number, self.info = cluster, number, info
        self.identity = Identity()
        self.lives = 0
        self.rewritten = 0
        self.files_made = 0
        self._shapes: dict[ShuffleId, Shape] = {}
        self._own: dict[Path, _Own] = {}
        self._looking = False
        self._asked = 0
        self._reported: pb.WorkerStatus | None = None
        machines = cluster.machines
        self._home = SimulatedDirectory(
            machines.device, self._deleted, self._compacted, lambda: int(machines.open_pushes[number])
        )
        self._catalog = Catalog()
        self._model = SharedIndexModel(lambda: int(machines.held[number]), options)
        directories = cast(Directories, (self._home,))
        self.compaction = CompactedFiles(self._catalog, directories, self._open, lambda: None, self._model)

    # ------------------------------------------------------------------ membership

    def join(self) -> None:
        """Join the master in a new incarnation, with what it holds."""
        self.lives += 1
        worker = messages.worker_message(self.info)
        request = registry_pb2.JoinRequest(
            worker=worker, incarnation=self.lives, protocol=messages.PROTOCOL, oldest=messages.PROTOCOL
        )
        reply = self.cluster.master.ask("Join", request)
        self.identity = Identity(reply.epoch, self.info.id, self.lives)
        self._reported = None
        self._announce()
        life = self.lives
        self.cluster.clock.after(reply.beat_seconds, lambda: self._beat(life))

    def _announce(self) -> None:
        """After a restart: all that it holds is committed again, as the start of a worker does."""
        for shuffle in self._catalog.shuffles():
            held = [self._output(shuffle, each.output) for each in self._catalog.outputs(shuffle)]
            for output, error in zip(held, self.commit(shuffle, held) if held else (), strict=True):
                if error is not None:
                    self.drop(shuffle, output.output)
        if self.lives > 1:
            self.cluster.master.ask("Held", registry_pb2.HeldRequest(worker=self.info.id))

    def _output(self, shuffle: ShuffleId, output: MapAttempt) -> MapOutput:
        return MapOutput(output, self.info.id, self._shapes[shuffle].totals)

    def _beat(self, life: int) -> None:
        if life != self.lives or not self.cluster.machines.up[self.number]:
            return
        held = self._catalog.shuffles()
        first = self._asked if self._asked < len(held) else 0
        self._asked = first + SHUFFLES_AT_ONCE
        status = self._status()
        request = registry_pb2.BeatRequest(
            identity=self.identity.message(),
            free_bytes=ROOM - int(self.cluster.machines.held[self.number]),
            status=None if status == self._reported else status,
            shuffles=map(messages.key_of, held[first : self._asked]),
        )
        try:
            reply = self.cluster.master.ask("Beat", request)
        except StaleEpoch:  # it had been given up
            for shuffle in held:
                self.remove(shuffle)
            self.join()
            return
        self._reported = status
        for gone in reply.gone:
            self.remove(messages.shuffle_id(gone))
        self.cluster.clock.after(reply.beat_seconds, lambda: self._beat(life))

    def _status(self) -> pb.WorkerStatus:
        machines, number = self.cluster.machines, self.number
        return pb.WorkerStatus(
            worker=self.info.id,
            open_pushes=int(machines.open_pushes[number]),
            bytes_pushed=int(machines.pushed_bytes[number]),
            bytes_pulled=int(machines.pulled_bytes[number]),
            disk_bound=self._model.disk_bound,
        )

    # ------------------------------------------------------------------ outputs

    def opening(self, shuffle: ShuffleId, map: int) -> None:
        """A push begins: the worker asks whether the map has been written."""
        request = pb.LocateRequest(shuffle=messages.key_of(shuffle), first_map=map, end_map=map + 1)
        self.cluster.master.ask("Locate", request)

    def commit(self, shuffle: ShuffleId, outputs: Sequence[MapOutput]) -> list[Any]:
        """What the registry says of each."""
        return self.cluster.master.commit(self.identity, [(shuffle, output) for output in outputs])

    def take(self, shape: Shape, output: MapAttempt) -> None:
        """A map output has been pushed and committed."""
        machines, size = self.cluster.machines, shape.job.output_bytes
        self._shapes[shape.id] = shape
        self._catalog.add(shape.id)
        self._catalog.put(shape.id, CatalogEntry(output, cast(DataDirectory, self._home), size))
        machines.held[self.number] += size
        machines.pushed_bytes[self.number] += size
        self._own[shape.id, output] = _Own(self.cluster.clock.now, float(machines.pushed_bytes[self.number]), size)
        self.cluster.clock.after(WRITE_BACK_SECONDS, lambda: self._write_back((shape.id, output)))
        self._home.incoming.ended(size)
        self.compaction.committed(shape.description(output), cast(DataDirectory, self._home))
        self._look_later()

    def _write_back(self, path: Path) -> None:
        """What was not deleted meanwhile goes to the disk."""
        if path in self._own:
            self.cluster.machines.write(self.number, self._own[path].size)

    def drop(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """An output is not held any more."""
        held = self._catalog.retire(shuffle, output)
        if held is None:
            return
        self.cluster.machines.held[self.number] -= held.bytes
        self._own.pop((shuffle, output), None)
        if held.place is not None:
            held.place.file.drop(held.place.number)
        self._catalog.retired(shuffle, output)

    def remove(self, shuffle: ShuffleId) -> None:
        """A shuffle is over."""
        outputs = self._catalog.outputs(shuffle)
        for each in outputs:
            self._own.pop((shuffle, each.output), None)
        self._home.compacted = {file for file in self._home.compacted if file.shuffle != shuffle}
        self.cluster.machines.held[self.number] -= self._catalog.drop_shuffle(shuffle)
        self.compaction.forget([shuffle])
        self._shapes.pop(shuffle, None)

    # ------------------------------------------------------------------ compaction

    def _open(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[Any, int]:
        return SimpleNamespace(index=self._shapes[shuffle].index), os.dup(self.cluster.nothing)

    def _deleted(self, path: Path) -> None:
        self._own.pop(path, None)

    def _compacted(self, file: SimulatedCompactedFile) -> None:
        """A compacted file was written, out of files that the page cache holds unless they are old."""
        machines, number = self.cluster.machines, self.number
        machines.write(number, file.bytes)
        self.rewritten += file.payload
        self.files_made += 1
        since = machines.pushed_bytes[number] - machines.cache
        old = [own for output in file.inputs if (own := self._own.get((file.shuffle, output))) and own.taken <= since]
        machines.read(number, len(old), sum(own.size for own in old))
        self.cluster.rearranged[file.shuffle].add(number)

    def _look_later(self, seconds: float = MERGE_SECONDS) -> None:
        if not self._looking:
            self._looking = True
            self.cluster.clock.after(seconds, self._look)

    def _look(self) -> None:
        """As the thread that compacts does; what it sleeps for, to leave bandwidth to others, passes before the next
        look."""
        self._looking = False
        if not self.cluster.machines.up[self.number]:
            return
        self.cluster.store_time.take()
        self.compaction.merge()
        slept = self.cluster.store_time.take()
        if self.compaction.wanted.is_set() or (self._model.disk_bound and self.compaction._pending.bytes):
            self._look_later(max(MERGE_SECONDS, slept))

    # ------------------------------------------------------------------ reads

    def cost(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> Cost:
        """Of a pull of one partition of these outputs, as the product plans it."""
        shape = self._shapes[shuffle]
        ranges = [OutputRange(output, 0, 1) for output in outputs]
        reads = size = 0
        little = []
        for part in self.compaction.runs(shuffle, ranges):
            if isinstance(part, CompactedRun):
                files = cast(Sequence[SimulatedCompactedFile], part.files)
                reads += len(files)
                size += sum(file.bytes // shape.job.partitions for file in files)
            else:
                reads, size = reads + 1, size + shape.job.block
                little.append(part.output)
        if shape.job.block <= LITTLE_BYTES:
            for _ in range(PULLS):
                self.compaction.note(shuffle, little)
        self._look_later()
        return Cost(reads, size, len(outputs) * shape.job.block)

    def open_indexes(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> None:
        """The first pull reads the index of each output that has a file of its own."""
        own = [output for output in outputs if (shuffle, output) in self._own]
        self.cluster.machines.read(self.number, len(own), len(own) * self._shapes[shuffle].index_bytes)
