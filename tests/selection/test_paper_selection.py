"""Standing selections: Figure 8 by hand, its twin, brute force and DuckDB, and two opponents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from twin_selection import Twin

import nile
from nile.operators.common.predicate_index import EDGE, FULL
from nile.operators.selection.data import SelectionInput, naive_costs
from nile.operators.selection.plan import SELECTION_METHODS, SelectionPlan
from nile.operators.selection.selection import StandingSelections
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.costs import ENGINE, MEMORY, CostTable

SECOND = 1_000_000_000
ONES = CostTable("ones", insert=1, update=1, estimate=1, scan=1, emit=1, lookup=1, push=1, pop=1, heap_pop=1, add=0)


def encoded(values: list[int], predicates: list[Callable[[int], bool]], ts: list[int] | None = None) -> SelectionInput:
    keys = list(dict.fromkeys(values))
    return SelectionInput(
        ts=np.array(range(len(values)) if ts is None else ts, np.int64),
        code=np.array([keys.index(value) for value in values], np.int32),
        rank=np.argsort(np.argsort(keys)).astype(np.int64),
        says=np.array([[bool(p(key)) for key in keys] for p in predicates], np.uint8).reshape(-1, len(keys)),
        magnitude=np.abs(np.array(keys, np.float64)),
    )


def run(plan: SelectionPlan, data: SelectionInput, rows: int = 65_536) -> tuple[list[tuple[int, int, int]], Any]:
    operator = StandingSelections(plan, data, batch_rows=rows)
    found = [
        (int(q), int(i), int(at))
        for part in map(operator.expand, operator.run())
        for q, i, at in zip(part.query, part.ordinal, part.at, strict=True)
    ]
    return found, operator.figures


# --- by hand ----------------------------------------------------------------------------------------------


def test_figure_8_line_by_line() -> None:
    """Values 1 2 3 4 | 3 3 1 4; queries A: value <= 3, B: value = 3.  Every price is 1, marking is free.

    Buckets {1, 2} and {3, 4}; a zone is four tuples, a slice too.  c_j = insert + 2 scans + matches =
    4 4 5 3 | 5 5 4 3; the budget grants twice that: 32 | 34.  Taking a tuple in costs 3 (insert, lookup,
    update), one lookup more for the first four, the sample: 16 | 12.

    Slice 1 leaves 16.  Round of A, t_start = -inf, t_end = 4.
      (b) 4 keys evaluated: 12.  {1,2}: 2 of 2 keys satisfy A; {3,4}: 1 of 2.  Two regions read, 2 each: 8.
      (c) {1,2} promises 1, {3,4} promises 1/2.
      (d) {1,2}: pop 1, tuples 0 and 1 scanned and selected: 3.  {3,4}: pop 1, tuple 2 selected: 0.  Time out:
          tuple 3 is left undone.
      (e) t_start of A = 4.
    Round of B: nothing left to evaluate a key with, so it waits, and it is its turn next.
    Slice 2 leaves 22.  Round of B over [-inf, 8).
      (b) 4 keys: 18.  {1,2} holds no key of B.  {3,4} of zone 2, then of zone 1, read: 14.
      (c) 1/2 each; alike, so the newer zone first.
      (d) zone 2: pop, tuples 4 and 5 selected, 7 not: 8.  zone 1: pop, tuple 2 selected, 3 not: 4.
    Round of A over [4, 8) with 4.
      (b) at most half goes into reading: {1,2} read, {3,4} not: 2.
      (d) one region needs no heap; tuple 6 selected: 0.
      (e) tuples 4 and 5, which satisfy A, will never be visited.
    """
    data = encoded([1, 2, 3, 4, 3, 3, 1, 4], [lambda v: v <= 3, lambda v: v == 3])
    plan = SelectionPlan(method="paper", budget=Budget(2.0), costs=ONES, buckets=2, zone=4, every=4, sample=4)
    found, figures = run(plan, data)
    a, b = 0, 1
    assert found == [(a, 0, 4), (a, 1, 4), (a, 2, 4), (b, 4, 8), (b, 5, 8), (b, 2, 8), (a, 6, 8)]
    assert (figures.granted, figures.spent, figures.spent_summary) == (66.0, 66.0, 28.0)
    assert (figures.evaluated, figures.regions_read, figures.regions_visited) == (8, 5, 5)
    assert (figures.regions_undone, figures.rounds, figures.shed) == (1, 3, 0)


def test_a_round_resumes_inside_a_zone_that_is_still_open() -> None:
    """One zone of four tuples, dispatched every two: the second round begins after tuple 1 of each cell."""
    data = encoded([5, 5, 5, 5], [lambda v: v == 5])
    found, figures = run(SelectionPlan(method="paper", buckets=1, zone=4, every=2, sample=4), data)
    assert found == [(0, 0, 2), (0, 1, 2), (0, 2, 4), (0, 3, 4)]
    assert (figures.scanned, figures.rounds, figures.evaluated) == (4, 2, 1)


def test_asc_visits_the_least_promising_region_first_and_weighted_the_same_share_of_each() -> None:
    """Values 1 2 3 4 1 2 3 4, query: value <= 3.  {1,2} satisfies wholly, {3,4} by half; one zone, one round.

    weighted: c_j = 3 3 3 2 3 3 3 2, of which 42 in all are granted.  Taking in costs 28, evaluating 4, two reads
    (no push, no pop) 2: 8 are left, and all tuples are expected to take 4 * (1 + 1) and 4 * (1 + 1/2), 14 in
    all.  {1,2} is due 8 * 8 / 14 = 4.6: tuples 0 and 1, 2 each.  {3,4} is due what is left: 2, and 3, which fails.
    """
    data = encoded([1, 2, 3, 4, 1, 2, 3, 4], [lambda v: v <= 3])
    spec: dict[str, Any] = {"costs": ONES, "buckets": 2, "zone": 8, "every": 8, "sample": 4}
    orders = {
        how: [i for _, i, _ in run(SelectionPlan(method="paper", preference=how, **spec), data)[0]]
        for how in ("asc", "desc", "weighted")
    }
    assert orders == {"asc": [2, 6, 0, 1, 4, 5], "desc": [0, 1, 4, 5, 2, 6], "weighted": [0, 1, 4, 5, 2, 6]}
    part, _ = run(SelectionPlan(method="paper", preference="weighted", budget=Budget(42 / 22), **spec), data)
    assert [i for _, i, _ in part] == [0, 1, 2]


def test_a_zone_of_t4_ends_at_the_slice_end_after_the_stream_has_changed() -> None:
    """1,024 tuples, four slices: 1 2 1 2 ... up to 512, then 3 4 3 4 ...; MAXLENGTH is 4,096, every price 1, no adds.

    Slice 1: nothing to compare with.  Slice 2, 256 tuples against 256: the two halves of each value: no change.
    Slice 3 has other values than the 512 before: of two, p = (1/2, 1/2) and (0, 0) here, the other way round there;
    the squared distance is 1/2 + 1/2 = 1, its standard deviation without change (1/512 + 1/256) * sqrt(2 (1/2 +
    1/256)) = 0.0059: a confidence of 1 / (1 + 170**2), far below 0.02.  So the first zone ends at 768, with the first
    slice of what is new inside it.  Slice 4 is a new zone's first: nothing to compare with.
    The query is 1 <= value <= 2.  One dispatch, at the end, sees both zones of its one bucket: the newer zone first,
    whose 256 tuples it scans in vain, then the older one's 768.  Fixed zones would have one region, and T1 no summary.
    Taking in: T4 insert, update, lookup, 3 detector updates, a lookup more for the sample of 4; evaluating 4 keys.
    """
    values = [1 + i % 2 for i in range(512)] + [3 + i % 2 for i in range(512)]
    data = encoded(values, [lambda v: v <= 2])
    data = replace(data, hashes=np.array([1 << 62, 5 << 60, 11 << 60, 3 << 59], np.uint64))
    spec: dict[str, Any] = {"method": "paper", "costs": ONES, "buckets": 1, "zone": 4_096, "every": 1_024, "sample": 4}
    found, figures = run(SelectionPlan(structure="T4", **spec), data)
    assert [i for _, i, _ in found] == list(range(512))
    assert (figures.changes, figures.regions_read, figures.regions_visited, figures.scanned) == (1, 2, 2, 1_024)
    assert figures.spent == 1_024 * 6 + 4 + 4 + 2 * (1 + 1) + 2 * 1 + 1_024 + 512
    told = {name: run(SelectionPlan(structure=name, **spec), data)[1] for name in ("T3", "T2", "T1")}
    assert {name: t.regions_read for name, t in told.items()} == {"T3": 1, "T2": 1, "T1": 0}
    assert {name: t.spent_summary for name, t in told.items()} == {"T3": 3 * 1_024 + 4, "T2": 2 * 1_024, "T1": 1_024}
    assert {name: t.outputs for name, t in told.items()} == dict.fromkeys(told, 512)


def test_naive_drops_what_it_has_no_time_for_and_goes_on_with_the_next_query() -> None:
    """Two queries that every tuple satisfies: c_j = 1 + 2 + 2 = 5; a grant of 3 feeds one query a tuple, in turns.

    Insert 1, scan 1, emit 1: nothing left.
    """
    data = encoded([7, 7, 7], [lambda v: v == 7, lambda v: v > 0])
    found, figures = run(SelectionPlan(method="naive", budget=Budget(0.6), costs=ONES), data)
    assert found == [(0, 0, 1), (1, 1, 2), (0, 2, 3)]
    assert (figures.spent, figures.lost, figures.shed) == (9.0, 3, 0)


def test_the_predicate_index_matches_a_tuple_once_and_reports_while_credit_lasts() -> None:
    """c_j = 1 + 2 + 2 = 5, a grant of 3: insert 1, lookup 1, one of two matches; the first lost one rotates."""
    data = encoded([7, 7, 7], [lambda v: v == 7, lambda v: v > 0])
    found, figures = run(SelectionPlan(method="predicate-index", budget=Budget(0.6), costs=ONES), data)
    assert found == [(0, 0, 1), (1, 1, 2), (0, 2, 3)]
    assert (figures.spent, figures.lost) == (9.0, 3)


def test_uniform_shedding_is_the_index_behind_a_threshold_that_knows_what_the_budget_can_answer() -> None:
    """400 tuples of two matches each: c_j = 1 + 2 + 2 = 5, half of it granted; the index spends 1 + 1 + 2 = 4 on one.

    So five eighths are kept, drawn tuple by tuple; what the draw has kept is answered in full as credit comes.
    """
    data = encoded([7] * 400, [lambda v: v == 7, lambda v: v > 0])
    found, figures = run(SelectionPlan(method="shed-uniform", budget=Budget(0.5), costs=ONES), data)
    assert figures.granted == 1_000.0
    assert figures.arrivals - figures.shed == pytest.approx(250, abs=30)
    assert len(found) == pytest.approx(500, rel=0.1)
    every, _ = run(SelectionPlan(method="shed-uniform", costs=ONES), data)
    assert len(every) == 800


def test_the_base_of_the_budget_is_what_naive_spends_to_answer_everything() -> None:
    data = encoded([1, 2, 3, 1], [lambda v: v < 3, lambda v: v == 1])
    assert naive_costs(data, ENGINE, windowed=False).tolist() == [34.0, 24.0, 14.0, 34.0]
    for window in (None, 10):
        _, figures = run(SelectionPlan(method="naive", window=window), data)
        assert figures.spent == figures.exact_cost


# --- against the twin -------------------------------------------------------------------------------------


def drawn(draw: some.DrawFn, values: list[int], queries: int) -> SelectionInput:
    """A stream of `values` and as many range predicates, of which some leave values open that a tuple then decides."""
    bounds = draw(some.lists(some.tuples(some.integers(-9, 9), some.integers(0, 8)), min_size=1, max_size=queries))
    gaps = draw(some.lists(some.integers(0, 3), min_size=len(values), max_size=len(values)))
    data = encoded(
        values,
        [lambda v, low=low, width=width: low <= v <= low + width for low, width in bounds],
        np.cumsum(gaps).tolist(),
    )
    mixed = draw(some.lists(some.integers(0, len(bounds) - 1), unique=True, max_size=2))
    rows = np.full(len(bounds), -1, np.int32)
    verdict = np.zeros((len(mixed), len(values)), np.uint8)
    chance = np.random.Generator(np.random.PCG64(draw(some.integers(0, 99))))
    for row, q in enumerate(mixed):
        rows[q] = row
        data.says[q] *= EDGE
        data.says[q, data.says[q] == EDGE] = np.where(
            chance.random(int((data.says[q] == EDGE).sum())) < 0.3, FULL, EDGE
        )
        said = data.says[q][data.code]
        verdict[row] = (said == FULL) | ((said == EDGE) & (chance.random(len(values)) < 0.5))
    return replace(data, verdict=verdict, verdict_row=rows, learned=draw(some.integers(0, len(bounds))))


@some.composite
def workloads(draw: some.DrawFn) -> tuple[SelectionPlan, SelectionInput]:
    data = drawn(draw, draw(some.lists(some.integers(-9, 9), min_size=1, max_size=60)), 5)
    plan = SelectionPlan(
        window=draw(some.none() | some.integers(0, 20)),
        budget=draw(some.none() | some.floats(0.05, 4.0).map(Budget)),
        method=draw(some.sampled_from(SELECTION_METHODS)),
        preference=draw(some.sampled_from(["desc", "weighted", "asc"])),
        promise=draw(some.sampled_from(["share", "value"])),
        output=draw(some.sampled_from(["pairs", "ranges"])),
        costs=draw(some.sampled_from([ENGINE, MEMORY, ONES])),
        pace=Pace(replay=draw(some.sampled_from(["none", "data", "exponential"]))),
        structure=draw(some.sampled_from(["T1", "T2", "T3"])),
        buckets=draw(some.integers(1, 9)),
        zone=draw(some.integers(1, 30)),
        every=draw(some.integers(1, 30)),
        sample=draw(some.integers(1, 30)),
        waiting=draw(some.integers(0, 9)),
    )
    return plan, data


@settings(max_examples=150)
@given(workloads(), some.integers(1, 60))
def test_kernels_equal_their_twin_however_the_input_is_cut(
    workload: tuple[SelectionPlan, SelectionInput], rows: int
) -> None:
    plan, data = workload
    twin = Twin(plan, data)
    found, figures = run(plan, data, rows)
    assert found == twin.outputs
    assert (round(100 * figures.spent), figures.shed) == (round(twin.spent), twin.shed)


@settings(max_examples=100)
@given(workloads())
def test_outputs_are_part_of_the_answer_without_repeats_and_within_the_grant(
    workload: tuple[SelectionPlan, SelectionInput],
) -> None:
    plan, data = workload
    found, figures = run(plan, data)
    pairs = [(q, i) for q, i, _ in found]
    exact = {(q, int(i)) for q in range(len(data.says)) for i in np.flatnonzero(data.truth(q))}
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= exact
    assert figures.spent <= figures.granted
    for _, i, at in found:
        assert i < at
        assert plan.window is None or data.ts[at - 1] - data.ts[i] <= plan.window
    everything = plan.is_exact and (plan.method in ("nile", "naive") or plan.budget is None)
    if everything and (plan.window is None or plan.method != "paper"):
        assert set(pairs) == exact


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", ["nile", "paper"])
def test_kernels_equal_their_twin_over_many_slices(method: str, seed: int) -> None:
    """2,600 tuples whose values change halfway: admission decides, zones of T4 end, records are left and taken up."""
    chance = np.random.Generator(np.random.PCG64(seed))
    place = np.where(np.arange(2_600) < 1_400, 0, 25)
    values = (chance.integers(0, 12, 2_600) * chance.integers(1, 4, 2_600) + place).tolist()
    bounds = [(low, low + 9 * width) for low, width in chance.integers(0, [55, 2], (12, 2)).tolist()]
    data = encoded(values, [lambda v, low=low, high=high: low <= v <= high for low, high in bounds])
    hashes = chance.integers(0, 2**64, data.says.shape[1], dtype=np.uint64)
    data = replace(data, hashes=hashes, ts=np.cumsum(chance.integers(0, 9, 2_600)))
    fraction = [0.03, 0.1, 0.2, 0.4, 0.6, 0.9][seed] * (4 if method == "paper" else 1)
    for preference, promise, output in (
        ("desc", "share", "pairs"),
        ("desc", "share", "ranges"),
        ("asc", "value", "ranges"),
        ("weighted", "share", "ranges"),
        ("asc", "share", "pairs"),
    ):
        plan = SelectionPlan(
            method=method, budget=Budget(fraction), preference=preference, promise=promise, output=output,
            costs=MEMORY if seed in (2, 4) else ENGINE, structure="T4", threshold=0.1, zone=1_024, buckets=8,
            confidence="variance" if seed == 3 else "two-window", window=None if seed % 3 else 1_500,
            pace=Pace(replay="data" if seed in (2, 4) else "none"), waiting=40,
        )  # fmt: skip
        twin = Twin(plan, data)
        found, figures = run(plan, data, 700)
        assert found == twin.outputs
        assert (round(100 * figures.spent), figures.shed, figures.changes) == (
            round(twin.spent),
            twin.shed,
            twin.changes,
        )


# --- as users meet it -------------------------------------------------------------------------------------

PREDICATES = {
    "dear": "price > 12.5",
    "cheap": "price BETWEEN 0.5 AND 1.2",
    "some": "price IN (0.29, 3.5, 4.75) OR price = 10.01",
    "odd": "NOT (price < 14) AND price * 2 < 29",
    "all": "price IS NOT NULL",
    "none": "price < 0",
}


def retail(tuples: int = 3_000) -> pa.Table:
    return SyntheticRetail(seed=3, tuples=tuples, rare=20, items=300).table()


def selection(table: pa.Table | None = None, **options: Any) -> Any:
    db = nile.connect().register("sales", retail() if table is None else table, time="ts")
    return db.select("sales", on="price", predicates=PREDICATES).using(**options)


@pytest.mark.parametrize("method", SELECTION_METHODS)
def test_without_a_budget_every_method_equals_duckdb(method: str) -> None:
    sales = retail()
    answer = selection(sales, method=method).run()
    for name, condition in PREDICATES.items():
        expected = duckdb.sql(f"SELECT seq FROM sales WHERE {condition} ORDER BY seq").fetchnumpy()["seq"]
        assert np.sort(answer.ordinals(name)).tolist() == expected.tolist()
        assert answer.exact[name] == len(expected)
    assert answer.shares == {**dict.fromkeys(PREDICATES, 1.0), "none": None}


@pytest.mark.parametrize("method", SELECTION_METHODS)
def test_under_a_budget_it_spends_no_more_and_accounts_for_every_tuple(method: str) -> None:
    answer = selection(method=method, costs="memory").run(0.2 if method in ("predicate-index", "shed-uniform") else 0.3)
    accounting = answer.accounting
    assert accounting.tuples_in == 3_000 == accounting.applied + accounting.shed
    assert 0.8 * answer.budget.asked < answer.budget.spent <= answer.budget.asked + 1e-12
    assert 0.0 < np.mean([share for share in answer.shares.values() if share is not None]) < 1.0


@pytest.mark.parametrize("method", SELECTION_METHODS)
def test_a_budget_that_takes_no_tuple_in_sheds_all(method: str) -> None:
    answer = selection(method=method).run(1e-6)
    assert answer.accounting.shed == 3_000
    assert answer.budget.spent == 0.0


def test_a_selected_tuple_expires_one_nanosecond_after_its_window() -> None:
    """Times 0 2 2 5 9 s, window 3 s, all selected: at 5 s the tuple of 0 s has gone, those of 2 s (2 + 3) have not.

    They go with the next arrival, at 9 s, and so does that of 5 s; that of 9 s is valid at the end.
    """
    table = pa.table({"ts": pa.array([0, 2, 2, 5, 9], pa.timestamp("s")), "v": [1, 1, 1, 1, 1]})
    db = nile.connect().register("s", table, time="ts")
    answer = db.select("s", on="v", predicates={"one": "v = 1"}, window="3 s").using(method="paper", every=1).run()
    gone = answer.expired("one")
    assert gone["ordinal"].to_pylist() == [0, 1, 2, 3]
    assert gone["expired"].cast(pa.int64()).to_pylist() == [s * SECOND + 1 for s in (3, 5, 5, 8)]
    assert gone["arrivals"].to_pylist() == [4, 5, 5, 5]
    assert answer.valid("one").tolist() == [4]
    assert selection().run().expired("all").num_rows == 0


def test_a_tuple_that_waited_longer_than_the_window_is_not_selected() -> None:
    """One dispatch of the paper's, at the end: of times 0 2 2 5 9 s only 9 s is within 3 s of now."""
    table = pa.table({"ts": pa.array([0, 2, 2, 5, 9], pa.timestamp("s")), "v": [1, 1, 1, 1, 1]})
    db = nile.connect().register("s", table, time="ts")
    answer = db.select("s", on="v", predicates={"one": "v = 1"}, window="3 s").using(method="paper").run()
    assert answer.ordinals("one").tolist() == [4]


