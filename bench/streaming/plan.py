"""What is run, and what came of it. Frozen values that travel between the processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from shuffle_api import ShuffleHandle

IDENTITY, WORDCOUNT = "identity", "wordcount"
GUARANTEES = ("at_most_once", "at_least_once", "exactly_once")
CHECKPOINT_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """One run: `parallelism` sources, a shuffle, as many operators with their sinks; each a process.

    `records` and `rate` are per source; a rate of 0 is as many as go. `tick_s` is how long a source with a rate gathers
    records for a block, Flink's buffer timeout. `block_records` make a block at saturation. An operator takes at most
    `consume_rate` records a second (0: no limit). Checkpoints are stored in the directory `stored` ("": nowhere), an
    operator's state of `state_bytes` at each `materialize_every`-th.
    """

    workload: str
    parallelism: int = 1
    guarantee: str = "at_least_once"
    alignment: str = "aligned"
    records: int = 1_000_000
    rate: float = 0.0
    tick_s: float = 0.001
    block_records: int = 8192
    words: int = 1000
    consume_rate: float = 0.0
    timeout_s: float = 120.0
    checkpoint_s: float = CHECKPOINT_INTERVAL_S
    options: dict[str, str] = field(default_factory=dict)
    stored: str = ""
    state_bytes: int = 0
    materialize_every: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What one process is to do: source or operator number `index`. `start` is a time.monotonic() they share."""

    role: str
    index: int
    case: Case
    handle: ShuffleHandle
    options: dict[str, str]
    start: float


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What a source did. `memory` are resident bytes, sampled now and then; `seconds` of writing; `stored_ms` by
    checkpoint, from when its barrier was due until this task's part was stored."""

    records: int
    number_sum: int
    seconds: float
    cpu_s: float
    memory: tuple[int, ...]
    back_pressured_s: float
    stored_ms: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """What an operator got. `number_sum` adds up the records' numbers, so that lost and repeated ones show.

    `steady_records` came in `steady_s`, the time after the first third: without start and warm-up. `latencies_ms` are a
    sample; `checkpoints_ms` by checkpoint, from the first source's barrier to the operator's complete part.
    """

    records: int
    number_sum: int
    windows: int
    steady_records: int
    steady_s: float
    cpu_s: float
    latencies_ms: tuple[float, ...] = ()
    checkpoints_ms: tuple[float, ...] = ()
    stored_ms: dict[int, float] = field(default_factory=dict)
    stored_bytes: int = 0
