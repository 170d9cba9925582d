"""Plans whose operators run one by one, in any order, tell what they tell when each push is worked on at once."""

from __future__ import annotations

import numpy as np
import pytest
from twin_held import bytes_of
from workload_pipeline import batches, case, told

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan.algebra import Plan, Scan, walk

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
