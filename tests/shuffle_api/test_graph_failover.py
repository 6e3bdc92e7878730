"""What must run again: known cases, and any small graph beside an oracle that tries every set of tasks."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_api.graph import Edge, Exchange, JobGraph, Task, TaskOutput
from shuffle_api.graph_failover import Lost, failover_scope, is_pipelined, pipelined_regions
from shuffle_api.values import BLOCKING, HYBRID, PIPELINED, PartitionMode

IN_MEMORY = replace(BLOCKING, persistent=False)
REPLAYABLE = PartitionMode(
    reconsumable=True, bounded=True, persistent=True, start="while_writing", release="when_unregistered"
)
MODES = (PIPELINED, BLOCKING, HYBRID, IN_MEMORY, REPLAYABLE)


def tasks(stage: str, *indexes: int) -> frozenset[Task]:
    return frozenset(Task(stage, index) for index in indexes)


MAP_REDUCE = JobGraph.of({"map": 3, "reduce": 2}, [Edge("map", "reduce", BLOCKING)])
MAPS, REDUCES = tasks("map", 0, 1, 2), tasks("reduce", 0, 1)


def output(map: int) -> frozenset[TaskOutput]:
    return frozenset({TaskOutput("map->reduce", Task("map", map))})


# ---------------------------------------------------------------------------------------------- regions


def test_each_task_of_a_blocking_job_is_a_region() -> None:
    assert set(pipelined_regions(MAP_REDUCE)) == {frozenset({task}) for task in MAP_REDUCE.tasks}


def test_a_pipelined_shuffle_is_one_region_and_one_to_one_edges_are_many() -> None:
    graph = JobGraph.of({"a": 2, "b": 2}, [Edge("a", "b", PIPELINED)])
    assert pipelined_regions(graph) == (graph.tasks,)
    graph = JobGraph.of({"a": 2, "b": 2}, [Edge("a", "b", PIPELINED, "one_to_one")])
    assert set(pipelined_regions(graph)) == {tasks("a", 0) | tasks("b", 0), tasks("a", 1) | tasks("b", 1)}


def test_regions_that_wait_for_each_other_are_one() -> None:
    # Flink's case: b[n] is piped from a[n], and c[n] in turn from b[n], but every c also waits for all of a.
    graph = JobGraph.of(
        {"a": 2, "b": 2, "c": 2},
        [Edge("a", "b", PIPELINED, "one_to_one"), Edge("b", "c", PIPELINED, "one_to_one"), Edge("a", "c", BLOCKING)],
    )
    assert pipelined_regions(graph) == (graph.tasks,)


def test_producers_without_a_consumer_are_not_tied_together() -> None:
    graph = JobGraph(tasks("a", 0, 1), (Exchange("nobody reads", tuple(sorted(tasks("a", 0, 1))), (), PIPELINED),))
    assert len(pipelined_regions(graph)) == 2


def test_large_shuffles_take_no_time() -> None:
    graph = JobGraph.of({"a": 2000, "b": 2000, "c": 2000}, [Edge("a", "b", BLOCKING), Edge("b", "c", PIPELINED)])
    assert len(pipelined_regions(graph)) == 2001
    scope = failover_scope(graph, Lost(tasks("c", 7)), finished=tasks("a", *range(2000)))
    assert scope.tasks == tasks("b", *range(2000)) | tasks("c", *range(2000))


# ---------------------------------------------------------------------------------------------- failover


def test_a_lost_reducer_runs_again_alone() -> None:
    scope = failover_scope(MAP_REDUCE, Lost(tasks("reduce", 1)), finished=MAPS)
    assert scope.tasks == tasks("reduce", 1)
    assert scope.regions == (tasks("reduce", 1),)
    assert not scope.outputs


def test_a_lost_map_output_runs_its_map_and_all_that_read_it() -> None:
    scope = failover_scope(MAP_REDUCE, Lost(outputs=output(0)), finished=MAPS | tasks("reduce", 1))
    assert scope.tasks == tasks("map", 0) | REDUCES
    assert scope.outputs == output(0)


def test_a_lost_map_output_of_deterministic_maps_runs_that_map_only() -> None:
    lost = Lost(outputs=output(0))
    assert failover_scope(MAP_REDUCE, lost, finished=MAPS, deterministic=True).tasks == tasks("map", 0)


def test_lost_data_that_nobody_reads_any_more_is_not_made_again() -> None:
    assert not failover_scope(MAP_REDUCE, Lost(outputs=output(0)), finished=MAPS | REDUCES).tasks


def test_a_finished_map_is_needed_again_only_where_its_data_went_with_it() -> None:
    lost = Lost(tasks("map", 0))
    assert not failover_scope(MAP_REDUCE, lost, finished=MAPS).tasks
    memory = JobGraph.of({"map": 3, "reduce": 2}, [Edge("map", "reduce", IN_MEMORY)])
    assert failover_scope(memory, lost, finished=MAPS, deterministic=True).tasks == tasks("map", 0)


def test_a_pipelined_region_goes_down_as_a_whole_and_what_is_upstream_stays() -> None:
    graph = JobGraph.of({"a": 2, "b": 2, "c": 2}, [Edge("a", "b", BLOCKING), Edge("b", "c", PIPELINED)])
    scope = failover_scope(graph, Lost(tasks("b", 0)), finished=tasks("a", 0, 1))
    assert scope.tasks == tasks("b", 0, 1) | tasks("c", 0, 1)


def test_a_lost_consumer_of_a_hybrid_shuffle_leaves_the_running_producers_alone() -> None:
    graph = JobGraph.of({"a": 2, "b": 2}, [Edge("a", "b", HYBRID)])
    assert failover_scope(graph, Lost(tasks("b", 0))).tasks == tasks("b", 0)
    # Consumers have read part of what the lost producer wrote; the next attempt begins anew.
    assert failover_scope(graph, Lost(tasks("a", 0)), deterministic=True).tasks == tasks("a", 0) | tasks("b", 0, 1)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (Lost(tasks("combine", 0)), r"lost task combine\[0\] is not in the graph"),
        (Lost(outputs=frozenset({TaskOutput("x", Task("map", 0))})), r"map\[0\] writes nothing into an exchange 'x'"),
    ],
)
def test_what_is_not_in_the_graph_cannot_be_lost(lost: Lost, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        failover_scope(MAP_REDUCE, lost)


def test_what_is_not_in_the_graph_cannot_have_finished() -> None:
    with pytest.raises(InvalidArgument, match="finished task"):
        failover_scope(MAP_REDUCE, Lost(), finished=tasks("combine", 0))


# ---------------------------------------------------------------------------------------------- the oracle


@st.composite
def graphs(draw: st.DrawFn) -> JobGraph:
    """Any graph of up to six tasks; an exchange leads from lower to higher numbers."""
    everyone = [Task("t", index) for index in range(draw(st.integers(1, 6)))]
    exchanges = []
    for number in range(draw(st.integers(0, 4))):
        cut = draw(st.integers(0, len(everyone)))
        producers, consumers = everyone[:cut], everyone[cut:]
        exchanges.append(
            Exchange(
                f"x{number}",
                tuple(draw(st.lists(st.sampled_from(producers), unique=True, max_size=3)) if producers else ()),
                tuple(draw(st.lists(st.sampled_from(consumers), unique=True, max_size=3)) if consumers else ()),
                draw(st.sampled_from(MODES)),
            )
        )
    return JobGraph(frozenset(everyone), tuple(exchanges))


def subsets(everything: AbstractSet[Task]) -> list[frozenset[Task]]:
    ordered = sorted(everything)
    return [
        frozenset(chosen)
        for chosen in chain.from_iterable(combinations(ordered, size) for size in range(len(ordered) + 1))
    ]


def waits_for(graph: JobGraph) -> set[tuple[Task, Task]]:
    """Pairs of which the first cannot run to its end without the second, by closing over all paths."""
    pairs = {(task, task) for task in graph.tasks}
    for exchange in graph.exchanges:
        for producer in exchange.producers:
            for consumer in exchange.consumers:
                pairs.add((consumer, producer))
                if is_pipelined(exchange.mode):
                    pairs.add((producer, consumer))
    for middle in graph.tasks:
        pairs |= {(a, b) for a in graph.tasks for b in graph.tasks if {(a, middle), (middle, b)} <= pairs}
    return pairs


def is_enough(
    graph: JobGraph, again: frozenset[Task], lost: Lost, finished: frozenset[Task], deterministic: bool
) -> bool:
    """Whether the job ends correctly if exactly `again` run again: looked at pair by pair, without any search."""
    if not lost.tasks - finished <= again:
        return False
    pairs = waits_for(graph)
    if any(
        (a, b) in pairs and (b, a) in pairs and (a in again) != (b in again) for a in graph.tasks for b in graph.tasks
    ):
        return False
    for exchange in graph.exchanges:
        for producer in exchange.producers:
            there = TaskOutput(exchange.name, producer) not in lost.outputs
            there = there and (exchange.mode.persistent or producer not in lost.tasks)
            for consumer in exchange.consumers:
                if producer in again:
                    same = deterministic and (consumer in finished or exchange.mode.start == "after_commit")
                    if consumer not in again and not same:
                        return False
                elif consumer in again:
                    if not (there and exchange.mode.reconsumable):
                        return False
                elif consumer not in finished and not there:
                    return False
    return True


@settings(max_examples=400, deadline=None)
@given(st.data(), graphs(), st.booleans())
def test_scope_is_the_smallest_set_that_is_enough(data: st.DataObject, graph: JobGraph, deterministic: bool) -> None:
    some = st.frozensets(st.sampled_from(sorted(graph.tasks)))
    written = [TaskOutput(exchange.name, task) for exchange in graph.exchanges for task in exchange.producers]
    gone = data.draw(st.frozensets(st.sampled_from(written), max_size=2)) if written else frozenset()
    lost, finished = Lost(data.draw(some), gone), data.draw(some)
    scope = failover_scope(graph, lost, finished=finished, deterministic=deterministic)
    enough = [again for again in subsets(graph.tasks) if is_enough(graph, again, lost, finished, deterministic)]
    assert scope.tasks in enough
    assert all(scope.tasks <= again for again in enough)
    assert frozenset[Task]().union(*scope.regions) == scope.tasks
    assert scope.outputs == {output for output in written if output.producer in scope.tasks}


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_regions_are_those_that_wait_for_each_other_and_come_in_order(graph: JobGraph) -> None:
    regions = pipelined_regions(graph)
    pairs = waits_for(graph)
    place = {task: number for number, region in enumerate(regions) for task in region}
    assert sorted(place) == sorted(task for region in regions for task in region) == sorted(graph.tasks)
    for one in graph.tasks:
        for other in graph.tasks:
            assert (place[one] == place[other]) == ((one, other) in pairs and (other, one) in pairs)
            assert (one, other) not in pairs or place[other] <= place[one]