def test_nulls_nan_and_text_are_values_like_others() -> None:
    table = pa.table(
        {"ts": pa.array(range(6), pa.timestamp("s")), "name": ["b", None, "a", "bb", None, "a"]},
    )
    db = nile.connect().register("s", table, time="ts")
    predicates = {"null": "name IS NULL", "b": "name LIKE 'b%'", "a": "name = 'a'", "not a": "NOT name = 'a'"}
    answer = db.select("s", on="name", predicates=predicates).using(every=2, buckets=2, zone=2).run()
    assert {name: np.sort(answer.ordinals(name)).tolist() for name in predicates} == {
        "null": [1, 4],
        "b": [0, 3],
        "a": [2, 5],
        "not a": [0, 3],
    }
    assert answer.to_arrow("b")["name"].to_pylist() == ["b", "bb"]


def test_an_empty_stream_gives_empty_answers() -> None:
    answer = selection(retail().slice(0, 0)).run(0.5)
    assert [answer.to_arrow(name).num_rows for name in answer.names] == [0] * len(PREDICATES)
    assert answer.expired("all").num_rows == 0
    assert answer.accounting.tuples_in == 0


def test_batches_name_the_query_of_each_output() -> None:
    answer = selection().run(2.0)
    table = pa.Table.from_batches(list(answer.batches()))
    told = table.group_by("query").aggregate([("ordinal", "count")])
    counted = dict(zip(told["query"].to_pylist(), told["ordinal_count"].to_pylist(), strict=True))
    assert counted == {name: len(answer.ordinals(name)) for name in answer.names if len(answer.ordinals(name))}
    assert table.column_names == ["query", "ordinal", "ts", "price", "arrivals"]


