"""The store's speed: ``python -m bench.ingest --json FILE``. docs/benchmarks/README.md says what the figures mean.

Ingest from several writers, over the wire and by file, beside a plain `writev` of the same bytes; read-back, either
way, beside the same files over plain Flight; all in turn. Reading one output beside as many bytes in many small ones;
memory with many partitions and maps.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import program
from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from bench.ingest.by_file import read_outputs
from bench.ingest.plain import flight_of_files, receive_files
from bench.ingest.writers import TIMEOUT, Target, Work, Writers, push, random_blocks
from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store.paths import folder_of
from shuffle_transport import messages
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb

GIB = 1 << 30
APP = "bench"


@dataclass(frozen=True, slots=True)
class Parameters:
    writers: int = 4
    outputs: int = 2  # of each writer
    partitions: int = 256
    block_bytes: int = 256 << 10  # one block per partition
    rounds: int = 5
    small_outputs: int = 1000
    small_block_bytes: int = 16 << 10
    memory_partitions: int = 10_000
    memory_maps: int = 1_000
    memory_budget: int = 256 << 20


def _throughput(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """Ingest and read-back of new files, each beside its plain counterpart, in turn, from either end."""
    work = Work(parameters.writers, parameters.outputs, parameters.partitions, parameters.block_bytes)
    seconds: dict[str, list[float]] = {
        name: [] for name in ("writev", "ingest", "handed_over", "flight", "read_back", "read_in_place")
    }
    with (
        ServerProcess(scratch / "data", scratch / "log", ["--recycle", "0"]) as server,
        Writers(work, scratch) as writers,
        flight_of_files() as plain_flight,
        RemoteShuffle({"server": server.control, "codec": "none"}) as plugin,
        plugin.master(APP) as master,
    ):
        plain = scratch / "plain"
        for number in range(parameters.rounds + 1):  # the first one warms up
            plain.mkdir()
            pushed, by_file = (master.register_shuffle(parameters.partitions, work.files) for _ in range(2))
            pushes, lent = (Target(each.spec.id, server.data) for each in (pushed, by_file))
            files = scratch / "data/worker/apps" / pushed.spec.id.app / folder_of(pushed.spec.id)
            sides: list[tuple[str, Callable[[], tuple[int, float]]]] = [
                ("writev", partial(writers.write, Target(plain=str(plain)))),
                ("ingest", partial(writers.write, pushes)),
                ("handed_over", partial(writers.write, replace(lent, by_file=True))),
            ]
            reads: list[tuple[str, Callable[[], tuple[int, float]]]] = [
                ("flight", lambda: receive_files(plain_flight, sorted(files.glob("*.out")))),  # noqa: B023
                ("read_back", partial(_timed, partial(_pull, server.data, _ticket(pushed.spec)))),
                ("read_in_place", partial(_timed, partial(_read, server.data, _ticket(by_file.spec)))),
            ]
            for name, action in [*sides[:: -1 if number % 2 else 1], *reads[:: -1 if number % 2 else 1]]:
                moved, took = action()
                if moved < work.bytes or (moved > work.bytes and name != "flight"):
                    raise AssertionError(f"{work.bytes} bytes were to be moved, {name} moved {moved}")
                if number:
                    seconds[name].append(round(took, 4))
            for handle in (pushed, by_file):
                master.unregister_shuffle(handle)
            shutil.rmtree(plain)
            for removed in scratch.glob("data/worker/trash/*"):  # the server would, within half a minute
                shutil.rmtree(removed, ignore_errors=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "bytes": work.bytes,
        "seconds": seconds,
        "gib_s": {name: round(work.bytes / GIB / median, 2) for name, median in medians.items()},
        "ratio_handed_over": round(medians["writev"] / medians["handed_over"], 3),
        "ratio_ingest": round(medians["writev"] / medians["ingest"], 3),
        "ratio_read_in_place": round(medians["flight"] / medians["read_in_place"], 3),
        "ratio_read_back": round(medians["flight"] / medians["read_back"], 3),
    }


def _timed(action: Callable[[], int]) -> tuple[int, float]:
    started = time.perf_counter()
    result = action()
    return result, time.perf_counter() - started


def _ticket(spec: ShuffleSpec) -> pb.GetTicket:
    maps = [pb.MapAttempt(map=n) for n in range(spec.maps)]
    return pb.GetTicket(shuffle=_key(spec.id), end_partition=spec.partitions, maps=maps)


def _read(worker: str, ticket: pb.GetTicket) -> int:
    with closing(FlightClient(worker, timeout=TIMEOUT)) as client:
        return read_outputs(client, ticket)


def _pull(worker: str, ticket: pb.GetTicket) -> int:
    """Payload bytes that came, each block checked."""
    client = FlightClient(worker, timeout=TIMEOUT)
    try:
        total = 0
        for item in client.pull(ticket):
            if isinstance(item, ShuffleError):
                raise item
            total += item.payload.nbytes
        return total
    finally:
        client.close()


def _small(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """One partition out of many small outputs, file by file and out of compacted files, beside as many blocks of one
    output, which is the best that a merge can do."""
    count, size = parameters.small_outputs, parameters.small_block_bytes
    sides = {"many_outputs": 0, "merged": 1 << 20, "one_output": 0}
    pulls: dict[str, list[float]] = {name: [] for name in sides}
    merging = 0.0
    with ExitStack() as stack:
        tickets: dict[str, tuple[str, pb.GetTicket]] = {}
        for name, merge_below in sides.items():
            log = scratch / f"{name}.log"
            arguments = ["--merge-below", str(merge_below)]
            server = stack.enter_context(ServerProcess(scratch / name, log, arguments))
            plugin = stack.enter_context(RemoteShuffle({"server": server.control, "codec": "none"}))
            master = stack.enter_context(plugin.master(APP))
            partitions, maps = (count, 1) if name == "one_output" else (1, count)
            shuffle = master.register_shuffle(partitions, maps).spec.id
            with closing(FlightClient(server.data, timeout=TIMEOUT)) as client:
                for map_id in range(maps):
                    push(client, shuffle, map_id, partitions, random_blocks(partitions, size))
            ticket = pb.GetTicket(shuffle=_key(shuffle), end_partition=partitions)
            tickets[name] = server.data, ticket
            if merge_below:
                for _ in range(2):
                    _pull(server.data, ticket)
                started = time.perf_counter()
                wait_until(partial(_says, log, "compacted "), "the outputs are merged")
                merging = time.perf_counter() - started
        for _ in range(parameters.rounds + 1):
            for name, (address, ticket) in tickets.items():
                started = time.perf_counter()
                if _pull(address, ticket) != count * size:
                    raise AssertionError("other bytes came back than were written")
                pulls[name].append(round(time.perf_counter() - started, 4))
    medians = {name: statistics.median(values[1:]) for name, values in pulls.items()}
    return {
        "seconds": pulls,
        "microseconds_per_output": round((medians["many_outputs"] - medians["one_output"]) / count * 1e6, 1),
        "ratio": round(medians["many_outputs"] / medians["one_output"], 2),
        "ratio_merged": round(medians["merged"] / medians["one_output"], 2),
        "merging_s": round(merging, 3),
    }


def _says(log: Path, text: str) -> bool:
    return text in log.read_text()


def _memory(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """The server's own memory (without the page cache) while it takes in and serves a shuffle of many small blocks."""
    partitions, maps = parameters.memory_partitions, parameters.memory_maps
    arguments = ["--memory", str(parameters.memory_budget)]
    with (
        ServerProcess(scratch / "memory", scratch / "memory.log", arguments) as server,
        RemoteShuffle({"server": server.control, "codec": "none"}) as plugin,
        plugin.master(APP) as master,
    ):
        handle = master.register_shuffle(partitions, maps)
        before = peak = _own_memory(server.pid)
        blocks = random_blocks(partitions, 16)
        client = FlightClient(server.data, timeout=TIMEOUT)
        for map_id in range(maps):
            push(client, handle.spec.id, map_id, partitions, blocks)
            peak = max(peak, _own_memory(server.pid))
        client.close()
        written = peak
        for first in range(0, partitions, max(1, partitions // 10)):
            ticket = pb.GetTicket(shuffle=_key(handle.spec.id), first_partition=first, end_partition=first + 1)
            if _pull(server.data, ticket) != maps * 16:
                raise AssertionError("other bytes came back than were written")
            peak = max(peak, _own_memory(server.pid))
    return {
        "budget": parameters.memory_budget,
        "start_bytes": before,
        "written_peak_bytes": written,
        "peak_bytes": peak,
        "beyond_start_bytes": peak - before,
        "within_budget_and_128_mib": peak <= parameters.memory_budget + (128 << 20),
    }


def _own_memory(pid: int) -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) << 10


def _key(shuffle: ShuffleId) -> pb.ShuffleKey:
    return messages.key_of(shuffle)


PARTS: dict[str, Callable[[Parameters, Path], dict[str, Any]]] = {
    "throughput": _throughput,
    "small": _small,
    "memory": _memory,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = program.parser("ingest", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="measure only these")
    program.add_options(parser, **{name: (value, name) for name, value in asdict(Parameters()).items()})
    given = vars(parser.parse_args(arguments))
    path, folder, parts = given.pop("json"), given.pop("scratch"), given.pop("parts")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        report = program.measure("ingest", Parameters(**given), Path(scratch), parts, PARTS)
    program.publish(report, path)


if __name__ == "__main__":
    program.run(main)
