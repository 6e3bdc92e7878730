"""`python -m tests.model`: simulates a large cluster, and shows what it does (docs/model.md)."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.harness import machine, program
from tests.model import check
from tests.model.cluster import simulated
from tests.model.parameters import HELP, Parameters
from tests.model.report import report, table


def run(parameters: Parameters, scratch: Path | None = None) -> dict[str, Any]:
    """One simulation."""
    begun, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="model-", dir=scratch) as folder:
        with simulated(parameters, Path(folder) / "master") as cluster:
            cluster.run()
            found = report(cluster)
    took = {"seconds": round(time.monotonic() - begun, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    return {"parameters": asdict(parameters), "took": took, **found}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = program.parser("model", __doc__)
    parser.prog = "python -m tests.model"
    program.add_options(parser, **{name: (value, HELP[name]) for name, value in asdict(Parameters()).items()})
    parser.add_argument("--check", action="store_true", help="compare with real processes: four workers, a small job")
    given = vars(parser.parse_args(arguments))
    path, scratch, compare = given.pop("json"), given.pop("scratch"), given.pop("check")
    if compare:
        found = check.compare(scratch)
        print(check.table(found))
    else:
        found = run(Parameters(**given), scratch)
        print(table(found))
    if path is not None:
        path.write_text(json.dumps({"machine": machine.facts(), **found}, indent=2) + "\n")
    return int(not found.get("equal", True))


if __name__ == "__main__":
    program.run(main)
