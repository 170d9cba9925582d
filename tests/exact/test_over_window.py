"""Groups over a window in one pass: outputs and states of the two operators it stands for, and kernels their twins."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
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
from nile.exact.state import blocks
from nile.exact.state import columns as columns_module
from nile.exact.state import rows as tables
from nile.exact.state.columns import Columns, Numbers, columns_of, made, picked, stamped, words_of
from nile.exact.state.line import Line
from nile.exact.state.rows_kernels import laid
from nile.exact.state.words import Encoder
from nile.summaries.errors import SumOverflow

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


@pytest.mark.parametrize("different", [12, 100_000])
def test_a_window_of_much_counted_text_takes_no_more_than_twice_its_batches(
    monkeypatch: pytest.MonkeyPatch, different: int
) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    plan = Group(Scan("a", schema, Range(2999), 0), ("k",), (Aggregate("n", "count", "s"),))
    one, two = Pipeline(plan), _apart(monkeypatch, plan)
    for begin in range(0, 12_000, 500):
        at = np.arange(begin, begin + 500)
        text = pa.array((at % different).astype(str))
        rows = pa.RecordBatch.from_arrays([pa.array(at % 7), text], schema=schema)
        assert told(one.push("a", at, rows)) == told(two.push("a", at, rows))
        assert begin < 3000 or one.memory <= 2 * two.memory + (1 << 15)
    assert bytes_of(one) == bytes_of(two)
    stream = one._built.streams[0]
    assert isinstance(stream, Stream)
    assert isinstance(stream._expire, Line) == (different == 12)


@pytest.mark.parametrize("heavy", [0.0, 1.0])  # each has some blocks, or some groups
@pytest.mark.parametrize("window", [0, 3, 40])
def test_groups_on_threads_are_those_of_one(monkeypatch: pytest.MonkeyPatch, window: int, heavy: float) -> None:
    monkeypatch.setattr(blocks, "_HEAVY", heavy)
    shared: list[int] = []
    in_stretches = blocks.in_stretches

    def in_stretches_noted(*given: Any) -> Any:
        shared.append(len(given[0]))
        return in_stretches(*given)

    monkeypatch.setattr(blocks, "in_stretches", in_stretches_noted)
    monkeypatch.setattr(group, "_PIECE", 20)
    monkeypatch.setattr(tables, "_MANY", 1)
    used: dict[str, list[int]] = {}
    for module in (group, over_window):

        def noted(works: Any, of: str = module.__name__) -> None:
            used.setdefault(of, []).append(len(works))
            together(works)

        monkeypatch.setattr(module, "together", noted)
    for plan in _plans(window):
        one = Pipeline(plan)
        monkeypatch.setattr(over_window, "_PIECE", 1)
        monkeypatch.setattr(blocks, "_BLOCK", 8)
        two = Pipeline(plan, threads=4)
        for ts, rows in _pushes(3):
            assert told(one.push("a", ts, rows)) == told(two.push("a", ts, rows))
            assert bytes_of(one) == bytes_of(two)
    assert max(used[over_window.__name__]) == 4
    assert (max(shared, default=0) > 4) == (heavy == 0)
    assert window < 40 or max(used[group.__name__]) == 4


def _in_blocks(monkeypatch: pytest.MonkeyPatch, tuples: int = 4, heavy: float = 1.0) -> None:
    """Have every step worked on in blocks of so many tuples, by as many threads as are allowed."""
    monkeypatch.setattr(blocks, "_HEAVY", heavy)
    monkeypatch.setattr(group, "_PIECE", 1)
    monkeypatch.setattr(over_window, "_PIECE", 1)
    monkeypatch.setattr(blocks, "_BLOCK", tuples)


@pytest.mark.parametrize(("threads", "heavy"), [(1, 1.0), (3, 1.0), (3, 0.0)])
def test_sums_below_zero_go_on_from_a_state_and_with_more_digits(
    monkeypatch: pytest.MonkeyPatch, threads: int, heavy: float
) -> None:
    _in_blocks(monkeypatch, heavy=heavy)
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    plan = Group(Scan("a", schema, Range(30), 0), ("k",), (Aggregate("t", "sum", "x"),))
    pipeline, rng, now = Pipeline(plan, threads=threads), np.random.default_rng(8), 0
    held: list[tuple[int, int, float]] = []
    for number in range(24):
        n = int(rng.integers(5, 40))
        ts = now + 1 + np.sort(rng.integers(0, 20, n))
        now = int(ts[-1])
        keys, some = rng.integers(0, 5, n), -rng.random(n) * 10.0 ** rng.integers(-number, 1 + number, n)
        pipeline.push("a", ts, pa.RecordBatch.from_arrays([pa.array(keys), pa.array(some)], schema=schema))
        pipeline.advance(now)
        held += list(zip(ts.tolist(), keys.tolist(), some.tolist(), strict=True))
        expected = {
            k: math.fsum(x for t, key, x in held if key == k and t + 30 >= now) for t, k, _ in held if t + 30 >= now
        }
        assert {row["k"]: row["t"] for row in pipeline.snapshot().to_pylist()} == expected, number
        if number % 5 == 4:
            pipeline = restored(bytes_of(pipeline), Case(plan, {}, 0), "nta", "changes")


@pytest.mark.parametrize("threads", [1, 3])
def test_a_sum_beyond_64_bits_is_refused_as_at_once(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    schema = pa.schema([("k", pa.int64()), ("i", pa.int64())])
    plan = Group(Scan("a", schema, Range(30), 0), ("k",), (Aggregate("t", "sum", "i"),))
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2] * 20), pa.array([2**61 + k for k in range(40)])], schema=schema)
    with pytest.raises(SumOverflow) as expected:
        Pipeline(plan).push("a", np.arange(40), rows)
    _in_blocks(monkeypatch)
    with pytest.raises(SumOverflow) as found:
        Pipeline(plan, threads=threads).push("a", np.arange(40), rows)
    assert str(found.value) == str(expected.value)


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


NARROW = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("i", pa.int32()), ("b", pa.int8()), ("s", pa.string())])
HELD: list[Callable[[Scan], Plan]] = [
    lambda scan: Group(scan, (), (Aggregate("t", "sum", "v"),)),
    lambda scan: Group(scan, (), (Aggregate("t", "sum", "i"),)),
    lambda scan: Group(scan, (), (Aggregate("t", "sum", "b"),)),
    lambda scan: Group(scan, ("k",), (Aggregate("n", "count"), Aggregate("t", "sum", "v"))),
    lambda scan: Group(scan, ("v",), (Aggregate("n", "count"), Aggregate("t", "sum", "v"))),
    lambda scan: Group(scan, ("s",), (Aggregate("n", "count"), Aggregate("t", "avg", "i"))),
    Distinct,
]


@pytest.mark.parametrize("each", range(len(HELD)))
@pytest.mark.parametrize(("rows", "nulls"), [(1000, False), (37, True)])
def test_rows_of_a_window_take_at_most_twice_the_bytes_that_batches_take(
    monkeypatch: pytest.MonkeyPatch, each: int, rows: int, nulls: bool
) -> None:
    probe = HELD[each](Scan("a", NARROW, Range(10), 0))
    needed = sorted(
        {*getattr(probe, "by", NARROW.names), *(a.column for a in getattr(probe, "aggregates", ()) if a.column)}
    )
    schema = pa.schema([NARROW.field(name) for name in needed])
    plan = HELD[each](Scan("a", schema, Range(8000), 0))
    one, two = Pipeline(plan), _apart(monkeypatch, plan)
    assert isinstance(one._root.operator, OverWindow)
    rng, now = np.random.default_rng(1), 0
    for _ in range(20_000 // rows):
        made = {"k": rng.integers(0, 500, rows), "v": rng.random(rows), "i": rng.integers(0, 9, rows).astype(np.int32),
                "b": rng.integers(0, 9, rows).astype(np.int8), "s": rng.integers(0, 500, rows).astype(str)}  # fmt: skip
        missing = rng.random(rows) < 0.1 if nulls else None
        columns = [pa.array(made[name], schema.field(name).type, mask=missing) for name in needed]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        for pipeline in (one, two):
            pipeline.push("a", now + np.arange(rows), batch)
        now += rows
        if now > 8000:
            assert one.memory <= 2 * two.memory


def test_nulls_of_more_columns_than_a_word_has_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([(f"x{k}", pa.float64()) for k in range(70)])
    plan = Group(Scan("a", schema, Range(9), 0), tuple(schema.names[5:]), (Aggregate("n", "count", "x69"),))
    one, two = Pipeline(plan), _apart(monkeypatch, plan)
    assert isinstance(one._root.operator, OverWindow)
    rng = np.random.default_rng(3)
    for now in range(0, 60, 2):
        columns = [pa.array(np.full(4, 0.5), mask=rng.random(4) < (0.3 if now > 8 else 0.0)) for _ in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        assert told(one.push("a", np.full(4, now), batch)) == told(two.push("a", np.full(4, now), batch))
        assert bytes_of(one) == bytes_of(two)


def test_what_would_take_more_bytes_stays_in_batches() -> None:
    wide = pa.schema([(f"b{k}", pa.bool_()) for k in range(40)])
    counts = tuple(Aggregate(f"n{k}", "count", f"b{k}") for k in range(40))
    assert not isinstance(Pipeline(Group(Scan("a", wide, Range(9), 0), (), counts))._root.operator, OverWindow)
    assert isinstance(Pipeline(Distinct(Scan("a", wide, Range(9), 0)))._root.operator, OverWindow)


def test_kernels_do_what_their_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from nile.exact.pipeline import over_window_kernels as compiled
    from nile.exact.state import line_kernels

    class Twin:
        NULL_KEY, NO_NUMBER, EMPTIED = compiled.NULL_KEY, compiled.NO_NUMBER, compiled.EMPTIED
        slide = staticmethod(compiled.slide.py_func)
        tell = staticmethod(compiled.tell.py_func)
        tell_part = staticmethod(compiled.tell_part.py_func)

    class Lines:
        leaving = staticmethod(line_kernels.leaving.py_func)
        lay_out = staticmethod(line_kernels.lay_out.py_func)
        count_own = staticmethod(line_kernels.count_own.py_func)
        count_up = staticmethod(line_kernels.count_up.py_func)
        AT_ONCE = line_kernels.AT_ONCE

    inner = ("_changes", "_counts_rows", "_number", "begin_pair", "tell_part")
    for plan in _plans(9):
        outs = []
        for kernels, threads, heavy in ((compiled, 1, 1.0), (Twin, 1, 1.0), (Twin, 3, 1.0), (Twin, 3, 0.0)):
            with monkeypatch.context() as patched:
                patched.setattr(over_window, "kernels", kernels)
                patched.setattr(blocks, "lines", Lines if kernels is Twin else line_kernels)
                for name in ("due", "_row", "own_runs") if kernels is Twin else ():
                    patched.setattr(line_kernels, name, getattr(line_kernels, name).py_func)
                if kernels is Twin:
                    patched.setattr(line_kernels, "fetch", lambda _rows, _at: None)
                for name in inner if kernels is Twin else ():  # what they call is Python, too
                    patched.setattr(compiled, name, getattr(compiled, name).py_func)
                if threads > 1:
                    patched.setattr(over_window, "_PIECE", 1)
                    patched.setattr(blocks, "_BLOCK", 10)
                    patched.setattr(blocks, "_HEAVY", heavy)
                pipeline = Pipeline(plan, threads=threads)
                found = [each for ts, rows in _pushes(3, 8) for each in pipeline.push("a", ts, rows)]
                outs.append((told(found), bytes_of(pipeline)))
        assert outs[0] == outs[1] == outs[2] == outs[3]


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


# --- columns that need not become a batch, and batches made of one message ---------------------------------


FEW = pa.RecordBatch.from_arrays(
    [pa.array([1, None, 3]), pa.array([0.5, -0.0, float("nan")]), pa.array(["a", "b", None])], names=["k", "x", "s"]
)


def _stamped_schema(stamps: int, kinds: list[pa.DataType]) -> pa.Schema:
    first = [pa.field("_ts", pa.timestamp("ns")), pa.field("_sign", pa.int8())][:stamps]
    return pa.schema([*first, *(pa.field(f"c{k}", kind) for k, kind in enumerate(kinds))])


@pytest.mark.parametrize("stamps", [0, 1, 2])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 17, 300])
def test_a_message_holds_what_the_columns_hold(stamps: int, n: int) -> None:
    rng = np.random.default_rng(n)
    words = rng.integers(-(2**62), 2**62, (5, n + 3))
    kinds, places = [pa.int64(), pa.float64(), pa.int64()], (4, 1, 1)
    ts, sign = np.sort(rng.integers(0, 2**60, n)), rng.choice(np.array([-1, 1], np.int8), n)
    rows = Numbers(words, places, _stamped_schema(0, kinds), n)
    for _ in range(2):  # the second time with the head of the first
        batch = stamped(ts, sign, rows, _stamped_schema(stamps, kinds), stamps)
        batch.validate(full=True)
        assert batch.schema == _stamped_schema(stamps, kinds)
        expected = [ts.tolist(), sign.tolist()][:stamps]
        assert [column.view(pa.int64()).to_pylist() if column.type != pa.int8() else column.to_pylist()
                for column in batch.columns] == [*expected, *(words[at, :n].tolist() for at in places)]  # fmt: skip


def test_a_schema_that_goes_leaves_its_head_to_nobody_else() -> None:
    words, ts, sign = np.arange(4).reshape(1, 4), np.arange(4), np.ones(4, np.int8)
    for turn in range(50):
        schema = _stamped_schema(2, [pa.int64() if turn % 2 else pa.float64()])
        rows = Numbers(words, (0,), pa.schema(list(schema)[2:]), 4)
        assert stamped(ts, sign, rows, schema, 2).schema.equals(schema)
        del schema


def _laid_out_otherwise(head: Any, *given: Any) -> None:
    given[-1][:] = 0
    given[-1][: head.shape[0]] = head


def test_where_arrow_lays_messages_out_otherwise_columns_become_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, words = _stamped_schema(2, [pa.int64()]), np.arange(3).reshape(1, 3)
    rows = Numbers(words, (0,), pa.schema(list(schema)[2:]), 3)
    monkeypatch.setattr(columns_module, "_HEADS", {})
    monkeypatch.setattr(columns_module, "kernels", SimpleNamespace(laid=_laid_out_otherwise))
    batch = stamped(np.arange(3), np.ones(3, np.int8), rows, schema, 2)
    assert batch.column(2).to_pylist() == [0, 1, 2]


def test_numbers_are_columns() -> None:
    words = np.arange(12).reshape(3, 4)
    rows = Numbers(words, (2, 0), pa.schema([("a", pa.int64()), ("b", pa.int64())]), 3)
    assert made(rows).to_pydict() == {"a": [8, 9, 10], "b": [0, 1, 2]}
    assert rows.slice(1, 2).column(0).to_pylist() == [9, 10]
    assert picked(rows, (1,), pa.schema([("z", pa.int64())])).column(0).to_pylist() == [0, 1, 2]
    assert rows.nbytes == 48


def test_who_picks_the_same_columns_shares_their_words() -> None:
    shared = columns_of(FEW)
    schema = pa.schema([("x", pa.float64()), ("k", pa.int64())])
    one, two = picked(shared, (1, 0), schema), picked(shared, (1, 0), schema)
    exact, equal = (Encoder(schema.types, exact=exact) for exact in (True, False))
    assert words_of(one, (0, 1), exact) is words_of(two, (0, 1), exact)
    assert words_of(one, (0, 1), exact).tolist() == exact.encode(made(two).columns).tolist()
    assert words_of(one, (0, 1), equal).tolist() == equal.encode(made(two).columns).tolist()
    assert words_of(one, (1,), Encoder([pa.int64()], exact=True)).tolist() == [[1, 0], [0, 1], [3, 0]]
    assert words_of(one.slice(1, 2), (0, 1), exact) is words_of(two.slice(1, 2), (0, 1), exact)
    assert words_of(one.slice(1, 2), (0, 1), exact).tolist() == words_of(one, (0, 1), exact)[1:].tolist()
    assert one.slice(0) is one


def test_words_of_text_are_those_of_each_encoder() -> None:
    shared = columns_of(FEW)
    one, two = Encoder([pa.string()], exact=True), Encoder([pa.string()], exact=True)
    two.encode([pa.array(["b"])])
    assert words_of(shared, (2,), one)[:, 0].tolist()[:2] == [0, 1]
    assert words_of(shared, (2,), two)[:, 0].tolist()[:2] == [1, 0]


def test_of_many_rows_nothing_is_shared() -> None:
    many = pa.RecordBatch.from_arrays([pa.array(np.arange(1000))], names=["k"])
    assert columns_of(many).known is None
    assert isinstance(columns_of(many).slice(3), Columns)
    assert words_of(columns_of(many).slice(3, 2), (0,), Encoder([pa.int64()], exact=True)).tolist() == [[3, 0], [4, 0]]


def test_the_kernel_of_messages_is_its_python() -> None:
    rng = np.random.default_rng(2)
    for n, stamps in ((1, 2), (9, 2), (8, 1), (5, 0)):
        outs = []
        head, words, places = rng.integers(0, 9, 3), rng.integers(0, 99, (4, n)), np.array([3, 1])
        ts, sign = np.arange(n), np.full(n, -1, np.int8)
        for kernel in (laid, laid.py_func):
            out = np.zeros(3 + n * bool(stamps) + (n + 7) // 8 * (stamps > 1) + 2 * n, np.int64)
            kernel(head, ts, sign, stamps, words, places, out)
            outs.append(out.tolist())
        assert outs[0] == outs[1]
