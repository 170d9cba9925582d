"""Groups over a window in one pass: outputs and states of the two operators it stands for, and kernels their twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_held import bytes_of, restored
from workload_pipeline import Case, told

from nile.exact.join.threads import together
from nile.exact.pipeline import group, over_window
from nile.exact.pipeline.over_window import DistinctOverWindow, OverWindow
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.plan.algebra import Aggregate, Distinct, Group, Plan, Range, Scan
from nile.exact.state.line import Line

ROW = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("i", pa.int32()), ("d", pa.date32())])
DOUBLES = [0.5, -0.0, 0.0, 1e16, -1e16, float("nan"), float("inf"), 3.25]
SUMS = (Aggregate("n", "count"), Aggregate("nx", "count", "x"), Aggregate("t", "sum", "x"), Aggregate("a", "avg", "i"),
        Aggregate("w", "sum", "i"), Aggregate("ns", "count", "s"))  # fmt: skip


def _scan(window: int) -> Scan:
    return Scan("a", ROW, Range(window), 0)


def _plans(window: int) -> list[Plan]:
    scan = _scan(window)
    return [
        Group(scan, (), SUMS),
        Group(scan, ("k",), SUMS),
        Group(scan, ("s",), (Aggregate("n", "count"), Aggregate("t", "sum", "k"))),
        Group(scan, ("x", "d"), (Aggregate("n", "count"), Aggregate("a", "avg", "x"))),
        Distinct(scan),
        Group(scan, ("i",), ()),
    ]


def _rows(rng: np.random.Generator, n: int, *, nulls: bool) -> pa.RecordBatch:
    some = (lambda: rng.random(n) < 0.2) if nulls else (lambda: np.zeros(n, bool))
    columns = [
        pa.array(rng.integers(0, 4, n), mask=some()),
        pa.array(rng.choice(DOUBLES, n), mask=some()),
        pa.array(rng.choice(np.array(["", "p", "qq"]), n), pa.string(), mask=some()),
        pa.array(rng.integers(-2, 3, n).astype(np.int32), mask=some()),
        pa.array(rng.integers(0, 2, n).astype(np.int32), mask=some()).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW)


def _pushes(seed: int, batches: int = 30) -> list[tuple[np.ndarray[Any, Any], pa.RecordBatch]]:
    rng, now, out = np.random.default_rng(seed), 0, []
    for _ in range(batches):
        n = int(rng.choice([1, 1, 2, 7, 150]))
        ts = now + np.cumsum(rng.choice([0, 0, 1, 3], n))
        now = int(ts[-1])
        out.append((ts.astype(np.int64), _rows(rng, n, nulls=bool(seed % 2))))
    return out


def _apart(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> Pipeline:
    """The plan's operators by themselves."""
    with monkeypatch.context() as only:
        only.setattr(Stream, "may_line", property(lambda _: False))
        made = Pipeline(plan)
    assert not isinstance(made._root.operator, OverWindow)
    return made


@pytest.mark.parametrize("window", [0, 3, 40])
@pytest.mark.parametrize("seed", [0, 1])
def test_outputs_and_states_are_those_of_the_two_operators(
    monkeypatch: pytest.MonkeyPatch, window: int, seed: int
) -> None:
    for plan in _plans(window):
        one, two = Pipeline(plan), _apart(monkeypatch, plan)
        assert isinstance(one._root.operator, OverWindow)
        for number, (ts, rows) in enumerate(_pushes(seed)):
            assert told(one.push("a", ts, rows)) == told(two.push("a", ts, rows))
            if number % 7 == 3:
                assert bytes_of(one) == bytes_of(two)
                assert repr(one.snapshot().to_pylist()) == repr(two.snapshot().to_pylist())
                assert [(each.positive, each.negative, each.tuples) for each in one.operators] == [
                    (each.positive, each.negative, each.tuples) for each in two.operators
                ]
        stream = one._built.streams[0]
        assert isinstance(stream, Stream)
        assert isinstance(stream._expire, Line)
        assert one.memory == sum(each.memory for each in one.operators)
        assert told(one.finish(10_000)) == told(two.finish(10_000))
        assert bytes_of(one) == bytes_of(two)


def test_it_goes_on_from_a_state_of_either_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in _plans(20):
        pushes = _pushes(5)
        one, two = Pipeline(plan), _apart(monkeypatch, plan)
        for ts, rows in pushes[:12]:
            one.push("a", ts, rows)
            two.push("a", ts, rows)
        again = restored(bytes_of(two), Case(plan, {}, 0), "nta", "changes")
        for ts, rows in pushes[12:]:
            assert told(again.push("a", ts, rows)) == told(one.push("a", ts, rows))
        assert bytes_of(again) == bytes_of(one)


