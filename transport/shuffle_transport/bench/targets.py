"""What the transport must show, against what a run has shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from shuffle_transport.bench.contender import CREDIT
from shuffle_transport.bench.plan import KIB, MIB

TARGET_SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB)
SMALL = 4 * KIB
LOAD = 50_000
HEADROOM = 64 * MIB

Cases = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Target:
    """One requirement. `figure` is None when the cases that show it were not run; then `met` is too."""

    name: str
    figure: float | None
    at_least: float | None
    at_most: float | None
    unit: str

    @property
    def met(self) -> bool | None:
        if self.figure is None:
            return None
        return (self.at_least is None or self.figure >= self.at_least) and (
            self.at_most is None or self.figure <= self.at_most
        )

    def report(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}


def targets(cases: Cases) -> list[Target]:
    """All targets, in a fixed order, from the points of the cases that were run."""
    found = [*_throughput(cases), *_delay(cases), *_isolation(cases)]
    return [*found, *_memory(cases)]


def _throughput(cases: Cases) -> Iterable[Target]:
    for way in ("put", "get"):
        for size in TARGET_SIZES:
            figure = _pick(cases, "sizes", lambda p: p["sides"][CREDIT]["ratio"]["median"], way=way, block_bytes=size)
            yield Target(f"credit stream / raw Flight, {way}, {_size(size)} blocks", figure, 0.95, None, "ratio")
        figure = _pick(cases, "sizes", lambda p: p["sides"][CREDIT]["blocks_s"], way=way, block_bytes=SMALL)
        yield Target(f"one stream of {_size(SMALL)} blocks, {way}", figure, 300_000, None, "blocks/s")


def _delay(cases: Cases) -> Iterable[Target]:
    trip = _pick(cases, "latency", lambda p: p["sides"][CREDIT]["ratio"]["median"])
    yield Target("round trip p50 / bare DoExchange", trip, None, 1.2, "ratio")
    late = _pick(cases, "load", lambda p: p["sides"][CREDIT]["p99"] / 1000, blocks_s=LOAD)
    yield Target(f"p99 one way at {LOAD} blocks/s offered", late, None, 5.0, "ms")


def _isolation(cases: Cases) -> Iterable[Target]:
    kept = _pick(cases, "isolation", lambda p: p["kept"]["median"], side=CREDIT)
    yield Target("one consumer of many stopped: throughput that the others keep", kept, 0.9, None, "ratio")
    for end in ("client", "peer"):
        above = _pick(cases, "isolation", partial(_above, end), side=CREDIT)
        name = f"one consumer of many stopped: memory of the {'producer' if end == 'client' else 'consumer'}"
        yield Target(f"{name} above the pool's budget", above, None, HEADROOM / MIB, "MiB")


def _above(end: str, point: dict[str, Any]) -> float:
    above = int(point["growth_bytes"]["one_stopped"][end]) - int(point["pool"]["budget"])
    return round(above / MIB, 1)


def _memory(cases: Cases) -> Iterable[Target]:
    over = [
        (point["growth_bytes"]["peer"] - point["budget_bytes"]) / MIB
        for point in cases.get("memory", [])
        if point["side"] == CREDIT
    ]
    figure = round(max(over), 1) if over else None
    yield Target("slow consumers: memory above the pool's budget", figure, None, HEADROOM / MIB, "MiB")


def _pick(cases: Cases, case: str, figure: Callable[[dict[str, Any]], float], **wanted: object) -> float | None:
    for point in cases.get(case, []):
        if all(point[name] == value for name, value in wanted.items()):
            return figure(point)
    return None


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= MIB else f"{size >> 10} KiB"
