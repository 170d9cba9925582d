"""Joins of n streams: against brute force, DuckDB and a plain twin; and the surface a user meets."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import fresh_duckdb
from twin_multiway import Twin
from workload_join import SECOND, stream
from workload_multiway import NAN, assert_honest, brute_force, joinable, operator, plan_of, records, run

import nile
from nile.exact.join import shared
from nile.exact.join.chain import encode_all
from nile.exact.join.clique import ExactClique
from nile.exact.join.shared import run_shared
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import WindowJoinPlan
from nile.operators.common import plan as plans
from nile.operators.inputs.joining import Loaded
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.multiway import multiway
from nile.preferences import state
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.streams.accounting import Accounting
from nile.summaries.costs import ENGINE, MEMORY
from nile.summaries.errors import BudgetError, ConfigError, KeyTypeError, MemoryRefused, UnknownColumn, UnknownStream

WINDOW = 60 * SECOND
PREFERENCES = ("desc", "weighted", "asc")
# The gap of n streams narrows the keys so that brute force stays small.
SIZES = {2: (300, 60), 3: (150, 40), 4: (80, 30), 5: (30, 15)}


def small(seed: int, streams: int, window: int | None = WINDOW) -> MultiwayJoinable:
    n, keys = SIZES[streams]
    return joinable(seed, streams=streams, n=n, keys=keys, window=window, gap=4)


def outliers(joined: MultiwayJoinable, truth: set[tuple[int, ...]], cap: int) -> set[tuple[int, ...]]:
    """Combinations whose key has at most `cap` tuples, of order up to the last one and inside its window."""
    merged = sorted(
        (int(ts), k, i, key)
        for k, one in enumerate(joined.streams)
        for i, (ts, key) in enumerate(zip(one.ts, one.key.to_pylist(), strict=True))
        if key is not None
    )
    window = np.iinfo(np.int64).max if joined.window is None else joined.window
    keys = [one.key.to_pylist() for one in joined.streams]
    times = [one.ts.tolist() for one in joined.streams]

    @cache
    def like_it(last: tuple[int, int, int]) -> int:
        _, k, i = last
        return sum(1 for row in merged if row[3] == keys[k][i] and row[:3] <= last and last[0] - row[0] <= window)

    return {members for members in truth if like_it(max((times[k][i], k, i) for k, i in enumerate(members))) <= cap}


@pytest.mark.parametrize("streams", [2, 3, 4, 5])
@pytest.mark.parametrize("window", [0, SECOND, WINDOW, None])
def test_a_full_budget_gives_every_combination_and_asc_just_the_outliers(streams: int, window: int | None) -> None:
    joined = small(streams, streams, window) if window is not None else joinable(
        7, streams=streams, n=24, keys=24, window=None
    )  # fmt: skip
    truth = brute_force(joined.streams, window)
    assert joined.exact.combinations == len(truth)
    for method, preference, output in itertools.product(multiway.METHODS, PREFERENCES, plans.OUTPUTS):
        plan = plan_of(window, 1.0, method=method, preference=preference, output=output, outlier_cap=streams + 1)
        found, join = run(plan, joined)
        assert_honest(plan, found, join, truth)
        assert set(found) == (outliers(joined, truth, streams + 1) if preference == "asc" else truth)
        assert join.figures.spent <= join.figures.exact_cost


@pytest.mark.parametrize("seed", range(40))
def test_keys_that_not_all_streams_have_change_no_combination(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    streams, window = 2 + seed % 4, int(rng.integers(1, 30))
    ts = [np.sort(rng.integers(0, 60, int(rng.integers(2, 50)))) for _ in range(streams)]
    codes = [rng.integers(-1, 9, each.shape[0]) + 2 * k for k, each in enumerate(ts)]
    codes = [np.where(each < 2 * k, -1, each << (seed % 3 * 20)) for k, each in enumerate(codes)]
    exact = ExactClique(tuple(ts), encode_all([pa.array(each, mask=each < 0) for each in codes])[0], window)
    monkeypatch.setattr(shared, "_SAMPLED", 2)
    graph = WindowGraph.uniform(streams, window)
    plain, spared = (
        sorted(map(tuple, np.concatenate([np.empty((0, streams), np.int64), *blocks]).tolist()))
        for blocks in (
            WindowJoinPlan(graph).start().run(ts, codes), run_shared(WindowJoinPlan(graph).start().run, ts, codes)
        )
    )  # fmt: skip
    assert plain == spared
    assert len(plain) == exact.combinations


@given(seed=st.integers(0, 2**32 - 1), streams=st.integers(2, 5), window=st.sampled_from([None, 0, 3, 40]))
def test_counts_by_one_pass_are_the_products_of_the_ranges(seed: int, streams: int, window: int | None) -> None:
    rng = np.random.default_rng(seed)
    ts = tuple(np.sort(rng.integers(0, 60, int(rng.integers(0, 50)))) for _ in range(streams))
    codes = tuple(rng.integers(-1, 5, each.shape[0]) for each in ts)
    exact = ExactClique(ts, codes, window)
    low, high = exact.ranges
    counts = high - low
    assert exact.standing.tolist() == counts.sum(axis=1).tolist()
    counts[np.arange(counts.shape[0]), exact.stream] = np.where(counts.sum(axis=1) > 0, 1, 0)
    assert exact.completed.tolist() == counts.prod(axis=1).tolist()


@given(
    seed=st.integers(0, 2**32 - 1),
    streams=st.sampled_from([2, 3, 4, 5]),
    window=st.sampled_from([0, SECOND, 20 * SECOND, WINDOW]),
    fraction=st.sampled_from([0.02, 0.1, 0.4, 0.9, 3.0]),
    guide=st.sampled_from(plans.GUIDES),
    preference=st.sampled_from(PREFERENCES),
    output=st.sampled_from(plans.OUTPUTS),
    method=st.sampled_from(multiway.METHODS),
    costs=st.sampled_from([ENGINE, MEMORY]),
    replay=st.sampled_from(["none", "data"]),
    structure=st.sampled_from(["T1", "T2", "T3", "T4"]),
    forgetting=st.booleans(),
    fade=st.sampled_from([1.0, 0.5]),
)
@settings(max_examples=60)
def test_no_plan_makes_a_false_or_an_unpaid_combination(
    seed: int, streams: int, window: int, fraction: float, guide: str, preference: str, output: str, method: str,
    costs: Any, replay: str, structure: str, forgetting: bool, fade: float,
) -> None:  # fmt: skip
    joined = small(seed, streams, window)
    truth = brute_force(joined.streams, window)
    guide = "directory" if structure == "T1" else guide  # T1 keeps no summary to ask
    plan = plan_of(
        window, fraction, guide=guide, preference=preference, output=output, method=method, costs=costs,
        pace=Pace(replay), fade=Fade(fade), seed=seed % 1000,
        summary={"structure": structure, "forgetting": forgetting, "depth": 3},
    )  # fmt: skip
    found, join = run(plan, joined, batch_rows=97)
    assert_honest(plan, found, join, truth)
    if preference == "asc" and method == "nile":  # an opponent counts the tuples it has, and it has shed some
        assert set(found) <= outliers(joined, truth, plan.outlier_cap)
    assert all(float(row[0]) >= 1.0 for row in records(plan, joined, batch_rows=10_000))


@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("guide", plans.GUIDES)
def test_under_any_budget_regions_are_disjoint_and_with_credit_enough_they_cover_the_answer(
    streams: int, guide: str
) -> None:
    """A replay with long gaps grants far more than is needed: `nile` itself, and not the plain probe, finds all."""
    joined = small(5, streams)
    truth = brute_force(joined.streams, WINDOW)
    for fade in (1.0, 0.5):
        plan = plan_of(
            WINDOW, 40.0, guide=guide, pace=Pace("data"), fade=Fade(fade), waiting=10**6, summary={"depth": 3}
        )
        found, join = run(plan, joined)
        assert_honest(plan, found, join, truth)
        assert join.figures.regions > 0
        assert len(found) >= 0.97 * len(truth)  # credit of the last arrivals' gaps is what may lack


STILL_WAITING = 0.07
"""Share of the tuples that may wait, on average, when the input ends: the outputs they would complete are lost."""


def twin_of_hash_drop(joined: MultiwayJoinable, fraction: float, costs: Any) -> tuple[list[tuple[int, ...]], float]:
    """hash-drop, tuple by tuple in plain Python: what it outputs in order, and what it spends."""
    n = len(joined.streams)
    merged = sorted((int(ts), k, i) for k, one in enumerate(joined.streams) for i, ts in enumerate(one.ts))
    keys = [one.key.to_pylist() for one in joined.streams]
    base = joined.costs(costs, ranges=False)
    lists: dict[Any, list[list[tuple[int, int]]]] = {}
    credit = spent = 0.0
    found = []
    for arrival, (ts, k, i) in enumerate(merged):
        credit += fraction * round(100 * base[arrival]) / 100
        key = keys[k][i]
        if key is None or credit < costs.insert + (n - 1) * costs.lookup:
            continue
        held = lists.setdefault(key, [[] for _ in range(n)])
        held[k].append((ts, i))
        pay = costs.insert
        ranges: list[list[int]] = []
        for j in range(n):
            if j == k:
                ranges.append([i])
                continue
            pay += costs.lookup
            ranges.append([o for t, o in held[j] if ts - t <= (joined.window or 0)])
            if not ranges[-1]:
                break
        credit -= pay
        spent += pay
        if len(ranges) == n:
            for members in itertools.product(*ranges):
                if credit < costs.emit:
                    break
                credit -= costs.emit
                spent += costs.emit
                found.append(members)
    return found, spent


@pytest.mark.parametrize("streams", [2, 3, 5])
@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_hash_drop_is_its_plain_twin(streams: int, fraction: float) -> None:
    joined = small(61, streams)
    found, join = run(plan_of(WINDOW, fraction, method="hash-drop"), joined)
    expected, spent = twin_of_hash_drop(joined, fraction, ENGINE)
    assert found == expected
    assert join.figures.spent == pytest.approx(spent, rel=1e-12)


@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize(("fraction", "costs"), [(0.05, ENGINE), (0.3, ENGINE), (0.7, MEMORY)])
def test_the_promising_join_is_its_plain_twin(streams: int, fraction: float, costs: Any) -> None:
    joined = joinable(81, streams=streams, n=500, keys=60 if streams < 4 else 200, window=20 * SECOND)
    plan = plan_of(20 * SECOND, fraction, guide="directory", costs=costs, seed=3)
    join = operator(plan, joined)
    found = [tuple(row) for part in join.run() for row in part.members.tolist()]  # type: ignore[union-attr]
    twin = Twin(plan, joined, int(join.state.setting[state.SALT]))
    figures = join.figures
    assert found == twin.found
    assert figures.spent == pytest.approx(twin.spent / 100, rel=1e-12)
    assert (figures.admitted, figures.shed, figures.expired) == (twin.admitted, tuple(twin.shed), twin.expired)
    assert figures.admission == pytest.approx(twin.admission, rel=1e-12)


@pytest.mark.parametrize("streams", [2, 3])
def test_under_deep_overload_desc_finds_more_than_hash_drop(streams: int) -> None:
    joined = joinable(91, streams=streams, n=3_000, keys=600, window=300 * SECOND)
    for fraction in (0.05, 0.1, 0.3, 0.5):
        found = [
            len(run(plan_of(300 * SECOND, fraction, method=method, guide="directory"), joined)[0])
            for method in ("nile", "hash-drop")
        ]
        assert found[0] > found[1]


def test_under_asc_what_the_sketch_says_of_heavy_keys_is_worth_reading() -> None:
    """Over 6 seeds: more outliers than when every estimate reads 0, at the same price a read."""
    joined = joinable(9, streams=3, n=1_500, keys=40, window=WINDOW)
    found = {False: 0, True: 0}
    for blind, seed in itertools.product(found, range(6)):
        plan = plan_of(
            WINDOW, 0.3, guide="countsketch", preference="asc", seed=seed, blind=blind, summary={"columns": 64}
        )
        found[blind] += len(run(plan, joined)[0])
    assert found[False] > 1.02 * found[True]


@pytest.mark.parametrize("guide", plans.GUIDES)
def test_a_fade_factor_brings_combinations_whose_oldest_tuple_is_younger(guide: str) -> None:
    joined = joinable(95, streams=3, n=2_000, keys=90, window=200 * SECOND)
    ages = []
    for fade in (1.0, 0.2):
        found, _ = run(plan_of(200 * SECOND, 0.1, guide=guide, fade=Fade(fade), summary={"depth": 3}), joined)
        times = np.array([[one.ts[i] for one, i in zip(joined.streams, row, strict=True)] for row in found])
        ages.append(float((times.max(axis=1) - times.min(axis=1)).mean()))
    assert ages[1] < 0.95 * ages[0]


def test_a_replay_puts_all_streams_on_new_times_in_the_same_order() -> None:
    db = nile.connect()
    for k, name in enumerate("abc"):
        db.register(name, pa.table({"at": [k, 10 + k], "k": [1, 1]}), time="at")
    query = db.join("a", "b", "c", on="k", window="10 hours").prefer("desc").replayed("exponential", mean="1 s")
    assert "exponential gaps" in query.explain(0.5)
    found = query.run(budget=50.0).to_arrow().to_pylist()
    assert 0 < len(found) <= 8
    for row in found:
        order = sorted((row[f"{name}_ordinal"], k) for k, name in enumerate("abc"))
        times = [row[f"{'abc'[k]}_ts"] for _, k in order]
        assert times == sorted(times)


def test_every_operation_of_a_small_trace_is_charged() -> None:
    """Three streams, one key, at 0, 1, 2 s: (insert, look-ups until one stream is empty) x 3, and one combination.

    a at 0: insert, b is empty: 1 look-up.  b at 1: insert, a holds 1, c is empty: 2 look-ups.  c at 2: insert,
    2 look-ups, 1 emit.  With engine prices 10 each: 20 + 30 + 40.
    """
    joined = MultiwayJoinable(tuple(stream(name, [at], [5]) for at, name in enumerate("abc")), WINDOW, None)
    found, join = run(plan_of(WINDOW, 1.0), joined)
    assert found == [(0, 0, 0)]
    assert join.figures.spent == 90.0
    assert join.figures.exact_cost == 3 * (10 + 2 * 10) + 10


def test_a_range_record_stands_for_the_whole_product() -> None:
    """2 tuples of a and 3 of b before one of c: one record, six combinations, the last stream fastest."""
    joined = MultiwayJoinable(
        (stream("a", [0, 1], [5, 5]), stream("b", [0, 1, 2], [5, 5, 5]), stream("c", [3], [5])), WINDOW, None
    )
    plan = plan_of(WINDOW, 1.0, output="ranges")
    assert len(records(plan, joined, batch_rows=100)) == 1
    found, join = run(plan, joined)
    assert found == [(i, j, 0) for i in range(2) for j in range(3)]
    assert join.figures.outputs == 1


def keyed(name: str, ts: list[int], key: pa.Array) -> Loaded:
    accounting = Accounting(tuples_in=len(ts), applied=len(ts))
    return Loaded(name, np.array(ts, np.int64) * SECOND, pa.chunked_array([key]), accounting)


def test_nan_joins_itself_negative_zero_joins_zero_null_joins_nothing_and_integers_of_all_widths_are_one_type() -> None:
    floats = [pa.array([NAN, -0.0, None, 2.0]), pa.array([NAN, 0.0, None, 3.0]), pa.array([NAN, 0.0, None, 2.0])]
    joined = MultiwayJoinable(tuple(keyed(f"s{k}", [0, 1, 2, 3], key) for k, key in enumerate(floats)), WINDOW, None)
    found, _ = run(plan_of(WINDOW, 1.0), joined)
    assert set(found) == {(0, 0, 0), (1, 1, 1)}
    whole = [pa.array([1, 2], kind) for kind in (pa.int8(), pa.int64(), pa.int32())]
    joined = MultiwayJoinable(tuple(keyed(f"s{k}", [0, 1], key) for k, key in enumerate(whole)), WINDOW, None)
    assert set(run(plan_of(WINDOW, 1.0), joined)[0]) == {(0, 0, 0), (1, 1, 1)}
    with pytest.raises(KeyTypeError, match="s2"):
        MultiwayJoinable((*joined.streams[:2], keyed("s2", [0], pa.array(["x"]))), WINDOW, None)


def test_a_product_that_cannot_be_numbered_is_refused_with_what_to_do() -> None:
    heavy = np.zeros(2_500, np.int64)
    with pytest.raises(MemoryRefused, match="shorter window"):
        _ = ExactClique((heavy,) * 6, (heavy,) * 6, None).completed


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_duckdb_finds_the_same_combinations(streams: int) -> None:
    """Windows whose edges fall on tuples: gaps of whole seconds, a window of 5 seconds."""
    rng = np.random.default_rng(71)
    db, duck = nile.connect(), fresh_duckdb()
    names = [f"s{k}" for k in range(streams)]
    for name in names:
        n = 60
        table = pa.table({
            "i": np.arange(n), "at": np.cumsum(rng.integers(0, 3, n)),
            "k": pa.array(rng.integers(0, 5, n), mask=rng.random(n) < 0.1),
        })  # fmt: skip
        db.register(name, table, time="at")
        duck.register(name, table)
    apart = " and ".join(f"abs({a}.at - {b}.at) <= 5" for a, b in itertools.combinations(names, 2))
    equal = " and ".join(f"s0.k = {name}.k" for name in names[1:])
    rows = duck.execute(
        f"select {', '.join(f'{n}.i' for n in names)} from {', '.join(names)} where {apart} and {equal}"
    )
    answer = db.join(*names, on="k", window=5).run() if streams > 2 else db.join("s0", "s1", on="k", window=5).run()
    ordinals = [name for name in answer.schema.names if name.endswith("_ordinal")]
    told = sorted(zip(*[answer.to_arrow()[name].to_pylist() for name in ordinals], strict=True))
    assert told == sorted(rows.fetchall())
    assert len(told) > 20


def three() -> nile.Database:
    db = nile.connect()
    for name, at in (("a", [0, 10]), ("b", [1, 12]), ("c", [2, 50])):
        db.register(name, pa.table({"at": at, "k": ["x", "y"]}), time="at")
    return db


def test_an_answer_of_three_streams_has_their_names_and_says_what_it_is_worth() -> None:
    query = three().join("a", "b", "c", on="k", window="30 s")
    answer = query.run()
    assert "0 outputs so far" in repr(answer)
    row = {"a_ordinal": 0, "b_ordinal": 0, "c_ordinal": 0, "k": "x", "weight": 1.0}
    assert answer.to_arrow().drop(["a_ts", "b_ts", "c_ts"]).to_pylist() == [row]
    assert answer.to_pandas()["a_ts"].dtype == "datetime64[ns]"
    assert answer.to_polars().shape == (1, 8)
    assert duckdb.sql("select count(*) from answer").fetchall() == [(1,)]
    assert answer.estimate.certified
    assert answer.estimate.value == 1
    assert answer.coverage == 1.0
    assert answer.budget.spent <= 1.0
    assert answer.memory.total > 0
    assert {name: one.applied for name, one in answer.accounting.items()} == {"a": 2, "b": 2, "c": 2}
    assert "every two within 30 s" in query.explain()
    ranges = query.returning("ranges").run()
    assert ranges.expand().equals(answer.to_arrow())
    told = ranges.to_arrow().to_pylist()
    assert [(row["stream"], row["c_first"], row["a_first"], row["combinations"]) for row in told] == [("c", None, 0, 1)]
    some = query.prefer("weighted").run(budget=0.5)
    assert some.estimate.low <= some.estimate.value <= some.estimate.high
    assert some.budget.spent <= 0.5 + 1e-9
    assert query.prefer("desc").run(budget=0.5).estimate.high == float("inf")


def test_what_is_wrong_with_a_join_of_streams_is_said_with_what_to_do() -> None:
    db = three()
    with pytest.raises(UnknownStream, match="registered"):
        db.join("a", "b", "d", on="k")
    with pytest.raises(UnknownColumn, match="stream 'a'"):
        db.join("a", "b", "c", on="kk")
    with pytest.raises(ConfigError, match="one for each of 3"):
        db.join("a", "b", "c", on=("k", "k"))
    with pytest.raises(ConfigError, match="a AS b"):
        db.join("a", "b", "a", on="k")
    with pytest.raises(ConfigError, match="two streams or more"):
        db.join("a", on="k")
    with pytest.raises(ConfigError, match="as many as a combination has tuples"):
        db.join("a", "b", "c", on="k").prefer("asc", outlier_cap=2).run(0.5)
    with pytest.raises(BudgetError, match="played back in time"):
        db.join("a", "b", "c", on="k").prefer("desc").run(nile.Budget(share=0.3))
    with pytest.raises(ConfigError, match="nile, hash-drop"):
        db.join("a", "b", "c", on="k").using(method="paper").run(0.5)


@pytest.mark.parametrize(("window", "combinations"), [("1 hour", 345), ("6 hours", 4_331)])
def test_three_shops_of_the_retail_data_give_the_known_number_of_combinations(
    retail: Path, window: str, combinations: int
) -> None:
    db = nile.connect()
    table = pq.read_table(retail, columns=["ts", "item_id", "vstore"])
    for k in range(3):
        db.register(f"v{k}", table, time="ts", where=f"vstore = {k}")
    query = db.join("v0", "v1", "v2", on="item_id", window=window)
    answer = query.run()
    assert answer.to_arrow().num_rows == combinations
    assert answer.estimate.value == combinations
    assert query.returning("ranges").run().expand().num_rows == combinations


def test_aggregates_over_several_streams_and_conditions_are_duckdbs() -> None:
    rng = np.random.default_rng(5)
    db, duck = nile.connect(), fresh_duckdb()
    for name in "abc":
        rows = pa.table({
            "at": np.cumsum(rng.integers(0, 3, 60)), "k": rng.integers(0, 4, 60), "x": rng.integers(0, 9, 60) / 2,
        })  # fmt: skip
        db.register(name, rows, time="at")
        duck.register(name, rows)
    near = "abs(a.at - b.at) <= 20 and abs(b.at - c.at) <= 20 and abs(a.at - c.at) <= 20"
    wanted = {"n": "count(*)", "value": "sum(a.x * b.x + c.x)", "most": "max(c.x)"}
    for where in (None, "a.x < b.x and c.x > 1"):
        query = db.join("a", "b", "c", on="k", window=20, where=where)
        told = query.aggregate(wanted, by="a.k").run().to_arrow().sort_by("a.k")
        told_of_answer = query.run().aggregate({"n": "count(*)"}, by="a.k")
        sql = f"""select a.k, count(*), sum(a.x * b.x + c.x), max(c.x) from a, b, c
                  where a.k = b.k and b.k = c.k and {near} and {where or "true"} group by a.k order by a.k"""
        expected = duck.execute(sql).fetchall()
        assert list(zip(*[told[name].to_pylist() for name in ("a.k", *wanted)], strict=True)) == expected
        assert sorted(told_of_answer.to_arrow()["n"].to_pylist()) == sorted(row[1] for row in expected)
    sampled = db.join("a", "b", "c", on="k", window=20).prefer("weighted").run(budget=0.6)
    assert sampled.recall == pytest.approx(sampled.figures.outputs / sampled.exact_outputs)
    assert 0.0 < sampled.recall < 1.0


def test_a_budget_that_buys_all_combinations_as_ranges_is_warned_of_with_both_costs() -> None:
    db = nile.connect()
    for name in "abc":
        db.register(name, pa.table({"ts": list(range(40)), "k": [1] * 40}), time="ts")
    query = db.join("a", "b", "c", on="k", window="100 s").prefer("desc")
    (told,) = query.run(0.5).warnings
    assert told.startswith("join of 'a', 'b' and 'c': the budget grants 321,800 units")  # half of 120 * 30 + 640,000
    assert "costs 4,780" in told  # 120 * 30 + 118 * 10: the first two tuples find nothing
    assert query.run(0.001).warnings == ()
    assert query.run().warnings == ()
    assert db.join("a", "b", "c", on="k", window="100 s", where="a.ts < b.ts").prefer("desc").run(0.5).warnings == ()
