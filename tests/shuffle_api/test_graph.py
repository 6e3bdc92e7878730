"""A job graph: made of stages, and refused when it is none."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.graph import Edge, Exchange, JobGraph, Task
from shuffle_api.values import BLOCKING, PIPELINED

A, B = Task("a", 0), Task("b", 0)
AB = Exchange("ab", (A,), (B,), BLOCKING)


def test_stages_become_tasks_and_exchanges() -> None:
    graph = JobGraph.of(
        {"a": 2, "b": 2, "c": 1},
        [Edge("a", "b", PIPELINED, "one_to_one"), Edge("b", "c", BLOCKING), Edge("b", "c", PIPELINED)],
    )
    assert len(graph.tasks) == 5
    assert [exchange.name for exchange in graph.exchanges] == ["a->b[0]", "a->b[1]", "b->c", "b->c#2"]
    assert graph.exchanges[1] == Exchange("a->b[1]", (Task("a", 1),), (Task("b", 1),), PIPELINED)
    assert graph.exchanges[2].producers == (Task("b", 0), Task("b", 1))
    assert pickle.loads(pickle.dumps(graph)) == graph


@pytest.mark.parametrize(
    ("exchanges", "said"),
    [
        ((AB, AB), "several exchanges are called ab"),
        ((replace(AB, consumers=(Task("c", 7),)),), r"'ab' names c\[7\]"),
        ((replace(AB, producers=(A, A)),), "names a task twice"),
        ((AB, Exchange("ba", (B,), (A,), PIPELINED)), r"a\[0\] waits for its own output"),
        ((Exchange("aa", (A,), (A,), BLOCKING),), r"a\[0\] waits for its own output"),
    ],
)
def test_graph_that_is_none_is_refused(exchanges: tuple[Exchange, ...], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        JobGraph(frozenset({A, B}), exchanges)


def test_unknown_stage_lists_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="unknown stage 'c'.*known: a, b"):
        JobGraph.of({"a": 1, "b": 1}, [Edge("a", "c", BLOCKING)])


def test_one_to_one_needs_as_many_tasks_on_both_sides() -> None:
    with pytest.raises(InvalidArgument, match="between 2 and 3 tasks"):
        JobGraph.of({"a": 2, "b": 3}, [Edge("a", "b", BLOCKING, "one_to_one")])
