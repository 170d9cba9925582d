"""Aggregates under a budget: what is claimed holds, what cannot be claimed is not, bad input is named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers.aggregate_answer import AggregateAnswer
from nile.base.raw import RawBatch
from nile.streams.synthetic import SyntheticRetail

RETAIL = pa.Table.from_batches(list(SyntheticRetail(seed=4, tuples=20_000).batches()))
REVENUE = (RETAIL["price"].to_numpy() * RETAIL["quantity"].to_numpy()).astype(float)
ASKED = {"revenue": "sum(price * quantity)", "mean": "avg(price)", "n": "count(*)", "most": "max(price)"}
ROUNDING = 1e-12
STANDARD_ERRORS = 3.5


def database() -> nile.Database:
    return nile.connect().register("s", RETAIL, time="ts")


def ranges(count: int) -> dict[str, str]:
    """Item ranges of about a tenth of the tuples each."""
    items = np.sort(RETAIL["item_id"].to_numpy(zero_copy_only=False))
    predicates = {}
    for i in range(count):
        begin = i * 17_000 // count
        predicates[f"q{i}"] = f"item_id BETWEEN '{items[begin]}' AND '{items[begin + 2_000]}'"
    return predicates


def truth(condition: str, what: np.ndarray = REVENUE) -> float:
    low, high = condition.split("'")[1::2]
    items = RETAIL["item_id"].to_numpy(zero_copy_only=False)
    return math.fsum(what[(items >= low) & (items <= high)])


@pytest.mark.parametrize("method", ["auto", "sample", "grid"])
@pytest.mark.parametrize("costs", ["engine", "memory"])
def test_no_more_is_spent_than_was_granted_and_intervals_hold(method: str, costs: str) -> None:
    predicates = ranges(60)
    query = database().aggregate("s", ASKED, predicates=predicates).using(method=method, borders="learned", costs=costs)
    answer = query.run(0.3)
    assert answer.budget.spent <= 0.3 + ROUNDING
    assert answer.budget.asked == 0.3
    covered = certified = 0
    for name, condition in predicates.items():
        estimate = answer.estimate("revenue", query=name)
        if estimate.certified:
            certified += 1
            covered += bool(estimate.covers(truth(condition)))
        least = answer.estimate("most", query=name)
        assert least.low <= truth_max(condition) <= least.high
    assert covered >= 0.85 * certified


def truth_max(condition: str) -> float:
    low, high = condition.split("'")[1::2]
    items = RETAIL["item_id"].to_numpy(zero_copy_only=False)
    return float(RETAIL["price"].to_numpy()[(items >= low) & (items <= high)].max())


def test_standing_queries_are_exact_where_a_grid_cut_at_them_costs_less_than_the_budget() -> None:
    predicates = ranges(60)
    answer = database().aggregate("s", ASKED, predicates=predicates).run(0.3)
    assert answer.is_exact
    assert answer.figures.borders == "predicates"
    for name, condition in predicates.items():
        assert answer.value("revenue", query=name) == pytest.approx(truth(condition), rel=ROUNDING)


def test_distinct_and_frequent_values_of_standing_queries_are_merged_from_sketches_of_cells() -> None:
    predicates = ranges(60)
    asked = {"days": "count(distinct transaction_id)", "n": "count(*)", "top": "top_k(country, 2)"}
    query = database().aggregate("s", asked, predicates=predicates)
    exact, told = query.run(), query.run(0.5)
    assert told.figures.borders == "predicates"
    assert told.budget.spent <= 0.5
    assert not told.is_exact
    covered = 0
    for q in predicates:
        estimate = told.estimate("days", query=q)
        covered += bool(estimate.covers(exact.value("days", query=q)))
        assert estimate.certified
        assert told.value("n", query=q) == exact.value("n", query=q)
        for mine, theirs in zip(told.value("top", query=q), exact.value("top", query=q), strict=True):
            assert mine["low"] <= theirs["count"] <= mine["high"]
    assert covered >= 0.85 * 60


def test_counts_of_single_keys_come_from_a_count_sketch_where_nothing_exact_is_affordable() -> None:
    items = np.unique(RETAIL["item_id"].to_numpy(zero_copy_only=False))[:300:3]
    predicates = {f"q{i}": f"item_id = '{item}'" for i, item in enumerate(items)}
    query = database().aggregate("s", {"n": "count(*)"}, predicates=predicates)
    told, exact = query.run(0.055), query.run()
    assert told.figures.method == "countsketch"
    assert told.budget.spent <= 0.055
    covered = sum(bool(told.estimate("n", query=q).covers(exact.value("n", query=q))) for q in predicates)
    assert covered >= 0.95 * len(predicates)
    assert not told.estimate("n", query="q0").certified
    with pytest.raises(nile.ConfigError, match="single keys"):
        database().aggregate("s", {"n": "count(*)"}, where="price > 1").using(method="countsketch").run(0.5)


@pytest.mark.parametrize(
    ("options", "budget"),
    [({"method": "sample"}, 0.2), ({"method": "grid", "borders": "learned", "zone": 512, "buckets": 40}, 0.75)],
)
def test_sampled_sums_and_counts_are_unbiased(options: dict[str, Any], budget: float) -> None:
    query = database().aggregate("s", {"v": "sum(price * quantity)", "n": "count(*)"}, predicates=ranges(12))
    asked, accounting = query.load()
    exact = AggregateAnswer(asked, query.plan(), accounting, standing=True)
    told: dict[tuple[str, str], list[float]] = {}
    for seed in range(100):
        answer = AggregateAnswer(asked, query.using(seed=seed, **options).plan(budget), accounting, standing=True)
        assert options["method"] == "sample" or 0.1 < answer.figures.kept < 0.9
        for name in ("v", "n"):
            for q in ("q0", "q5", "q11"):
                told.setdefault((name, q), []).append(float(answer.value(name, query=q)))
    for (name, q), values in told.items():
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        wanted = exact.value(name, query=q)
        assert abs(np.mean(values) - wanted) <= STANDARD_ERRORS * error + 1e-9 * abs(wanted), (name, q)


def test_the_same_seed_gives_the_same_answer_however_the_stream_is_cut() -> None:
    query = {"v": "sum(price * quantity)", "m": "median(price)", "t": "top_k(item_id, 3)"}
    whole = database().aggregate("s", query, where="quantity > 1").run(0.2).to_arrow()
    for rows in (333, 4096):
        cut = nile.connect().register("s", RETAIL.to_batches(max_chunksize=rows), time="ts")
        assert cut.aggregate("s", query, where="quantity > 1").run(0.2).to_arrow().equals(whole)
    other = database().aggregate("s", query, where="quantity > 1").using(seed=1).run(0.2).to_arrow()
    assert not other.equals(whole)


def test_a_maximum_that_a_sample_cannot_know_is_a_lower_bound() -> None:
    values = np.zeros(20_000)
    values[7] = -5.0
    values[12_345] = 900.0
    db = nile.connect().register("r", pa.table({"t": np.arange(20_000), "x": values * 1.0, "y": values * -1}), time="t")
    answer = db.aggregate("r", {"most": "max(x * 1)", "both": "max(x + y)"}).using(method="sample").run(0.05)
    assert answer["most"].low <= 900.0 <= answer["most"].high
    assert answer["most"].certified
    assert not answer.is_exact


def test_an_interval_with_nothing_known_of_the_rest_is_not_certified() -> None:
    chance = np.random.Generator(np.random.PCG64(3))
    values = chance.random(20_000)
    values[11] = 1e9
    db = nile.connect().register("r", pa.table({"t": np.arange(20_000), "x": values}), time="t")
    assert not db.aggregate("r", {"v": "sum(x)"}).run(0.1)["v"].certified
    values[11] = 1.0
    db = nile.connect().register("r", pa.table({"t": np.arange(20_000), "x": values}), time="t")
    assert db.aggregate("r", {"v": "sum(x)"}).run(0.1)["v"].certified


def test_large_values_are_taken_apart_when_many_queries_share_the_cost_of_finding_them() -> None:
    chance = np.random.Generator(np.random.PCG64(3))
    values = chance.random(20_000)
    values[[5_011, 9_000, 17_017]] = 1e6
    db = nile.connect().register("r", pa.table({"t": np.arange(20_000), "x": values}), time="t")
    predicates = {f"q{i}": f"x >= {i / 100}" for i in range(50)}
    answer = db.aggregate("r", {"v": "sum(x)"}, predicates=predicates).using(method="sample").run(0.1)
    for i in range(50):
        exact = math.fsum(values[values >= i / 100])
        assert answer.value("v", query=f"q{i}") == pytest.approx(exact, rel=0.01)


def test_groups_no_tuple_was_read_of_are_told_of() -> None:
    group = np.zeros(20_000, np.int64)
    group[77] = 1
    db = nile.connect().register("r", pa.table({"t": np.arange(20_000), "g": group, "x": group * 1.0}), time="t")
    answer = db.aggregate("r", {"n": "count(*)"}, by="g").run(0.05)
    assert answer.groups() == [(0,)]
    assert any("groups of which no tuple was read" in note for note in answer.notes)
    assert db.aggregate("r", {"n": "count(*)"}, by="g").run().groups() == [(0,), (1,)]


def test_a_window_holds_the_latest_tuples_and_says_what_it_lacks() -> None:
    db = nile.connect().register("r", pa.table({"t": [0, 10, 20, 30], "x": [1.0, 2.0, 4.0, 8.0]}), time="t")
    query = db.aggregate("r", {"v": "sum(x)"})
    assert query.within(10).run().value("v") == 12.0
    longer = query.within(60).run()
    assert (longer.value("v"), longer.coverage) == (15.0, 0.5)
    assert any("50.0% of the window" in note for note in longer.notes)
    assert query.between(10, 20).run().value("v") == 6.0
    assert query.between(10, 20).within(5).run().value("v") == 4.0
    assert query.between(None, "1970-01-01 00:00:10").run().value("v") == 3.0


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("x < 1 AND x > 2", "'x' contradict"),
        ("x BETWEEN 2 AND 1", "'x' contradict"),
        ("name = 'a' AND name = 'b'", "'name' contradict"),
        ("x IN (1, 2) AND x IN (3)", "'x' contradict"),
        ("x = 77", "no value of 'x'"),
        ("t > 1000", "holds no tuple"),
    ],
)
def test_conditions_that_nothing_satisfies_are_answered_as_empty_and_said_so(where: str, why: str) -> None:
    db = nile.connect().register("r", pa.table({"t": [0, 1], "x": [1.0, 2.0], "name": ["a", "b"]}), time="t")
    for budget in (None, 0.5):
        answer = db.aggregate("r", {"n": "count(*)", "v": "sum(x)"}, where=where).run(budget)
        assert (answer.value("n"), answer.value("v")) == (0, None)
        assert any(why in note for note in answer.notes), answer.notes


def test_an_empty_time_range_and_an_empty_stream_are_answered() -> None:
    db = nile.connect().register("r", pa.table({"t": [0, 1], "x": [1.0, 2.0]}), time="t")
    assert db.aggregate("r", {"n": "count(*)"}, between=(5, 3)).run(0.5).value("n") == 0
    empty = pa.table({"t": pa.array([], pa.int64()), "x": pa.array([], pa.float64())})
    db.register("none", empty, time="t")
    answer = db.aggregate("none", {"n": "count(*)", "v": "avg(x)", "m": "median(x)"}, where="x > 1").run(0.5)
    assert (answer.value("n"), answer.value("v"), answer.value("m")) == (0, None, None)
    assert db.aggregate("none", {"n": "count(*)"}, by="x").run().to_arrow().num_rows == 0


def test_an_error_target_spends_less_the_more_error_it_allows() -> None:
    query = database().aggregate("s", {"mean": "avg(price)"}, where="quantity > 2")
    spent = []
    for error in (0.2, 0.05, 0.02):
        answer = query.run(error=error)
        assert answer["mean"].relative_error <= error
        assert answer["mean"].certified
        assert answer.met == [True]
        spent.append(answer.budget.spent)
    assert spent[0] < spent[1] < spent[2] <= 1.0 + ROUNDING


def test_an_error_that_a_budget_cannot_buy_is_flagged_refused_or_answered_exactly() -> None:
    query = database().aggregate("s", {"mean": "avg(price)"}, where="quantity > 2")
    flagged = query.run(0.01, error=0.001)
    assert flagged.met == [False]
    assert any("needed an error of at most 0.001" in note for note in flagged.notes)
    with pytest.raises(nile.ErrorTargetMissed, match=r"exact: .* allow more budget"):
        query.run(0.01, error=0.001, otherwise="refuse")
    with pytest.warns(nile.CostWarning, match="plain exact one costs"):
        exact = query.run(0.01, error=0.001, otherwise="exact")
    assert exact.is_exact


def test_an_approximation_that_costs_more_than_the_exact_way_warns_with_both_costs() -> None:
    query = database().aggregate("s", {"n": "sum(price)"}, where="item_id < 'S00100'").using(method="grid")
    with pytest.warns(nile.CostWarning, match=r"cost [\d,]+ units of the engine table, the plain exact one costs"):
        answer = query.run()
    assert answer.warnings
    cheaper = query.run(0.5)  # no grid is that cheap
    assert cheaper.figures.method == "sample"
    assert any("a grid would cost" in note for note in cheaper.notes)


@pytest.mark.parametrize(
    ("aggregates", "error", "message"),
    [
        ({"v": "sum(prize)"}, LookupError, "did you mean 'price'"),
        ({"v": "sum(item_id)"}, TypeError, "needs a number"),
        ({"v": "avg(country)"}, TypeError, "CAST"),
        ({"v": "suum(price)"}, ValueError, r"did you mean sum\(\)"),
        ({"v": "price"}, ValueError, "call a function"),
        ({"v": "sum(price, 2)"}, ValueError, "argument"),
        ({"v": "quantile_cont(price, 1.5)"}, ValueError, "share from 0 to 1"),
        ({"v": "top_k(price, 0)"}, ValueError, "whole number"),
        ({"v": "sum(distinct price)"}, ValueError, "DISTINCT goes with count"),
        ({}, ValueError, "needed aggregates"),
        ({"v": 3}, ValueError, "as text"),
        ("sum(price)", ValueError, "needed aggregates"),
    ],
)
def test_aggregates_that_make_no_sense_are_named(aggregates: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        database().aggregate("s", aggregates)
    assert isinstance(caught.value, nile.NileError)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"where": "prize > 1"}, LookupError, "price"),
        ({"where": "price > 'a'"}, ValueError, "number"),
        ({"where": 3}, ValueError, "as text"),
        ({"predicates": {}}, ValueError, "needed predicates"),
        ({"predicates": {"a": "nope = 1"}}, LookupError, "'a'"),
        ({"by": "contry"}, LookupError, "country"),
        ({"by": "v"}, LookupError, "no column 'v'"),
        ({"between": ("yesterday", None)}, ValueError, "moment"),
        ({"between": (math.nan, None)}, ValueError, "moment"),
        ({"between": 3}, ValueError, "begin, end"),
        ({"window": -1}, ValueError, "duration"),
    ],
)
def test_bad_conditions_groups_and_ranges_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        database().aggregate("s", {"v": "sum(price)"}, **arguments)
    assert isinstance(caught.value, nile.NileError)


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, True])
def test_a_budget_that_is_none_is_refused(budget: Any) -> None:
    with pytest.raises(nile.BudgetError):
        database().aggregate("s", {"v": "sum(price)"}).run(budget)


def test_options_and_lookups_name_what_is_wrong() -> None:
    query = database().aggregate("s", {"v": "sum(price)"}, predicates={"cheap": "price < 3", "dear": "price > 9"})
    with pytest.raises(nile.ConfigError, match="aggregate option"):
        query.using(bucket=3)
    with pytest.raises(nile.ConfigError, match="aggregate method"):
        query.using(method="magic").run()
    answer = query.run()
    with pytest.raises(nile.ConfigError, match="needed query="):
        answer.value("v")
    with pytest.raises(nile.UnknownColumn, match="did you mean 'cheap'"):
        answer.value("v", query="cheep")
    with pytest.raises(nile.UnknownColumn, match="no aggregate is named 'w'"):
        answer.value("w", query="cheap")
    with pytest.raises(nile.UnknownStream):
        database().aggregate("t", {"v": "sum(price)"})


class Orders:
    """A source one of whose cells is no number."""

    name = "orders"
    schema = pa.schema([("t", pa.int64()), ("x", pa.int64()), ("g", pa.int64())])

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        for begin in range(0, 6_000, rows):
            number = np.arange(begin, min(begin + rows, 6_000))
            whole = {"t": pa.array(number // 2), "x": pa.array(number % 7), "g": pa.array(number % 3)}
            batch = pa.RecordBatch.from_pydict({name: whole[name] for name in columns})
            misfits = {"x": number == 1_000} if "x" in columns else {}
            yield RawBatch(batch, number + 1, misfits=misfits)


def test_accounting_counts_rejected_rows_and_tuples_never_looked_at() -> None:
    db = nile.connect().register("r", Orders(), time="t")
    answer = db.aggregate("r", {"n": "count(*)", "v": "sum(x)"}, where="g = 1").using(method="sample").run(0.2)
    told = answer.accounting
    assert (told.tuples_in, told.rejected) == (6_000, 1)
    assert told.reasons == {"cell of 'x' is no whole number": 1}
    assert told.shed > 3_000
    assert db.aggregate("r", {"v": "sum(x)", "n": "count(*)"}).run().value("n") == 5_999
    assert db.aggregate("r", {"n": "count(*)"}).run().value("n") == 6_000  # nobody asked for x


def test_the_answer_goes_to_arrow_with_an_interval_beside_each_number() -> None:
    answer = database().aggregate("s", {"n": "count(*)", "top": "top_k(item_id, 2)"}, by="vstore").run()
    table = answer.to_arrow()
    assert table.column_names == ["vstore", "n", "n_low", "n_high", "n_certified", "top"]
    assert table["n"].type == pa.int64()
    assert answer.to_polars()["n"].sum() == 20_000
    assert "1 queries" in repr(answer)
