"""Accuracy reports of SQL: selections, aggregates and joins of several streams, against plain recounts."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.report.accuracy.report import AccuracyReport

SECOND = 1_000_000_000


def table(n: int, seed: int) -> pa.Table:
    chance = np.random.Generator(np.random.PCG64(seed))
    item = np.minimum(chance.zipf(1.6, n), 12)
    return pa.table(
        {"ts": np.cumsum(chance.integers(0, 4, n)).astype(np.float64), "item": [f"i{k:02d}" for k in item],
         "price": chance.integers(0, 500, n) / 10}
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> list[list[dict[str, Any]]]:
    return [table(3000, 1).to_pylist(), table(150, 2).to_pylist(), table(150, 3).to_pylist()]


@pytest.fixture(scope="module")
def db() -> nile.Database:
    made = nile.connect()
    return (
        made.register("s", table(3000, 1), time="ts")
        .register("x", table(150, 2), time="ts")
        .register("y", table(150, 3), time="ts")
    )


@pytest.fixture(scope="module")
def selection(db: nile.Database) -> AccuracyReport:
    text = "SELECT item, price FROM s WHERE price > 20 AND price < 30 WITH PREFERENCE desc price BUDGET 10 %"
    return db.sql(text, costs="engine").report(budgets=[0.3, 1.0])


def test_a_selection_is_counted_against_the_tuples_that_satisfy_it(
    db: nile.Database, selection: AccuracyReport, rows: list[list[dict[str, Any]]]
) -> None:
    right = [row for row in rows[0] if 20 < row["price"] < 30]
    text = "SELECT item, price FROM s WHERE price > 20 AND price < 30 WITH PREFERENCE desc price"
    assert selection.exact == len(right)
    assert selection.recalls == {f: len(db.sql(text, budget=f)) / len(right) for f in (0.1, 0.3, 1.0)}
    assert selection.recall == selection.recalls[0.1]
    assert {run["method"] for run in selection.runs} == {"nile", "naive"}
    assert {run["false_pairs"] for run in selection.runs} == {0}


def test_its_histograms_are_by_value_and_by_time(selection: AccuracyReport, rows: list[list[dict[str, Any]]]) -> None:
    right = [row for row in rows[0] if 20 < row["price"] < 30]
    values = sorted({row["price"] for row in right})
    by_value, by_time = selection.histograms
    expected = [0] * 100
    for row in right:
        expected[values.index(row["price"]) * 100 // len(values)] += 1
    assert list(by_value.histogram.exact) == expected
    first, last = right[0]["ts"], right[-1]["ts"]
    expected = [0] * 100
    for row in right:
        expected[min(99, math.floor((row["ts"] - first) / (last - first) * 100))] += 1
    assert list(by_time.histogram.exact) == expected
    found = round((selection.recall or 0) * len(right))
    assert math.fsum(by_value.histogram.obtained) == math.fsum(by_time.histogram.obtained) == found


def test_it_has_no_outliers_no_intervals_and_a_page(selection: AccuracyReport) -> None:
    assert selection.outliers is None
    assert selection.coverage == ()
    page = selection.html()
    assert "Share of the exact rows" in page
    assert "nile/share finds" in page
    assert "naive" in page


@pytest.fixture(scope="module")
def sums(db: nile.Database) -> AccuracyReport:
    text = "SELECT item, sum(price) AS total, count(*) AS n FROM s WHERE price > 5 GROUP BY item BUDGET 20 %"
    return db.sql(text, costs="engine").report(budgets=[0.1, 1.0], seeds=4)  # here prices of machines pay for all


def test_aggregates_are_compared_number_by_number(sums: AccuracyReport, rows: list[list[dict[str, Any]]]) -> None:
    kept = [row for row in rows[0] if row["price"] > 5]
    exact = {}
    for item in {row["item"] for row in kept}:
        mine = [row["price"] for row in kept if row["item"] == item]
        exact[item, "sum(s.price)"] = math.fsum(mine)
        exact[item, "count(*)"] = float(len(mine))
    found = sums.groups
    assert found is not None
    assert sums.exact == found.numbers == len(exact)
    for one in found.worst:
        assert one.exact == pytest.approx(exact[one.group, one.name])
    errors = [one.error for one in found.worst if one.error is not None]
    assert errors == sorted(errors, reverse=True)
    assert found.greatest == errors[0]
    whole = [run for run in sums.runs if run["budget"] == 1.0]
    assert [run["error_greatest"] for run in whole] == pytest.approx([0.0] * 4, abs=1e-12)
    assert {run["numbers_missing"] for run in whole} == {0.0}


def test_their_intervals_are_counted_by_budget(sums: AccuracyReport) -> None:
    assert [one.budget for one in sums.coverage] == [0.1, 0.2]  # the whole answer claims nothing that could be wrong
    for one in sums.coverage:
        mine = [i for i in sums.intervals if i.budget == one.budget and i.low != i.high]
        assert one.count == len(mine)
        assert one.held == sum(i.low - 1e-6 <= i.truth <= i.high + 1e-6 for i in mine)
        assert one.share > 0.8
    assert "The worst numbers" in sums.html()


def test_aggregates_of_a_join_are_compared_with_those_of_every_pair(
    db: nile.Database, rows: list[list[dict[str, Any]]]
) -> None:
    text = """SELECT x.item, sum(x.price * y.price) AS v FROM x, y WHERE x.item = y.item GROUP BY x.item
              WITH PREFERENCE weighted x.item WINDOW '40 s' BUDGET 60 %"""
    report = db.sql(text).report(budgets=[0.6], seeds=2)
    exact: dict[str, float] = {}
    for one, two in product(rows[1], rows[2]):
        if one["item"] == two["item"] and abs(one["ts"] - two["ts"]) <= 40:
            exact[one["item"]] = exact.get(one["item"], 0.0) + one["price"] * two["price"]
    assert report.groups is not None
    assert report.exact == report.groups.numbers == len(exact)
    for number in report.groups.worst:
        assert number.exact == pytest.approx(exact[number.group])


@pytest.fixture(scope="module")
def three(db: nile.Database) -> AccuracyReport:
    text = """SELECT x.item, z.ts FROM x, y, x z WHERE x.item = y.item AND y.item = z.item AND x.price + y.price < 60
              WITH PREFERENCE {} x.item WINDOW '20 s'"""
    return db.sql(text.format("weighted")).report(budgets=[0.3, 1.0], seeds=2)


def test_combinations_are_counted_against_every_one(three: AccuracyReport, rows: list[list[dict[str, Any]]]) -> None:
    expected: dict[str, int] = {}
    for one, two in product(rows[1], rows[2]):
        if one["item"] != two["item"] or abs(one["ts"] - two["ts"]) > 20 or one["price"] + two["price"] >= 60:
            continue
        for last in rows[1]:
            near = all(abs(last["ts"] - other["ts"]) <= 20 for other in (one, two))
            if last["item"] == one["item"] and near:
                expected[one["item"]] = expected.get(one["item"], 0) + 1
    assert three.exact == sum(expected.values())
    assert three.recalls[1.0] == 1.0
    (by_key,) = three.histograms
    keys = sorted(expected)
    counts = [0] * 100
    for rank, key in enumerate(keys):
        counts[rank * 100 // len(keys)] += expected[key]
    assert list(by_key.histogram.exact) == counts
    assert {name for name in by_key.bins if name} == set(keys)
    assert all(one.truth == three.exact for one in three.intervals)
    assert "Combinations by key" in three.html()


def test_a_query_without_a_budget_is_looked_at_near_a_tenth(db: nile.Database) -> None:
    text = "SELECT x.item FROM x, y WHERE x.item = y.item WITH PREFERENCE desc x.item WINDOW '20 s'"
    report = db.sql(text).report(budgets=[0.05, 0.3, 0.9], seeds=1)
    assert report.looked_at["budget"] == 0.05
    assert list(report.recalls) == [0.05, 0.3, 0.9]
    assert "WITH PREFERENCE desc" in report.query


def test_an_exact_query_has_nothing_to_report(db: nile.Database) -> None:
    for text, got in (
        ("SELECT item FROM s", "got an exact query"),
        ("CREATE SUMMARY c ON s (item) WITH GRANULARITY 60 AND COLLAPSE (2, 2)", "got a statement without rows"),
    ):
        with pytest.raises(nile.ConfigError, match=f"^report: needed a query WITH PREFERENCE.*{got}") as raised:
            db.sql(text).report()
        assert "\n" not in str(raised.value)


def test_the_local_pairs_and_opponents_of_a_kind_are_all_it_has(db: nile.Database) -> None:
    result = db.sql("SELECT item, count(*) AS n FROM s GROUP BY item BUDGET 10 %")
    with pytest.raises(nile.ConfigError, match="report against: needed one of exact; got 'hash-drop'"):
        result.report(against="hash-drop")
    with pytest.raises(nile.ConfigError, match="report engine: needed one of local; got 'spark'"):
        result.report(engine="spark")
