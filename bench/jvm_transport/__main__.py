"""Our JVM client and Arrow's in turn, put and get: ``python -m bench.jvm_transport --json FILE``.

Every client is a JVM that lives through all rounds; only one works at a time: A B C C B A ... The Python end is one
process for all. Throughput and the processor time of both ends per GiB; medians. docs/benchmarks/README.md explains.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import process, program
from bench.jvm_transport.jvm import FLAGS, UNCHECKED, ZERO_COPY, Worker, compile_core, compile_ours

GIB, MIB = 1 << 30, 1 << 20
OURS, CORE, CORE_ZERO = "flight_shuffle", "flight_core", "flight_core_zero_copy"


@dataclass(slots=True)
class Figures:
    """What the rounds of one side took, a number per round."""

    gib_s: list[float] = field(default_factory=list)
    client_cpu: list[float] = field(default_factory=list)  # seconds per GiB
    server_cpu: list[float] = field(default_factory=list)

    def cpu(self) -> list[float]:
        """Seconds per GiB of both ends together."""
        return [client + server for client, server in zip(self.client_cpu, self.server_cpu, strict=True)]

    def report(self) -> dict[str, Any]:
        return {
            "gib_s": _median(self.gib_s),
            "cpu_s_per_gib": _median(self.cpu()),
            "client_cpu_s_per_gib": _median(self.client_cpu),
            "server_cpu_s_per_gib": _median(self.server_cpu),
            "rounds_gib_s": [round(value, 3) for value in self.gib_s],
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = program.parser("jvm_transport", __doc__)
    program.add_options(
        parser,
        pairs=(7, "rounds, at least 5 for figures"),
        mib=(1024, "payload of one run"),
        batch_kib=([1024, 2048, 4096], "payload of one message"),
        block_kib=(256, "payload of one block"),
    )
    options = parser.parse_args(arguments)
    program.publish(measure(options), options.json)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of the JSON."""
    report = program.heading("jvm_transport", {name: getattr(options, name) for name in ("pairs", "mib", "block_kib")})
    ours, core = compile_ours(), compile_core()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = Path(folder, "log")

        def start(*command: str) -> Worker:
            return stack.enter_context(Worker(list(command), log))

        server = start(sys.executable, "-m", "bench.jvm_transport.source_sink")
        port = server.read()
        main_class = "org.apache.spark.shuffle.flight.fetch.OursBench"
        sides = {
            OURS: start("java", *FLAGS, "-cp", ours, main_class, port),
            CORE: start("java", *FLAGS, *UNCHECKED, "-cp", core, "bench.CoreBench", port, "copy"),
            CORE_ZERO: start("java", *FLAGS, *UNCHECKED, *ZERO_COPY, "-cp", core, "bench.CoreBench", port, "zero-copy"),
        }
        cases = [(verb, kib << 10) for verb in ("put", "get") for kib in options.batch_kib]
        for verb, batch in 2 * cases:  # the compilers of all JVMs have seen everything before anything is timed
            for client in sides.values():
                _run(verb, batch, options, client, server.pid, Figures())
        results = {f"{verb}_{batch >> 10}k": _compare(verb, batch, options, sides, server.pid) for verb, batch in cases}
    report["machine"]["load_after"] = round(os.getloadavg()[0], 2)
    return report | {"results": results}


def _compare(
    verb: str, batch: int, options: argparse.Namespace, sides: dict[str, Worker], server: int
) -> dict[str, Any]:
    figures = {name: Figures() for name in sides}
    order = list(sides)
    for _ in range(options.pairs):
        for name in order:
            _run(verb, batch, options, sides[name], server, figures[name])
        order.reverse()
    ours = figures[OURS]
    best = max((name for name in sides if name != OURS), key=lambda name: statistics.median(figures[name].gib_s))
    ratios = _ratios(ours.gib_s, figures[best].gib_s)
    ratios_of_cpu = _ratios(ours.cpu(), figures[best].cpu())
    report = {name: side.report() for name, side in figures.items()}
    result = {
        "best_of_flight_core": best,
        "ratio": _median(ratios),
        "ratio_of_cpu": _median(ratios_of_cpu),
        "ratios": ratios,
        "ratios_of_cpu": ratios_of_cpu,
        "sides": report,
    }
    print(
        f"{verb} {batch >> 10} KiB: {report[OURS]['gib_s']} GiB/s, {best} {report[best]['gib_s']}: "
        f"{result['ratio']} of the throughput at {result['ratio_of_cpu']} of the processor time",
        file=sys.stderr,
    )
    return result


def _run(verb: str, batch: int, options: argparse.Namespace, client: Worker, server: int, figures: Figures) -> None:
    block, count = min(options.block_kib << 10, batch), max(1, (options.mib << 20) // batch)
    before = process.cpu_seconds(client.pid), process.cpu_seconds(server)
    seconds, size = client.ask(f"{verb} {batch} {block} {count}").split()
    gib = int(size) / GIB
    figures.gib_s.append(gib / float(seconds))
    figures.client_cpu.append((process.cpu_seconds(client.pid) - before[0]) / gib)
    figures.server_cpu.append((process.cpu_seconds(server) - before[1]) / gib)


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Round by round; of no processor time that could be measured, 0."""
    return [round(a / b, 3) if b else 0.0 for a, b in zip(ours, theirs, strict=True)]


if __name__ == "__main__":
    program.run(main)
