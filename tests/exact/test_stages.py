"""Plans whose operators run one by one, in any order, tell what they tell when each push is worked on at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_held import bytes_of
from workload_pipeline import batches, case, told

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.sources.stream_join_kernels import arrive
from nile.exact.plan.algebra import Join, Plan, Range, Scan, Unbounded, walk
from nile.exact.state.ring import Ring
from nile.exact.state.rows import RowTable

SCHEDULINGS = ("nta", "tpa", "ita")


def _read(plan: Plan) -> set[str]:
    return {each.name for each in walk(plan) if isinstance(each, Scan)}


def _run(seed: int, scheduling: str, emit: str, *, scheduled: bool) -> tuple[list[Changes], bytes]:
    """Push batches and run operators at random in between; what was told, and the state before the end."""
    one = case(seed, tuples=60)
    rng = np.random.default_rng(seed + 7)
    pipeline = Pipeline(one.plan, scheduling, emit)  # type: ignore[arg-type]
    pipeline.deferred = scheduled
    found: list[Changes] = []
    for name, ts, rows in batches(one, np.random.default_rng(seed)):
        if name not in _read(one.plan):
            continue
        found += pipeline.push(name, ts, rows)
        for _ in range(int(rng.integers(0, 12))):
            if ready := pipeline.stages.ready():
                pipeline.stages.run(int(rng.choice(ready)))
        found += pipeline.taken()
        if rng.random() < 0.1:
            found += pipeline.settle()
    found += pipeline.settle()
    held = bytes_of(pipeline)
    return [*found, *pipeline.finish(one.end)], held


@pytest.mark.parametrize("scheduling", SCHEDULINGS)
@pytest.mark.parametrize("emit", ["append", "changes", "snapshot"])
def test_random_plans_under_random_schedules_tell_and_hold_the_same(scheduling: str, emit: str) -> None:
    for seed in range(12):
        plain, held = _run(seed, scheduling, emit, scheduled=False)
        other, also = _run(seed, scheduling, emit, scheduled=True)
        assert told(other) == told(plain), seed
        assert also == held, seed


def test_every_operator_is_on_a_path_to_the_root_and_runs_when_its_inputs_have_come_as_far() -> None:
    for seed in range(60):
        stages = Pipeline(case(seed).plan).stages
        paths = stages.paths()
        assert {number for path in paths for number in path} == set(range(len(stages.stages)))
        assert {path[-1] for path in paths} == {len(stages.stages) - 1}
        assert not stages.waits


def test_what_waits_is_counted_until_it_is_worked_on() -> None:
    one = next(each for each in map(case, range(99)) if {"a", "b"} <= _read(each.plan))
    pipeline = Pipeline(one.plan)
    pipeline.deferred = True
    pushed = 0
    for name, ts, rows in batches(one, np.random.default_rng(3)):
        if name not in _read(one.plan):
            continue
        assert pipeline.push(name, ts, rows) == []
        pushed += len(ts)
    pipeline.advance(one.end)
    stages = pipeline.stages
    waiting = [stages.waiting(number) for number in range(len(stages.stages))]
    assert sum(tuples for tuples, _ in waiting) >= pushed > 0
    assert all((tuples > 0) == (held > 0) for tuples, held in waiting)
    while ready := stages.ready():
        stages.run(ready[0])
    assert not stages.waits
    assert [stages.waiting(number) for number in range(len(stages.stages))] == [(0, 0)] * len(waiting)
    assert pipeline.waits == bool(pipeline.taken())


def test_a_step_is_cut_where_many_tuples_wait_also_after_many_steps_of_few() -> None:
    schemas = {"a": pa.schema([("k", pa.int64())]), "b": pa.schema([("j", pa.int64())])}
    plan = Join(Scan("a", schemas["a"], Range(5), 0), Scan("b", schemas["b"], Unbounded(), 1), (("k", "j"),))
    pipeline, most = Pipeline(plan), 1 << 16

    def push(name: str, ts: np.ndarray[Any, Any], key: int) -> None:
        pipeline.push(name, ts, pa.record_batch([pa.array(np.full(ts.shape[0], key))], schema=schemas[name]))

    for at in range(20):
        push("a", np.array([at]), 0)
        push("b", np.array([at]), 1)
    before = pipeline.costs["steps"]
    for at in range(20, 20 + 3 * most, most // 2):
        push("a", np.arange(at, at + most // 2), 0)
    assert pipeline.costs["steps"] == before
    push("b", np.array([20 + 3 * most]), 1)
    assert pipeline.costs["steps"] - before >= 3


@pytest.mark.parametrize("seed", range(5))
def test_tuples_arrive_at_a_join_where_their_twin_puts_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    ring, table = Ring(schema), RowTable([pa.int64()])
    numbered: dict[int, int] = {}
    expected: list[tuple[int, int, float]] = []
    for at in range(0, 400, 20):
        keys = [None if rng.random() < 0.2 else int(k) for k in rng.integers(0, 300, 20)]
        rows = pa.record_batch([pa.array(keys, pa.int64()), pa.array(rng.random(20))], schema=schema)
        for number, (key, x) in enumerate(zip(keys, rows.column(1).to_pylist(), strict=True)):
            code = -1 if key is None else numbered.setdefault(key, len(numbered))
            expected.append((at + number, code, x))
        ring.room(ring.newest + 20)
        ts, done = np.arange(at, at + 20), 0
        words, key_words = ring.encoder.encode(rows.columns), table.encode([rows.column(0)])
        while (
            done := arrive(
                done, ts, key_words, table.encoder.mask, words, table.index, table.kept, table.hashes, table.free,
                table.meta, ring.newest, ring.ts, ring.codes, ring.words,
            )
        ) < 20:  # fmt: skip
            table.grow()
        ring.newest += 20
    held = ring.held()
    found = zip(ring.ts[held].tolist(), ring.codes[held].tolist(), ring.rows(held).column(1).to_pylist(), strict=True)
    assert list(found) == expected
    assert table.live().shape[0] == len(numbered) > 64  # more than there was room for
