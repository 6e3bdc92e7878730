"""Where a JVM's time went, from a Flight Recorder file: ``python -m tools.jfr FILE [--top N] [--thread PREFIX]``.

Prints the share of samples per innermost method, Java and native, and per innermost method of a chosen package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

EVENTS = "jdk.ExecutionSample,jdk.NativeMethodSample"
TIMEOUT_S = 600
WAITS = ("epollWait0", "accept", "read0", "readBytes", "poll", "waitForProcessExit0")  # native, but no work


def samples(file: str) -> Iterator[tuple[str, list[str]]]:
    """Thread name and stack (innermost first) of each sample."""
    command = ["jfr", "print", "--json", "--stack-depth", "64", "--events", EVENTS, file]
    said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    for event in json.loads(said)["recording"]["events"]:
        values = event["values"]
        stack = [_method(frame) for frame in (values["stackTrace"] or {}).get("frames", ())]
        if stack and not stack[0].endswith(WAITS):
            thread: dict[str, Any] = values["sampledThread"] or {}
            yield thread.get("javaName") or "?", stack


def _method(frame: dict[str, Any]) -> str:
    method = frame["method"]
    return f"{method['type']['name'].replace('/', '.')}.{method['name']}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.jfr", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--thread", default="", help="only threads whose name begins like this")
    parser.add_argument("--package", default="org.apache.spark.shuffle", help="for the second table")
    options = parser.parse_args()
    innermost: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for thread, stack in samples(options.file):
        if thread.startswith(options.thread):
            innermost[stack[0]] += 1
            within[next((method for method in stack if method.startswith(options.package)), "(elsewhere)")] += 1
    for title, counts in (("innermost method", innermost), (f"innermost method of {options.package}", within)):
        total = counts.total()
        print(f"{title}, {total} samples")
        for method, count in counts.most_common(options.top):
            print(f"{count / total:7.1%}  {method}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