def test_tuples_that_are_taken_back_let_the_operators_go_on_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in _plans(20):
        one, two = Pipeline(plan), _apart(monkeypatch, plan)
        for number, (ts, rows) in enumerate(_pushes(2)):
            expected = two.push("a", ts, rows)
            assert told(one.push("a", ts, rows)) == told(expected)
            if number == 9:
                back = [each.take_back("a", int(ts[-1]), ts[-1:], rows.slice(rows.num_rows - 1)) for each in (one, two)]
                assert told(back[0]) == told(back[1])
        assert told(one.finish(500)) == told(two.finish(500))
        assert bytes_of(one) == bytes_of(two)


def test_operators_that_a_scheduler_runs_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in _plans(20):
        one, two = Pipeline(plan), _apart(monkeypatch, plan)
        found: list[Changes] = []
        expected: list[Changes] = []
        for number, (ts, rows) in enumerate(_pushes(4)):
            one.deferred = 5 <= number < 20
            found += one.push("a", ts, rows)
            while one.deferred and number % 3 and (ready := one.stages.ready()):
                one.stages.run(ready[number % len(ready)])
            found += one.taken() if one.deferred else one.settle()
            expected += two.push("a", ts, rows)
        assert told([*found, *one.settle()]) == told(expected)
        assert bytes_of(one) == bytes_of(two)


def test_a_window_of_much_text_lets_go_of_what_has_left() -> None:
    schema = pa.schema([("s", pa.string()), ("t", pa.string())])
    plan = Group(Scan("a", schema, Range(999), 0), ("s",), (Aggregate("n", "count", "t"),))
    pipeline = Pipeline(plan)
    sizes = []
    for number in range(40):
        text = [f"{number}-{k}" for k in range(1000)]
        at = np.arange(1000 * number, 1000 * number + 1000)
        pipeline.push("a", at, pa.RecordBatch.from_arrays([pa.array(text), pa.array(text)], schema=schema))
        sizes.append(pipeline.memory)
    assert max(sizes[20:]) <= 1.1 * max(sizes[5:20])


def test_groups_on_threads_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_PIECE", 20)
    used: list[int] = []

    def noted(works: Any) -> None:
        used.append(len(works))
        together(works)

    monkeypatch.setattr(group, "together", noted)
    for plan in _plans(40):
        one, two = Pipeline(plan), Pipeline(plan, threads=4)
        for ts, rows in _pushes(3):
            assert told(one.push("a", ts, rows)) == told(two.push("a", ts, rows))
        assert bytes_of(one) == bytes_of(two)
    assert max(used) == 4


def test_after_a_burst_the_room_of_a_window_is_let_go() -> None:
    pipeline = Pipeline(Distinct(_scan(10)))
    rows = _rows(np.random.default_rng(1), 50_000, nulls=False)
    pipeline.push("a", np.zeros(50_000, np.int64), rows)
    pipeline.push("a", np.array([5]), rows.slice(0, 1))
    much = pipeline.memory
    for at in range(20, 60):
        pipeline.push("a", np.array([at]), rows.slice(at, 1))
    assert pipeline.memory < much / 10
    assert len(pipeline.snapshot()) <= 11


def test_kernels_do_what_their_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from nile.exact.pipeline import over_window_kernels as compiled

    class Twin:
        slide = staticmethod(compiled.slide.py_func)
        tell = staticmethod(compiled.tell.py_func)

    for plan in _plans(9):
        outs = []
        for kernels in (compiled, Twin):
            monkeypatch.setattr(over_window, "kernels", kernels)
            pipeline = Pipeline(plan)
            found = [each for ts, rows in _pushes(3, 8) for each in pipeline.push("a", ts, rows)]
            outs.append((told(found), bytes_of(pipeline)))
        assert outs[0] == outs[1]


def test_rows_that_are_not_of_one_input_are_refused() -> None:
    plan = Distinct(_scan(9))
    pipeline = Pipeline(plan)
    assert isinstance(pipeline._root.operator, DistinctOverWindow)
    for ts, rows in _pushes(3, 4):
        pipeline.push("a", ts, rows)
    state = pipeline.capture()
    state["operators"][-1]["holds"]["counts"][:, 1] = 1
    with pytest.raises(Exception, match="rows of one input"):
        Pipeline(plan).restore(state)
