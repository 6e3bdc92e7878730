"""Which tasks must run again when tasks or data are lost. Pure: a graph and what is lost in, a set of tasks out.

Flink's rules (`RestartPipelinedRegionFailoverStrategy`, FLIP-1; `SchedulingPipelinedRegionComputeUtil`), stated over
what a `PartitionMode` promises instead of over kinds of partitions. Tasks to run again are the smallest set in which

1. there is every lost task that had not finished;
2. whoever must run finds its input: the data is there, or its producer is in the set. Data that is lost is not there;
   for a task that runs again, nor is data of a mode that is not `reconsumable`. A lost process takes along what it
   wrote, unless that is `persistent`;
3. nobody builds on two attempts of one producer: if a producer is in the set, all its consumers are. Where tasks are
   deterministic two attempts write the same, and only those consumers are that were in the middle of reading it;
4. a region is whole or not at all.

Committed output of a finished task that nobody reads any more is not made again: it is when somebody needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from shuffle_api.errors import InvalidArgument
from shuffle_api.graph import Exchange, JobGraph, Task, TaskOutput
from shuffle_api.values import PartitionMode


@dataclass(frozen=True, slots=True)
class Lost:
    """What is gone. `tasks`: they failed, or their processes ended, whether they had finished or not.
    `outputs`: data that cannot be read any more."""

    tasks: frozenset[Task] = frozenset()
    outputs: frozenset[TaskOutput] = frozenset()


@dataclass(frozen=True, slots=True)
class FailoverScope:
    """What to do: run `tasks` again, which are the whole `regions`; what they wrote before, `outputs`, is void."""

    tasks: frozenset[Task]
    regions: tuple[frozenset[Task], ...]
    outputs: frozenset[TaskOutput]


def is_pipelined(mode: PartitionMode) -> bool:
    """Whether both ends must run at once: the writer waits for its readers, or what they have read is gone."""
    return mode.bounded or not mode.reconsumable


def pipelined_regions(graph: JobGraph) -> tuple[frozenset[Task], ...]:
    """The units of scheduling and failover: tasks of which none can run to its end before the others begin.

    Both ends of a pipelined exchange are; so are tasks that wait for each other by way of several regions. Each
    task is in one region; a region comes after those whose output it reads.
    """
    numbers = {task: number for number, task in enumerate(sorted(graph.tasks))}
    tasks = list(numbers)
    # Exchanges are nodes as well: with n producers and m consumers that is n + m edges, not n * m.
    after: list[list[int]] = [[] for _ in range(len(tasks) + len(graph.exchanges))]
    for node, exchange in enumerate(graph.exchanges, len(tasks)):
        if not exchange.producers or not exchange.consumers:
            continue
        steps = [(numbers[task], node) for task in exchange.producers]
        steps += [(node, numbers[task]) for task in exchange.consumers]
        for one, other in steps:
            after[one].append(other)
            if is_pipelined(exchange.mode):
                after[other].append(one)
    found = (frozenset(tasks[node] for node in nodes if node < len(tasks)) for nodes in _components(after))
    return tuple(region for region in found if region)[::-1]


def failover_scope(
    graph: JobGraph, lost: Lost, *, finished: AbstractSet[Task] = frozenset(), deterministic: bool = False
) -> FailoverScope:
    """What must run again; see the rules in this module's docstring.

    :param finished: tasks that have run to their end (and committed). A lost one need not run again unless its
        output is gone and somebody reads it.
    :param deterministic: a task writes the same, record by record and in the same order, whenever it runs.
    :raises InvalidArgument: `lost` or `finished` name what is not in the graph.
    """
    _check_known(graph, lost, finished)
    regions = pipelined_regions(graph)
    numbers = _Search(graph, regions, lost, finished, deterministic).run()
    chosen = tuple(region for number, region in enumerate(regions) if number in numbers)
    again = frozenset[Task]().union(*chosen)
    outputs = (
        TaskOutput(exchange.name, task) for exchange in graph.exchanges for task in exchange.producers if task in again
    )
    return FailoverScope(again, chosen, frozenset(outputs))


class _Search:
    """Follows the rules from region to region; each region and each side of an exchange is looked at once."""

    def __init__(
        self,
        graph: JobGraph,
        regions: tuple[frozenset[Task], ...],
        lost: Lost,
        finished: AbstractSet[Task],
        deterministic: bool,
    ) -> None:
        self._graph, self._regions, self._lost = graph, regions, lost
        self._finished, self._deterministic = finished, deterministic
        self._region_of = {task: number for number, region in enumerate(regions) for task in region}
        self._reads: dict[Task, list[Exchange]] = {}
        self._writes: dict[Task, list[Exchange]] = {}
        for exchange in graph.exchanges:
            for task in exchange.consumers:
                self._reads.setdefault(task, []).append(exchange)
            for task in exchange.producers:
                self._writes.setdefault(task, []).append(exchange)

    def run(self) -> frozenset[int]:
        """The numbers of the regions that run again."""
        chosen: set[int] = set()
        supplied: set[str] = set()
        renewed: set[str] = set()
        pending = list(self._first())
        while pending:
            number = self._region_of[pending.pop()]
            if number in chosen:
                continue
            chosen.add(number)
            for task in self._regions[number]:
                for exchange in self._reads.get(task, ()):
                    if exchange.name not in supplied:
                        supplied.add(exchange.name)
                        pending += (task for task in exchange.producers if self._gone(exchange, task, again=True))
                for exchange in self._writes.get(task, ()):
                    if exchange.name not in renewed:
                        renewed.add(exchange.name)
                        pending += (task for task in exchange.consumers if self._must_follow(exchange, task))
        return frozenset(chosen)

    def _first(self) -> Iterable[Task]:
        """Where it begins: lost tasks that had work left, and producers of lost data that somebody still reads."""
        yield from self._lost.tasks - self._finished
        for exchange in self._graph.exchanges:
            if not set(exchange.consumers) <= self._finished:
                yield from (task for task in exchange.producers if self._gone(exchange, task, again=False))

    def _gone(self, exchange: Exchange, producer: Task, *, again: bool) -> bool:
        """Whether a consumer that must run (`again`: from its beginning) does not find what `producer` wrote."""
        return (
            (again and not exchange.mode.reconsumable)
            or TaskOutput(exchange.name, producer) in self._lost.outputs
            or (producer in self._lost.tasks and not exchange.mode.persistent)
        )

    def _must_follow(self, exchange: Exchange, consumer: Task) -> bool:
        """Whether a consumer cannot go on, or stay as it is, when a producer of it runs again."""
        if not self._deterministic:
            return True
        return exchange.mode.start == "while_writing" and consumer not in self._finished


def _check_known(graph: JobGraph, lost: Lost, finished: AbstractSet[Task]) -> None:
    for what, tasks in (("lost", lost.tasks), ("finished", finished)):
        if strange := set(tasks) - graph.tasks:
            raise InvalidArgument(f"{what} task {min(strange)} is not in the graph")
    outputs = {TaskOutput(exchange.name, task) for exchange in graph.exchanges for task in exchange.producers}
    if unknown := lost.outputs - outputs:
        output = min(unknown)
        raise InvalidArgument(f"{output.producer} writes nothing into an exchange {output.exchange!r} of the graph")


def _components(after: list[list[int]]) -> list[list[int]]:
    """The strongly connected components, each after those it leads to (Tarjan 1972, without recursion)."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in range(len(after)):
        if root in order:
            continue
        order[root] = lowest[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        path = [(root, iter(after[root]))]
        while path:
            node, steps = path[-1]
            for step in steps:
                if step not in order:
                    order[step] = lowest[step] = len(order)
                    stack.append(step)
                    on_stack.add(step)
                    path.append((step, iter(after[step])))
                    break
                if step in on_stack:
                    lowest[node] = min(lowest[node], order[step])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    found.append(component)
    return found
