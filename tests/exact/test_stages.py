"""Plans whose operators run one by one, in any order, tell what they tell when each push is worked on at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_held import bytes_of
from workload_pipeline import batches, case, told

from nile.exact.join.threads import together
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.sources.stream_join_kernels import arrive
from nile.exact.plan.algebra import Join, Plan, Range, Scan, Unbounded, walk
from nile.exact.state import rows as tables
from nile.exact.state import rows_kernels
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
        batch = pa.record_batch([pa.array(keys, pa.int64()), pa.array(rng.random(20))], schema=schema)
        for number, (key, x) in enumerate(zip(keys, batch.column(1).to_pylist(), strict=True)):
            code = -1 if key is None else numbered.setdefault(key, len(numbered))
            expected.append((at + number, code, x))
        ring.room(ring.newest + 20)
        ts, done = np.arange(at, at + 20), 0
        words, key_words = ring.encoder.encode(batch.columns), table.encode([batch.column(0)])
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


def _one_after_the_other(calls: Sequence[Callable[[], object]]) -> None:
    for call in reversed(calls):
        call()


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_threads_number_rows_and_forget_them_as_a_dictionary_does(
    monkeypatch: pytest.MonkeyPatch, seed: int, threads: int
) -> None:
    monkeypatch.setattr(tables, "_MANY", 1)
    rng = np.random.default_rng(seed)
    table = RowTable([pa.int64(), pa.int64()])
    known: dict[tuple[int, ...], int] = {}
    most = 0
    for number in range(60):
        n = int(rng.integers(1, 300))
        keys = rng.integers(0, 40 if number % 3 else 8, (n, 2))
        words, codes = table.encode([pa.array(each) for each in keys.T]), np.empty(n, np.int64)
        table.find(words, codes)
        assert [known.get(tuple(key), -1) for key in keys.tolist()] == np.maximum(codes, -1).tolist()
        new = [at for at in np.array_split(np.flatnonzero(codes < 0), 3) if at.shape[0]]
        together_here = together if number % 2 else _one_after_the_other
        table.number([(at, words[at]) for at in new], codes, threads, together_here)
        for key, code in zip(keys.tolist(), codes.tolist(), strict=True):
            assert known.setdefault(tuple(key), code) == code
        assert len(set(known.values())) == len(known) == len(table)
        most = max(most, len(known))
        assert table.room <= max(64, 2 * most)
        gone = rng.permutation(list(known.values()))[: int(rng.integers(0, len(known) + 1))]
        table.release_together(np.repeat(gone, 2), threads, together_here)
        known = {key: code for key, code in known.items() if code not in set(gone.tolist())}
        assert sorted(known.values()) == table.live().tolist()


@pytest.mark.parametrize("seed", range(3))
def test_the_kernels_of_a_part_of_a_table_are_their_python(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = []
    keys = rng.integers(0, 90, (12, 60, 1))
    gone = [rng.permutation(60)[:40] for _ in keys]
    for python in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(tables, "_MANY", 1)
            if python:
                for name in ("take_out", "hashed", "found", "hash_ahead", "repeated"):
                    patched.setattr(rows_kernels, name, getattr(rows_kernels, name).py_func)
                for name in ("fetch", "look"):
                    patched.setattr(rows_kernels, name, lambda _rows, _at: None)
                some = ("intern_between", "release_between")
                both = {name: getattr(rows_kernels, name).py_func for name in some}
                others = ("find_words", "intern_words", "release_codes", "build_index")
                both |= {name: getattr(rows_kernels, name) for name in others}
                patched.setattr(tables, "kernels", SimpleNamespace(**both))
            table, told = RowTable([pa.int64()]), []
            for part, out in zip(keys, gone, strict=True):
                words, codes = table.encode([pa.array(part[:, 0])]), np.empty(60, np.int64)
                table.find(words, codes)
                new = np.flatnonzero(codes < 0)
                table.number([(new, words[new])], codes, 3, _one_after_the_other)
                told.append(codes.tolist())
                table.release_together(codes[out], 3, _one_after_the_other)
            found.append((told, table.index.tolist(), table.hashes.tolist(), table.meta.tolist()))
    assert found[0] == found[1]
