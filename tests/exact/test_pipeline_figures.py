"""What the operators of a pipeline tell of themselves: counts and bytes, of every node of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle_pipeline import forget, rows_of, snapshot
from workload_pipeline import case, changes

from nile.exact.pipeline.pipeline import Figures, Pipeline
from nile.exact.pipeline.sources.incoming import chain_of
from nile.exact.plan.algebra import (
    Aggregate,
    GraphJoin,
    Group,
    Join,
    Plan,
    Project,
    Range,
    Scan,
    Select,
    Stored,
    Union,
    inputs_of,
    walk,
)

KEYED = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OTHER = pa.schema([("j", pa.int64()), ("u", pa.int64())])


def scan(name: str, position: int, schema: Any = KEYED) -> Scan:
    return Scan(name, schema, Range(10), position)


def pushed(plan: Plan, scheduling: str, emit: str = "changes") -> Pipeline:
    """Two streams: keys 0, 1, 0, 1 at 0, 1, 2, 3, and one key 0 at 5; then nothing until 30."""
    pipeline = Pipeline(plan, scheduling, emit)  # type: ignore[arg-type]
    a = pa.record_batch([[0, 1, 0, 1], [1, 2, 3, 4]], schema=KEYED)
    b = pa.record_batch([[0], [7]], schema=OTHER)
    given = {"a": (np.arange(4), a), "b": (np.array([5]), b)}
    for name in dict.fromkeys(node.name for node in walk(plan) if isinstance(node, Scan)):
        pipeline.push(name, *given[name])
    pipeline.finish(30)
    return pipeline


def told(each: Figures) -> tuple[Any, ...]:
    return each.path, each.name, each.tuples, each.positive, each.negative


def test_a_chain_over_a_stream_sends_its_negative_tuples_from_the_top() -> None:
    plan = Project(Select(scan("a", 0), lambda rows: pa.array([k == 0 for k in rows["k"].to_pylist()])), _same, KEYED)
    assert [told(each) for each in pushed(plan, "nta").operators] == [
        ((), "project", 2, 2, 2),
        ((0,), "select", 4, 2, 0),
        ((0, 0), "scan", 4, 4, 0),
    ]
    assert [told(each) for each in pushed(plan, "tpa").operators] == [
        (None, "window of the output", 2, 2, 2),
        ((), "project", 2, 2, 0),
        ((0,), "select", 4, 2, 0),
        ((0, 0), "scan", 4, 4, 0),
    ]


def _same(rows: Any) -> Any:
    return rows


def test_a_group_over_a_join_counts_what_its_inputs_send() -> None:
    join = Join(scan("a", 0), scan("b", 1, OTHER), (("k", "j"),))
    plan = Group(join, ("k",), (Aggregate("n", "count"),))
    assert [told(each) for each in pushed(plan, "nta").operators] == [
        ((), "group", 4, 2, 2),
        ((0,), "join", 10, 2, 2),
        ((0, 0), "scan", 4, 4, 4),
        ((0, 1), "scan", 1, 1, 1),
    ]
    assert [told(each)[1:] for each in pushed(plan, "tpa").operators] == [
        ("window of the output", 4, 2, 2),
        ("group", 2, 2, 2),
        ("join", 5, 2, 0),
        ("scan", 4, 4, 0),
        ("scan", 1, 1, 0),
    ]


def test_rows_asked_for_as_they_stand_are_told_apart_from_changes() -> None:
    plan = Union(scan("a", 0), Stored("c", pa.table({"k": [1, 2], "v": [1, 1]}, schema=KEYED)), all=True)
    pipeline = pushed(plan, "nta", "snapshot")
    assert [(each.name, each.held) for each in pipeline.operators] == [("union", 2), ("scan", 0), ("stored", 2)]


@pytest.mark.parametrize("scheduling", ["nta", "tpa", "ita"])
def test_the_figures_fit_the_plan_and_their_bytes_add_up(scheduling: str) -> None:
    for seed in range(60):
        one = case(seed)
        _, pipeline = changes(one, scheduling, seed)
        found = [each for each in pipeline.operators if each.node is not None]
        assert [each.node for each in found] == list(walk(one.plan)), seed
        assert sum(each.memory for each in pipeline.operators) == pipeline.memory, seed
        assert min(each.memory for each in pipeline.operators) >= 0, seed
        assert pipeline.operators[0].positive + pipeline.operators[0].negative == pipeline.costs["changes"], seed
        by_path = {each.path: each for each in found}
        for each in found:
            assert each.path is not None
            below = [by_path[(*each.path, k)] for k in range(len(inputs_of(each.node)))]  # type: ignore[arg-type]
            if below:
                assert each.tuples == sum(one.positive + one.negative for one in below), seed
            elif isinstance(each.node, Scan):
                assert each.tuples == len(one.streams[each.node.name][0]), seed


def test_what_came_less_what_went_is_what_a_node_holds() -> None:
    checked = 0
    for seed in range(60):
        one = case(seed)
        _, pipeline = changes(one, "nta", seed)
        forget()
        tuples = {n: list(zip(ts.tolist(), rows_of(r), strict=True)) for n, (ts, r) in one.streams.items()}
        inside = _without_negative_tuples(one.plan)
        for each in pipeline.operators:
            if each.node is not None and id(each.node) not in inside:
                holds = len(snapshot(each.node, tuples, one.end))
                assert each.positive - each.negative == holds, (seed, each)
                checked += 1
    assert checked > 100


def _without_negative_tuples(plan: Plan) -> set[int]:
    """Nodes inside a chain over a stream, and inputs of a window graph: what they pass on never leaves them."""
    inside: set[int] = set()
    for node in walk(plan):
        chained = isinstance(chain_of(node)[0], Scan) and not isinstance(node, Scan)
        if chained or isinstance(node, GraphJoin):
            inside |= {id(below) for each in inputs_of(node) for below in walk(each)}
    return inside


def test_counts_are_told_while_tuples_come() -> None:
    pipeline = Pipeline(Group(scan("a", 0), (), (Aggregate("n", "count"),)))
    pipeline.push("a", np.array([1, 2]), pa.record_batch([[0, 1], [1, 2]], schema=KEYED))
    assert [(each.tuples, each.positive) for each in pipeline.operators] == [(1, 1), (2, 1)]
    pipeline.advance(5)
    assert [(each.tuples, each.positive) for each in pipeline.operators] == [(2, 2), (2, 2)]