@pytest.mark.parametrize(
    ("mistake", "kind", "message"),
    [
        (lambda q: q.using(buckets=0), nile.ConfigError, "selection buckets: needed a whole number"),
        (lambda q: q.using(zone=True), nile.ConfigError, "selection zone: needed a whole number"),
        (lambda q: q.using(method="best"), nile.ConfigError, "selection method: needed one of nile, paper, naive"),
        (lambda q: q.using(output="runs"), nile.ConfigError, "selection output: needed one of pairs, ranges"),
        (lambda q: q.using(structure="T5"), nile.ConfigError, "selection structure: needed one of T1, T2, T3, T4"),
        (lambda q: q.using(threshold=1.0), nile.ConfigError, "selection threshold: needed a confidence in"),
        (lambda q: q.using(waiting=-1), nile.ConfigError, "selection waiting: needed a whole number"),
        (lambda q: q.replayed("slow"), nile.ConfigError, "replay: needed one of none, exponential, data"),
        (lambda q: q.replayed(mean="0 s"), nile.ConfigError, "mean"),
        (lambda q: q.using(speed=2), nile.ConfigError, "selection option: needed one of method"),
        (lambda q: q.using(costs="mine"), nile.ConfigError, "costs: needed one of engine, machine, memory"),
        (lambda q: q.prefer("most"), nile.ConfigError, "selection preference: needed one of desc"),
        (lambda q: q.prefer("desc", by="colour"), nile.UnknownColumn, "prefer, by.*colour"),
        (lambda q: q.preferring_for("total"), nile.ConfigError, "aggregate: needed one of avg, median, sum"),
        (lambda q: q.within("-1 s"), nile.ConfigError, "window"),
    ],
)
def test_a_setting_that_cannot_be_is_named(mistake: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        mistake(selection()).plan(0.5)


@pytest.mark.parametrize("budget", [0, -1.0, float("nan"), float("inf")])
def test_a_budget_of_nothing_is_refused(budget: float) -> None:
    with pytest.raises(nile.BudgetError, match="needed a fraction above 0"):
        selection().run(budget)


@pytest.mark.parametrize(
    ("on", "predicates", "kind", "message"),
    [
        ("price", {}, nile.ConfigError, "needed predicates as"),
        ("price", {"a": 3}, nile.ConfigError, "needed a name and a condition as text"),
        ("price", {"a": "quantitty > 1"}, nile.UnknownColumn, "quantity"),
        ("price", {"a": "prise > 1"}, nile.UnknownColumn, "price"),
        ("price", {"a": "price >"}, nile.ExpressionError, "'a'"),
        ("prise", {"a": "price > 1"}, nile.UnknownColumn, "did you mean 'price'"),
    ],
)
def test_a_predicate_that_cannot_stand_is_named(on: str, predicates: Any, kind: type[Exception], message: str) -> None:
    db = nile.connect().register("sales", retail(100), time="ts")
    with pytest.raises(kind, match=message):
        db.select("sales", on=on, predicates=predicates)


def test_an_unknown_selection_and_an_unknown_stream_are_named() -> None:
    with pytest.raises(nile.UnknownColumn, match="no selection is named 'chep'; did you mean 'cheap'"):
        selection().run().to_arrow("chep")
    with pytest.raises(nile.UnknownStream, match="register it first"):
        nile.connect().select("sales", on="price", predicates={"a": "price > 1"})


@pytest.mark.parametrize(
    ("values", "predicates", "expected"),
    [
        (pa.array([3, None, 1, 2], pa.int16()), {"a": "v > 1", "b": "v IN (1, 3)"}, {"a": [0, 3], "b": [0, 2]}),
        (pa.array(["10", "9", "é", "e"]), {"a": "v < 'f'", "b": "upper(v) = 'E'"}, {"a": [0, 1, 3], "b": [3]}),
        (pa.array([True, False, None, True]), {"a": "v", "b": "NOT v"}, {"a": [0, 3], "b": [1]}),
        (
            pa.array([0, 2, 1, 0], pa.date32()),
            {"a": "v > DATE '1970-01-01'", "b": "v IS NULL"},
            {"a": [1, 2], "b": []},
        ),
        (
            pa.array([0.0, -0.0, float("nan"), float("inf")]),
            {"a": "v = 0", "b": "v = CAST('inf' AS DOUBLE)"},
            {"a": [0, 1], "b": [3]},
        ),
        (pa.array(["x", "y", "x", "z"]).dictionary_encode(), {"a": "v <> 'x'"}, {"a": [1, 3]}),
    ],
)
def test_keys_of_every_kind_can_be_selected(values: pa.Array, predicates: Any, expected: dict[str, list[int]]) -> None:
    table = pa.table({"ts": pa.array(range(4), pa.timestamp("s")), "v": values})
    db = nile.connect().register("s", table, time="ts")
    answer = db.select("s", on="v", predicates=predicates).using(buckets=3, zone=2, every=3, sample=2).run()
    assert {name: np.sort(answer.ordinals(name)).tolist() for name in predicates} == expected


def test_a_range_satisfies_whole_buckets_but_for_those_at_its_ends() -> None:
    """1,000 values evenly, 10 buckets of 100, the range 250 to 649: five buckets are read, 500 tuples scanned."""
    data = encoded([7 * i % 1_000 for i in range(1_000)], [lambda v: 250 <= v < 650])
    found, figures = run(SelectionPlan(method="paper", buckets=10, zone=1_000, every=1_000, sample=1_000), data)
    assert (len(found), figures.regions_read, figures.scanned) == (400, 5, 500)
    whole = {int(data.code[i]) for _, i, _ in found[:300]}
    assert all(300 <= 7 * code % 1_000 < 600 for code in whole)


def test_with_more_work_granted_a_query_finds_more_and_queries_fare_alike() -> None:
    shares = []
    for fraction in (0.4, 0.6, 0.8):
        answer = selection(retail(6_000), method="paper", costs="memory", every=64, zone=1_024, buckets=16).run(
            fraction
        )
        shares.append(np.mean([share for share in answer.shares.values() if share is not None]))
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize("width", [0.01, 0.05])
def test_at_continuous_values_a_predicate_is_put_to_a_sample_of_a_buckets_keys(width: float) -> None:
    """Where every tuple has a value of its own, putting predicates to all values would be what naive does."""
    draw = np.random.default_rng(3)
    prices = draw.lognormal(2, 1, 20_000)
    with nile.connect() as db:
        db.register("s", pa.table({"ts": np.arange(20_000) * 1.0, "price": prices}), time="ts")
        predicates = {}
        for k, middle in enumerate(draw.random(100)):
            low, high = np.quantile(prices, np.clip([middle - width / 2, middle + width / 2], 0, 1)).tolist()
            predicates[f"q{k}"] = f"price >= {low!r} AND price < {high!r}"
        asked = db.select("s", on="price", predicates=predicates)
        found = {how: asked.using(method=how).run(0.3).figures for how in ("paper", "naive")}
    assert found["paper"].outputs > 2 * found["naive"].outputs
    assert found["paper"].evaluated <= 100 * 64 * 24
