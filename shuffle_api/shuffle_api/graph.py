"""A job as a graph of tasks: who writes what, who reads it, and how the data between them lives.

graph = JobGraph.of({"map": 3, "reduce": 2}, [Edge("map", "reduce", BLOCKING)])

`shuffle_api.graph_failover` says what must run again when parts of it are lost. Values only; stdlib only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from shuffle_api.errors import InvalidArgument
from shuffle_api.values import PartitionMode


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """Task number `index` of the stage `stage`, whichever attempt of it."""

    stage: str
    index: int

    def __str__(self) -> str:
        return f"{self.stage}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What each of the `producers` writes, each of the `consumers` reads; `name` is unique in its graph."""

    name: str
    producers: tuple[Task, ...]
    consumers: tuple[Task, ...]
    mode: PartitionMode


@dataclass(frozen=True, slots=True, order=True)
class TaskOutput:
    """What one task wrote into one exchange: a map output, in a shuffle."""

    exchange: str
    producer: Task


@dataclass(frozen=True, slots=True)
class Edge:
    """The tasks of stage `source` write, those of `target` read.

    `all_to_all`: everybody reads of everybody, a shuffle. `one_to_one`: task n reads what task n wrote; both stages
    have as many tasks.
    """

    source: str
    target: str
    mode: PartitionMode
    pattern: Literal["all_to_all", "one_to_one"] = "all_to_all"


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Tasks, and the exchanges between them.

    :raises InvalidArgument: two exchanges of one name, a task that is not in `tasks`, an exchange that names a task
        twice, or tasks that wait for their own output (a cycle).
    """

    tasks: frozenset[Task]
    exchanges: tuple[Exchange, ...] = ()

    def __post_init__(self) -> None:
        names = Counter(exchange.name for exchange in self.exchanges)
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise InvalidArgument(f"several exchanges are called {', '.join(twice)}", remedy="name each its own")
        for exchange in self.exchanges:
            for side in (exchange.producers, exchange.consumers):
                if strange := set(side) - self.tasks:
                    raise InvalidArgument(
                        f"exchange {exchange.name!r} names {min(strange)}, which is no task of the graph"
                    )
                if len(set(side)) < len(side):
                    raise InvalidArgument(f"exchange {exchange.name!r} names a task twice")
        self._check_acyclic()

    @classmethod
    def of(cls, stages: Mapping[str, int], edges: Iterable[Edge]) -> JobGraph:
        """The graph of stages with so many tasks each. An exchange is called `source->target`, of one-to-one edges
        `source->target[n]`; the second edge between two stages adds `#2`.

        :raises InvalidArgument: an unknown stage, a one-to-one edge between stages of different sizes, a cycle.
        """
        tasks = {stage: tuple(Task(stage, index) for index in range(count)) for stage, count in stages.items()}
        exchanges: list[Exchange] = []
        seen = Counter[str]()
        for edge in edges:
            for stage in (edge.source, edge.target):
                if stage not in tasks:
                    raise InvalidArgument(f"unknown stage {stage!r}", remedy=f"known: {', '.join(sorted(tasks))}")
            name = f"{edge.source}->{edge.target}"
            seen[name] += 1
            name += f"#{seen[name]}" if seen[name] > 1 else ""
            producers, consumers = tasks[edge.source], tasks[edge.target]
            if edge.pattern == "all_to_all":
                exchanges.append(Exchange(name, producers, consumers, edge.mode))
                continue
            if len(producers) != len(consumers):
                raise InvalidArgument(
                    f"one-to-one edge {name} between {len(producers)} and {len(consumers)} tasks",
                    remedy="give both stages as many tasks, or use the pattern all_to_all",
                )
            exchanges += [
                Exchange(f"{name}[{one.index}]", (one,), (other,), edge.mode)
                for one, other in zip(producers, consumers, strict=True)
            ]
        return cls(frozenset(task for group in tasks.values() for task in group), tuple(exchanges))

    def _check_acyclic(self) -> None:
        """Take away, again and again, tasks that wait for nothing; those left are on a cycle or behind one."""
        waiting = {exchange.name: len(exchange.producers) for exchange in self.exchanges}
        inputs: dict[Task, int] = dict.fromkeys(self.tasks, 0)
        outputs: dict[Task, list[Exchange]] = {}
        for exchange in self.exchanges:
            for task in exchange.producers:
                outputs.setdefault(task, []).append(exchange)
            for task in exchange.consumers if exchange.producers else ():
                inputs[task] += 1
        ready = [task for task, count in inputs.items() if not count]
        while ready:
            for exchange in outputs.get(ready.pop(), ()):
                waiting[exchange.name] -= 1
                if not waiting[exchange.name]:
                    for task in exchange.consumers:
                        inputs[task] -= 1
                        if not inputs[task]:
                            ready.append(task)
        if circling := sorted(task for task, count in inputs.items() if count):
            raise InvalidArgument(f"{circling[0]} waits for its own output: the graph has a cycle")
