"""A standing query that is stopped and restored is indistinguishable from one that never stopped."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_held import apart, bytes_of, cut, feed, restored, split_apart, undecided
from workload_pipeline import ROW, case

from nile.exact.join.wjoin import ALGORITHMS
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan.algebra import Aggregate, Distinct, Group, Join, Range, Rows, Scan, Stored
from nile.execution.envelopes import content, flat, of
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import ConfigError, EnvelopeError

SCHEDULINGS = ("nta", "tpa", "ita")
EMITS = ("changes", "append", "snapshot")
NORMAL, LONG = 216, 4000


def modes(seed: int) -> tuple[str, str]:
    return SCHEDULINGS[seed % 3], EMITS[seed // 3 % 3]


def test_restored_at_a_random_point_is_never_stopped() -> None:
    wrong = {seed: text for seed in range(NORMAL) if (text := apart(case(seed), *modes(seed), seed))}
    assert wrong == {}


@pytest.mark.long
def test_restored_at_many_more_random_points_is_never_stopped() -> None:
    seeds = range(NORMAL, NORMAL + LONG)
    wrong = {seed: text for seed in seeds if (text := apart(case(seed), *modes(seed), seed))}
    assert wrong == {}


def test_any_cut_of_the_input_gives_the_same_bytes() -> None:
    wrong = {seed: text for seed in range(36) if (text := split_apart(case(seed), *modes(seed), seed))}
    assert wrong == {}


def test_what_comes_after_its_time_goes_no_earlier_than_it_comes() -> None:
    """Under ITA a join sends pairs that are over, cut by cut in another order, which left values in a median."""
    assert split_apart(case(1571), "ita", "append", 1571) == ""


@pytest.mark.long
def test_any_cut_of_the_input_gives_the_same_bytes_for_many_more_plans() -> None:
    wrong = {seed: text for seed in range(36, 2000) if (text := split_apart(case(seed), *modes(seed), seed))}
    assert wrong == {}


def test_restored_over_many_steps_is_never_stopped() -> None:
    wrong = {}
    for seed in (1, 9, 22, 25):
        one = case(seed, tuples=900)
        if text := apart(one, *modes(seed), seed) or split_apart(one, *modes(seed), seed):
            wrong[seed] = text
    assert wrong == {}


# --- every class decides what of it is state ---------------------------------------------------------------


def test_every_attribute_of_a_stateful_class_is_held_or_derived() -> None:
    wrong: dict[str, set[str]] = {}
    classes: set[str] = set()
    for seed in range(60):
        for scheduling in SCHEDULINGS:
            one = case(seed)
            pipeline = Pipeline(one.plan, scheduling, EMITS[seed % 3])  # type: ignore[arg-type]
            feed(pipeline, cut(one, seed))
            wrong |= undecided(pipeline, ("nile.exact",))
            classes |= {each["is"] for each in pipeline.capture()["operators"]}
    assert wrong == {}
    every = {"stream", "relation", "stream join", "join", "window join", "group", "bag", "union all"}
    assert classes == {*every, "select", "project", "window"}


def test_an_attribute_that_nobody_decided_on_is_seen() -> None:
    pipeline = Pipeline(Distinct(Scan("a", ROW, Range(5), 0)))
    pipeline._root.operator.another = 1  # type: ignore[attr-defined]
    assert undecided(pipeline, ("nile.exact",)) == {"DistinctOverWindow": {"another"}}


# --- particular states -------------------------------------------------------------------------------------


def rows_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def stopped(plan: Any, items: list[Any], stop: int, scheduling: str = "nta", emit: str = "changes") -> list[Any]:
    """(expected, got) rows after the stop: of a run that never stopped, and of one restored after `stop` items."""
    runs = []
    for restarts in (False, True):
        pipeline = Pipeline(plan, scheduling, emit)  # type: ignore[arg-type]
        out = []
        for i, item in enumerate(items):
            if i == stop:
                out = []
                if restarts:
                    data = bytes_of(pipeline)
                    pipeline = Pipeline(plan, scheduling, emit)  # type: ignore[arg-type]
                    pipeline.restore(content(unpack(data)))
                    assert bytes_of(pipeline) == data
            out += feed(pipeline, [item])
        out += pipeline.finish()
        runs.append(repr([(each.ts.tolist(), each.sign.tolist(), each.rows.to_pylist()) for each in out]))
    return runs


HOSTILE = [1e308, 1e308, -1e308, 5e-324, -5e-324, 1e16, 1.0, -1e16, 0.1, -0.0, 2.0**-1022, 1.7976931348623157e308]


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_sums_of_hostile_doubles_stay_exact_over_a_stop(scheduling: str) -> None:
    rng = np.random.default_rng(7)
    n = 400
    doubles = np.where(
        rng.random(n) < 0.7, rng.choice(HOSTILE, n), rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n)
    )
    doubles[::57] = np.nan
    doubles[::91] = np.inf
    ts = np.arange(n, dtype=np.int64)
    schema = pa.schema([("g", pa.int64()), ("x", pa.float64())])
    aggregates = tuple(Aggregate(f, f, "x") for f in ("sum", "avg", "stddev_samp", "var_pop", "min", "max", "median"))  # type: ignore[arg-type]
    plan = Group(Scan("a", schema, Range(50), 0), ("g",), aggregates)
    rows = rows_of(g=rng.integers(0, 5, n), x=doubles)
    items = [("a", ts[k : k + 40], rows.slice(k, 40)) for k in range(0, n, 40)]
    for stop in range(1, len(items)):
        expected, got = stopped(plan, items, stop, scheduling)
        assert got == expected


def test_sums_have_one_form_whatever_was_added_and_taken_away() -> None:
    schema = pa.schema([("x", pa.float64())])
    plan = Group(Scan("a", schema, Range(3), 0), (), (Aggregate("s", "sum", "x"),))
    forms = []
    for passing in ([1e300, -1e-300, -1e250], [2.0, 3.0, 4.0]):
        pipeline = Pipeline(plan)
        pipeline.push("a", np.arange(3), rows_of(x=passing))
        pipeline.push("a", np.array([50, 60, 60, 60]), rows_of(x=[0.0, -0.1, 1e17, 2.5]))
        pipeline.advance(61)
        (state,) = pipeline.capture()["operators"][1]["holds"]["states"]
        forms.append(flat(state)[1])
        assert state["digits"].shape[1] < 8
    assert pack("sum", {}, forms[0]) == pack("sum", {}, forms[1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_w_join_goes_on(algorithm: str) -> None:
    seeds = [seed for seed in range(400) if f"algorithm='{algorithm}'" in repr(case(seed).plan)][:3]
    assert len(seeds) == 3
    wrong = {seed: text for seed in seeds for s in SCHEDULINGS if (text := apart(case(seed), s, "changes", seed + 1))}
    assert wrong == {}


TYPED = {
    "text": pa.array(["a", None, "b", ""] * 5),
    "dictionary": pa.array(["a", None, "b", ""] * 5).dictionary_encode(),
    "bytes": pa.array([b"a", None, b"\xff", b""] * 5),
    "decimal": pa.array([1, None, -2, 3] * 5).cast(pa.decimal128(24, 3)),
    "time": pa.array([1, None, -2, 3] * 5).cast(pa.timestamp("us", "UTC")),
    "date": pa.array([1, None, -2, 3] * 5, pa.int32()).cast(pa.date32()),
    "bool": pa.array([True, None, False, True] * 5),
    "unsigned": pa.array([2**64 - 1, None, 0, 1] * 5, pa.uint64()),
    "half": pa.array([1.5, None, float("nan"), 2.0] * 5).cast(pa.float32()),
    "null": pa.nulls(20),
}


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("scheduling", SCHEDULINGS)
def test_columns_of_every_type_survive(name: str, scheduling: str) -> None:
    column = TYPED[name]
    schema = pa.schema([("k", column.type), ("v", column.type)])
    rows = pa.RecordBatch.from_arrays([column, column], schema=schema)
    ts = np.arange(20, dtype=np.int64) // 2
    items = [(s, ts[k : k + 5], rows.slice(k, 5)) for k in range(0, 20, 5) for s in "ab"]
    scan = Scan("a", schema, Range(4), 0)
    other = pa.schema([("l", column.type), ("w", column.type)])
    functions = ("count", "min", "max") if name != "null" else ("count", "min", "sum")
    plans: list[Any] = [
        Group(scan, ("k",), tuple(Aggregate(f, f, "v") for f in functions)),  # type: ignore[arg-type]
        Distinct(Scan("a", schema, Rows(3), 0)),
        Distinct(
            Join(scan, Stored("s", pa.Table.from_batches([rows.slice(0, 3).rename_columns(["l", "w"])])), (("k", "l"),))
        ),
        Join(scan, Scan("c", other, Range(6), 1), (("k", "l"),)),
    ]
    for plan in plans:
        feeding = [
            *items,
            *(("c", ts[k : k + 5], rows.slice(k, 5).rename_columns(["l", "w"])) for k in range(0, 20, 5)),
        ]
        feeding = sorted(feeding, key=lambda item: int(item[1][0]))
        for stop in (1, 4, 7):
            expected, got = stopped(plan, feeding, stop, scheduling)
            assert got == expected


def test_a_stored_relation_keeps_the_rows_that_were_read() -> None:
    schema = pa.schema([("k", pa.int64())])
    before, after = (pa.table({"l": pa.array(values)}) for values in ([1, 2], [2, 3]))
    scan = Scan("a", schema, Range(5), 0)
    first = Pipeline(Join(scan, Stored("s", before), (("k", "l"),)))
    first.push("a", np.array([1, 2]), rows_of(k=[1, 3]))
    second = Pipeline(Join(scan, Stored("s", after), (("k", "l"),)))
    second.restore(content(unpack(bytes_of(first))))
    out = second.push("a", np.array([3, 4, 5]), rows_of(k=[1, 2, 3]))
    assert [row["l"] for each in out for row in each.rows.to_pylist() if row["k"] != 3] == [1, 2]
    assert [row for each in out for row in each.rows.to_pylist() if row["l"] == 3] == []


def test_nothing_pushed_is_a_state_too() -> None:
    for seed in range(30):
        one = case(seed)
        for scheduling in SCHEDULINGS:
            data = bytes_of(Pipeline(one.plan, scheduling, "changes"))  # type: ignore[arg-type]
            assert bytes_of(restored(data, one, scheduling, "changes")) == data


# --- what it refuses ---------------------------------------------------------------------------------------


def test_a_pipeline_at_work_is_not_restored() -> None:
    one = case(3)
    pipeline = Pipeline(one.plan)
    state = pipeline.capture()
    feed(pipeline, cut(one, 3))
    pipeline.advance(1)
    with pytest.raises(ConfigError, match="needed a pipeline that has seen nothing"):
        pipeline.restore(state)


def test_the_state_of_another_query_is_refused() -> None:
    states = [Pipeline(case(seed).plan).capture() for seed in range(12)]
    refused = 0
    for i, state in enumerate(states):
        for j in range(12):
            try:
                Pipeline(case(j).plan).restore(state)
            except EnvelopeError:
                refused += 1
            else:
                assert len(states[j]["operators"]) == len(state["operators"]) or i == j
    assert refused > 100


def damaged(params: Any, arrays: dict[str, Any], rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """One value of a state changed at random."""
    made = {**arrays}
    if rng.random() < 0.6 and arrays:
        name = str(rng.choice(list(arrays)))
        array = arrays[name]
        match int(rng.integers(4)):
            case 0 if array.size:
                copy = array.copy()
                copy.reshape(-1)[rng.integers(copy.size)] = rng.choice([0, 1, 2, 7, 100])
                made[name] = copy
            case 1:
                made[name] = array[:-1] if array.ndim and array.shape[0] else np.zeros(3, array.dtype)
            case 2:
                made[name] = np.concatenate([array, array])
            case _:
                del made[name]
        return params, made
    return changed(params, rng), made


def changed(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, dict) and value:
        name = str(rng.choice(list(value)))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != name}
        return {**value, name: changed(value[name], rng)}
    if isinstance(value, list) and value:
        at = int(rng.integers(len(value)))
        return [changed(each, rng) if i == at else each for i, each in enumerate(value)]
    return [None, -5, 3, 1 << 70, True, "x", [], {}, 0][rng.integers(9)]


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_states_are_refused_or_harmless_and_never_crash(count: int) -> None:
    rng = np.random.default_rng(11)
    refused = 0
    made = []
    for seed in range(40):
        one = case(seed)
        pipeline = Pipeline(one.plan, *modes(seed))  # type: ignore[arg-type]
        items = cut(one, seed)
        feed(pipeline, items[: len(items) // 2])
        made.append((one, items[len(items) // 2 :], modes(seed), flat(pipeline.capture())))
    for i in range(count):
        one, rest, mode, (params, arrays) = made[i % len(made)]
        fresh = Pipeline(one.plan, *mode)  # type: ignore[arg-type]
        try:
            fresh.restore(of(*damaged(params, arrays, rng)))
        except EnvelopeError:
            refused += 1
            continue
        with suppress(Exception):  # a state that contradicts itself may be found out later
            feed(fresh, rest)
            fresh.finish(one.end)
    assert refused > count // 3
