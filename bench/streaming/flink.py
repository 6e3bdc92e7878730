"""The same workloads on Flink, from its published jars: Maven fetches them and compiles `flink/` the first time.

One process with two task managers; with one source and one operator each has its own, so that records cross Flink's
network stack. Object reuse is on, as in Flink's own benchmarks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.streaming.plan import WORDCOUNT, Case

HERE = Path(__file__).parent / "flink"
JAR, LIBRARIES = HERE / "target" / "flink-side-1.jar", HERE / "target" / "lib"
OPENS = ("java.util", "java.lang", "java.time")  # what Flink's serializers look into
HEAP = "-Xmx3g"
BUILD_TIMEOUT_S = 900.0
SATURATED_TIMEOUT_MS = 100  # Flink's default


@dataclass(frozen=True, slots=True)
class FlinkOutcome:
    """What Flink's side printed."""

    records_s: float
    latency_ms: dict[str, float]

    def as_json(self) -> dict[str, object]:
        """What the report keeps."""
        return {"records_s": round(self.records_s), "latency_ms": self.latency_ms}


def build() -> None:
    """Compile the job and fetch the jars, unless that was done after the job's last change.

    :raises SystemExit: there is no Maven, or it failed.
    """
    sources = [HERE / "pom.xml", *HERE.glob("src/**/*.java")]
    if JAR.is_file() and LIBRARIES.is_dir() and JAR.stat().st_mtime >= max(each.stat().st_mtime for each in sources):
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit("Maven builds Flink's side, and mvn is not on PATH; leave --flink out to run without it")
    command = [maven, "-q", "-B", "package", "dependency:copy-dependencies", f"-DoutputDirectory={LIBRARIES}"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def run(case: Case) -> FlinkOutcome:
    """Run the case; the buffer timeout is the case's tick if it has a rate, else Flink's default.

    :raises SystemExit: it failed, did not end in time, or lost records.
    """
    buffer_timeout_ms = round(case.tick_s * 1000) if case.rate else SATURATED_TIMEOUT_MS
    guarantee = "none" if case.guarantee == "at_most_once" else case.guarantee
    command = ["java", HEAP, *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENS)]
    command += ["-cp", f"{JAR}:{LIBRARIES}/*", "bench.StreamBench", case.workload, str(case.parallelism)]
    command += [str(case.records), str(case.rate), str(buffer_timeout_ms), guarantee, str(case.words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=case.timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"Flink has not ended within {case.timeout_s:g} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"Flink failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    said = json.loads(lines[-1])
    check(case, said)
    return FlinkOutcome(said["records_s"], said["latency_ms"])


def check(case: Case, said: dict[str, int]) -> None:
    """:raises SystemExit: the records received differ from those sent (of word count: those in complete windows)."""
    sent = case.records * case.parallelism
    if case.workload == WORDCOUNT:
        if not sent - case.words * 9 <= said["records"] <= sent or said["records"] != said["windows"] * 10:
            raise SystemExit(f"Flink: {said['windows']} windows with {said['records']} of {sent} records")
    elif said["records"] != sent or said["number_sum"] != sent * (sent - 1) // 2:
        raise SystemExit(f"Flink: {said['records']} of {sent} records, numbers add up to {said['number_sum']}")
