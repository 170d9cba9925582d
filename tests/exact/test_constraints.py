"""Joins that forget by constraints: the same pairs while these hold, those of the twin where they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_constrained import Twin

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan.algebra import Aggregate, Group, Join, Plan, Range, Scan, Select, Unbounded
from nile.exact.plan.constraints import Kind, Promise, StreamConstraint
from nile.execution.envelopes import content, packed
from nile.summaries.envelope import unpack
from nile.summaries.errors import ConstraintViolation

LEFT = pa.schema([("id", pa.int64()), ("item", pa.int64()), ("price", pa.float64())])
RIGHT = pa.schema([("order", pa.int64()), ("part", pa.int64()), ("note", pa.string())])
ON = (("id", "order"), ("item", "part"))
Ks = dict[tuple[Kind, int], tuple[int, tuple[int, ...]]]


@dataclass(frozen=True)
class Case:
    """Orders (left) and fulfilments (right); ks: k of each constraint."""

    left: list[tuple[int, tuple[Any, ...]]]
    right: list[tuple[int, tuple[Any, ...]]]
    on: int
    windows: tuple[int, int]


def case(seed: int, orders: int = 60) -> Case:
    rng = np.random.default_rng(seed)
    on = 1 + seed % 2
    left, right, now = [], [], 0
    late, spread = int(rng.integers(0, 6)), int(rng.integers(1, 40))
    for number in range(orders):
        now += int(rng.integers(0, 4))
        key = None if rng.random() < 0.03 else number
        items = int(rng.integers(1, 3)) if on == 2 else 1
        for item in range(items):
            left.append((now, (key, item, float(number))))
            for _ in range(int(rng.integers(0, 4))):
                at = max(0, now + int(rng.integers(-late, spread + 1)))
                right.append((at, (key, item, f"n{number % 7}")))
    left.sort(key=lambda each: each[0])
    right.sort(key=lambda each: each[0])
    windows = (-1, -1) if seed % 3 else (int(rng.integers(3, 60)), int(rng.integers(3, 60)))
    return Case(left, right, on, windows)


def measured(one: Case, mask: int) -> Ks:
    """The least k with which each constraint holds."""
    keys = [[row[: one.on] for _, row in rows] for rows in (one.left, one.right)]
    whole = [[key for key in side if None not in key] for side in keys]
    everything = tuple(range(one.on))
    ks: Ks = {}
    for side in range(2):
        values = [key[0] for key in whole[side]]
        if mask >> side & 1:
            ks["ordered", side] = _pairs(values), (0,)
    gaps = [b - a - 1 for a, b in _neighbours([key[0] for key in whole[1]])]
    if mask >> 2 & 1:
        ks["clustered", 1] = max(gaps, default=0), (0,)
    if mask >> 3 & 1:
        ks["many one", 1] = 0, everything
    if mask >> 4 & 1:
        parents: dict[Any, int] = {}
        for number, (_, row) in enumerate(one.left):
            parents.setdefault(row[: one.on], number)
        need = 0
        for ts, row in one.right:
            before = sum(at <= ts for at, _ in one.left)
            if None not in row[: one.on]:
                need = max(need, parents[row[: one.on]] + 1 - before)
        ks["referential", 1] = need, everything
    return ks


def _pairs(values: list[int]) -> int:
    return max((j - i for j in range(len(values)) for i in range(j) if values[i] > values[j]), default=0)


def _neighbours(values: list[Any]) -> list[tuple[int, int]]:
    last: dict[Any, int] = {}
    found = []
    for at, value in enumerate(values):
        if value in last:
            found.append((last[value], at))
        last[value] = at
    return found


def plan_of(one: Case, ks: Ks) -> Join:
    windows = [Unbounded() if w < 0 else Range(w) for w in one.windows]
    promises = tuple(Promise(StreamConstraint(kind, k), side, on) for (kind, side), (k, on) in ks.items())
    scans = Scan("orders", LEFT, windows[0], 0), Scan("parts", RIGHT, windows[1], 1)
    return Join(*scans, ON[: one.on], promises=promises)


def batches(one: Case, seed: int) -> list[tuple[str, Any, Any]]:
    """Random cuts; neither stream far ahead of the other."""
    rng = np.random.default_rng(seed)
    out, at = [], [0, 0]
    while at[0] < len(one.left) or at[1] < len(one.right):
        side = int(rng.integers(0, 2))
        rows, schema = (one.left, LEFT) if side == 0 else (one.right, RIGHT)
        part = rows[at[side] : at[side] + int(rng.integers(1, 30))]
        at[side] += len(part)
        if part:
            columns = zip(zip(*(row for _, row in part), strict=True), schema.types, strict=True)
            made = pa.RecordBatch.from_arrays([pa.array(*each) for each in columns], schema=schema)
            out.append((("orders", "parts")[side], np.array([ts for ts, _ in part]), made))
    return out


def told(found: list[Changes]) -> list[tuple[Any, ...]]:
    return [
        (int(ts), int(sign), *row.values())
        for each in found
        for ts, sign, row in zip(each.ts, each.sign, each.rows.to_pylist(), strict=True)
    ]


def run(plan: Plan, items: list[tuple[str, Any, Any]], emit: Any = "append") -> list[tuple[Any, ...]]:
    pipeline = Pipeline(plan, emit=emit)
    return told([each for item in items for each in pipeline.push(*item)] + pipeline.finish())


def by_twin(one: Case, ks: Ks) -> list[tuple[Any, ...]]:
    twin = Twin([(0, 0), (1, 1)][: one.on], dict(ks), one.windows)  # type: ignore[arg-type]
    events = [(ts, 0, row) for ts, row in one.left] + [(ts, 1, row) for ts, row in one.right]
    events.sort(key=lambda each: each[:2])
    return [(at, 1, *a, *b) for ts, side, row in events for at, a, b in twin.come(side, ts, row)]


@pytest.mark.parametrize("mask", range(32))
def test_pairs_are_those_of_a_join_without_constraints_while_these_hold(mask: int) -> None:
    for seed in range(3):
        one = case(100 * mask + seed)
        items = batches(one, seed)
        assert run(plan_of(one, measured(one, mask)), items) == run(plan_of(one, {}), items), seed


@pytest.mark.parametrize("mask", range(1, 32, 2))
def test_with_any_k_pairs_are_those_of_the_twin_however_the_input_is_cut(mask: int) -> None:
    for seed in range(4):
        one = case(100 * mask + seed)
        rng = np.random.default_rng(seed)
        ks: Ks = {name: (int(rng.integers(0, k + 3)), on) for name, (k, on) in measured(one, mask | seed % 32).items()}
        expected = by_twin(one, ks)
        for cut in range(3):
            assert run(plan_of(one, ks), batches(one, cut)) == expected, (seed, ks)


def test_a_join_that_is_stopped_and_restored_is_one_that_never_stopped() -> None:
    for seed in range(32):
        one = case(seed)
        rng = np.random.default_rng(seed)
        ks: Ks = {name: (int(rng.integers(0, k + 2)), on) for name, (k, on) in measured(one, seed % 32).items()}
        items = batches(one, seed)
        stop = int(rng.integers(0, len(items)))
        never, again = Pipeline(plan_of(one, ks), emit="append"), Pipeline(plan_of(one, ks), emit="append")
        for item in items[:stop]:
            never.push(*item)
        data = packed("query", never.capture())
        again.restore(content(unpack(data)))
        assert packed("query", again.capture()) == data
        for item in items[stop:]:
            assert told(again.push(*item)) == told(never.push(*item)), (seed, ks)
        assert packed("query", again.capture()) == packed("query", never.capture())


def test_what_is_captured_depends_on_no_cut() -> None:
    for seed in range(16):
        one = case(seed)
        ks = measured(one, seed % 32)
        states = set()
        for cut in range(3):
            pipeline = Pipeline(plan_of(one, ks), emit="append")
            for item in batches(one, cut):
                pipeline.push(*item)
            states.add(packed("query", pipeline.capture()))
        assert len(states) == 1, (seed, ks)


def test_groups_above_a_join_whose_pairs_stay_are_as_without_constraints() -> None:
    for seed in range(1, 30, 3):
        one = case(seed)
        plans = [
            Group(plan_of(one, ks), ("id",), (Aggregate("n", "count"), Aggregate("most", "max", "price")))
            for ks in (measured(one, 31), {})
        ]
        assert run(plans[0], batches(one, seed), "changes") == run(plans[1], batches(one, seed), "changes")


def test_a_join_whose_pairs_have_to_go_forgets_nothing() -> None:
    one = case(3)
    assert one.windows[0] >= 0
    with_them, without = (run(plan_of(one, ks), batches(one, 1), "changes") for ks in (measured(one, 31), {}))
    assert with_them == without


def test_selections_below_a_join_leave_its_constraints_as_they_are() -> None:
    for seed in range(20):
        one = case(seed)
        made = []
        for ks in (measured(one, 31), {}):
            join = plan_of(one, ks)
            odd = Select(join.left, lambda rows: pa.array(rows.column(2).to_numpy() % 3 > 0))
            made.append(run(Join(odd, join.right, join.on, promises=join.promises), batches(one, seed)))
        assert made[0] == made[1]


def test_state_stays_as_large_as_k_says_while_orders_and_fulfilments_come() -> None:
    def held(ks: Ks, rounds: int) -> int:
        one = Case([], [], 1, (-1, -1))
        pipeline = Pipeline(plan_of(one, ks), emit="append")
        for number in range(rounds):
            ids = np.arange(2_000) + 2_000 * number
            for name, times, schema in (("orders", 1, LEFT), ("parts", 3, RIGHT)):
                keys = np.repeat(ids, times)
                ts = keys * 10 + (name == "parts")
                last = pa.array(keys * 0.5) if name == "orders" else pa.array(np.full(keys.shape[0], "box"))
                rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys * 0), last], schema=schema)
                pipeline.push(name, ts, rows)
        return pipeline.memory

    ks: Ks = {("clustered", 1): (5, (0,)), ("referential", 1): (0, (0,))}
    assert held(ks, 30) < 1.2 * held(ks, 10)
    assert held({}, 30) > 20 * held(ks, 30)


def test_a_constraint_that_is_broken_and_must_not_be_ends_the_join() -> None:
    one = case(1)
    plan = plan_of(one, measured(one, 31))
    pipeline = Pipeline(plan, emit="append")
    items = batches(one, 1)
    pipeline.push(*items[0])
    plan.promises[0].constraint.broken = "clustered: needed k of 5; got 7; RELAX it"
    with pytest.raises(ConstraintViolation, match="got 7"):
        pipeline.finish()
