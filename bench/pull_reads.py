"""What a worker's pulls cost before anything is sent: ``python -m bench.pull_reads --json FILE``.

Threads of one process serve all partitions of a few map outputs out of the page cache, as a worker's threads do for as
many readers, and drop the messages: all blocks of a message read with one call of the kernel, and one by one, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.harness import machine
from bench.harness.ending import unwind_when_told_to_end
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_server.store import output_file
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.fetch_handler import serve
from shuffle_server.worker.pull_room import PullRoom
from shuffle_transport.blocks import BATCH_BYTES, GET_SCHEMA, BlockBatch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.pool import BufferPool

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Parameters:
    partitions: tuple[int, ...] = (64, 500)
    threads: tuple[int, ...] = (1, 2, 4)
    maps: int = 8
    bytes: int = 800 << 20  # in all
    block: int = 26_000  # bytes, give or take a hundredth
    rounds: int = 7


def _written(store: Store, parameters: Parameters, partitions: int) -> list[MapAttempt]:
    """Map outputs whose blocks are of one partition after the other, in no order."""
    spec = ShuffleSpec(ShuffleId("bench", partitions), parameters.maps, partitions, codec="none")
    store.add_shuffle(spec.id)
    random = np.random.default_rng(1)
    rows = np.zeros(BATCH_BYTES // parameters.block, BLOCK_ROW)
    outputs = [MapAttempt(number, 0) for number in range(parameters.maps)]
    for output in outputs:
        writer = store.stage(spec, output, "none")
        turn = writer.new_fencing_token()
        while writer.totals.bytes < parameters.bytes // parameters.maps:
            spread = parameters.block // 100
            rows["partition"] = random.integers(0, partitions, len(rows))
            rows["length"] = rows["raw_length"] = parameters.block + random.integers(-spread, spread + 1, len(rows))
            writer.append(turn, BlockBatch(rows.copy(), memoryview(bytes(int(rows["length"].sum())))))
        store.publish(writer, turn)
    return outputs


def _run(work: Callable[[int], None], threads: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time, that it takes `work` in so many threads."""
    cpu, started = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(threads, "pull") as pool:
        list(pool.map(work, range(threads)))
    return time.perf_counter() - started, time.process_time() - cpu


def _compare(parameters: Parameters, scratch: Path, partitions: int) -> dict[str, Any]:
    with closing(Store(scratch / str(partitions))) as store:
        outputs = _written(store, parameters, partitions)
        shuffle, pool = ShuffleId("bench", partitions), BufferPool(1 << 30)

        def pulls(threads: int) -> Callable[[int], None]:
            def pull(number: int) -> None:
                for partition in range(number, partitions, threads):
                    ranges = [OutputRange(output, partition, partition + 1) for output in outputs]
                    room = PullRoom(pool, 60.0, "bench", lambda: None)
                    for _ in serve(store, "w", GET_SCHEMA, shuffle, ranges, lambda _, __: None, lambda _: None, room):
                        pass

            return pull

        size = sum(each.bytes for each in store.catalog.outputs(shuffle))
        found = {}
        for threads in parameters.threads:
            at_once: list[tuple[float, float]] = []
            one_by_one: list[tuple[float, float]] = []
            for _ in range(parameters.rounds + 1):  # the first is the warm-up
                at_once.append(_run(pulls(threads), threads))
                with patch.object(output_file, "MANY_RANGES", sys.maxsize):
                    one_by_one.append(_run(pulls(threads), threads))
            (seconds, cpu), (before, cpu_before) = (
                [statistics.median(column) for column in zip(*runs[1:], strict=True)] for runs in (at_once, one_by_one)
            )
            found[f"{threads} threads"] = {
                "at_once_gib_s": round(size / seconds / GIB, 2),
                "one_by_one_gib_s": round(size / before / GIB, 2),
                "ratio": round(seconds / before, 2),
                "cpu_ratio": round(cpu / cpu_before, 2),
            }
        return found


def main(arguments: Sequence[str] | None = None) -> None:
    defaults = Parameters()
    parser = argparse.ArgumentParser(prog="python -m bench.pull_reads", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there; default: standard output")
    parser.add_argument("--partitions", type=int, nargs="+", default=defaults.partitions)
    parser.add_argument("--threads", type=int, nargs="+", default=defaults.threads, help="that serve pulls at a time")
    parser.add_argument("--maps", type=int, default=defaults.maps)
    parser.add_argument("--bytes", type=int, default=defaults.bytes, help="of all map outputs")
    parser.add_argument("--block", type=int, default=defaults.block, help="bytes of a block")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="of each way, in turn")
    given = vars(parser.parse_args(arguments))
    path = given.pop("json")
    parameters = Parameters(**{**given, "partitions": tuple(given["partitions"]), "threads": tuple(given["threads"])})
    with tempfile.TemporaryDirectory(prefix="bench-pull-reads-") as scratch:
        report = {
            "benchmark": "pull_reads",
            "machine": {**machine.facts(), "load_before": machine.load()},
            "limits_gib_s": machine.limits(Path(scratch)),
            "parameters": asdict(parameters),
            **{f"into {n}": _compare(parameters, Path(scratch), n) for n in parameters.partitions},
        }
    text = json.dumps(report, indent=1)
    print(text) if path is None else path.write_text(text + "\n")


if __name__ == "__main__":
    unwind_when_told_to_end()
    main()
