"""Aggregates over standing selections (section 4.3): against brute force and DuckDB, and what preference buys."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.selection.plan import SELECTION_METHODS
from nile.streams.synthetic import SyntheticRetail

PREDICATES = {"low": "price < 3", "middle": "price BETWEEN 4 AND 9", "high": "price >= 10", "none": "price < 0"}


def sales(tuples: int = 4_000, seed: int = 1) -> pa.Table:
    return SyntheticRetail(seed=seed, tuples=tuples, items=400, rare=10).table()


def query(table: pa.Table, **options: Any) -> Any:
    db = nile.connect().register("sales", table, time="ts")
    return db.select("sales", on="price", predicates=PREDICATES).using(**options)


@pytest.mark.parametrize("function", ["avg", "median", "sum"])
@pytest.mark.parametrize("method", SELECTION_METHODS)
def test_without_a_budget_aggregates_equal_duckdb(function: str, method: str) -> None:
    table_of = sales()
    answer = query(table_of, method=method).preferring_for(function).run()
    found = answer.aggregate(function)
    assert found == answer.exact_aggregate(function)
    for name, condition in PREDICATES.items():
        (expected,) = duckdb.sql(f"SELECT {function}(price) FROM table_of WHERE {condition}").fetchall()[0]
        assert found[name] == (None if expected is None else pytest.approx(expected, rel=1e-12))


def test_value_times_frequency_goes_for_the_sum_and_share_does_not() -> None:
    """One predicate that all satisfy: values 1 (90 tuples) and 100 (10 tuples), a cell each, a budget for some.

    By value x frequency the cell of 100s (1,000) comes before that of 1s (90); by share they are alike, and the
    lower bucket comes first.
    """
    values = ([1.0] * 9 + [100.0]) * 10
    table = pa.table({"ts": pa.array(range(100), pa.timestamp("s")), "v": values})
    db = nile.connect().register("s", table, time="ts")
    standing = db.select("s", on="v", predicates={"all": "v > 0"}).using(
        method="paper", buckets=10, zone=100, every=100, sample=20, costs="memory"
    )
    by_value = standing.preferring_for("sum").run(1.2).aggregate("sum")["all"]
    by_share = standing.prefer("desc").run(1.2).aggregate("sum")["all"]
    assert by_value is not None
    assert by_share is not None
    assert 1_000 <= by_value <= 1_090
    assert by_share < by_value


def test_weighted_scans_the_same_share_of_every_cell() -> None:
    """Half 1s and half 100s: the average of what is found stays within a tuple of each cell of 50.5."""
    table = pa.table({"ts": pa.array(range(1_000), pa.timestamp("s")), "v": [1.0, 100.0] * 500})
    db = nile.connect().register("s", table, time="ts")
    standing = db.select("s", on="v", predicates={"all": "v > 0"}).using(
        method="paper", buckets=2, zone=100, every=1_000, sample=20, costs="memory"
    )
    answer = standing.preferring_for("avg").run(1.2)
    found = answer.ordinals("all").shape[0]
    assert 100 < found < 1_000
    values = answer.to_arrow("all")["v"].to_numpy()
    assert abs(int((values == 1.0).sum()) - int((values == 100.0).sum())) <= 51  # at most the last cell in progress
    assert answer.aggregate("avg")["all"] == pytest.approx(50.5, abs=50 * 51 / found)


def test_an_aggregate_with_a_window_is_over_what_is_valid_at_the_end() -> None:
    table = pa.table({"ts": pa.array([0, 1, 8, 9], pa.timestamp("s")), "v": [1, 2, 3, 4]})
    db = nile.connect().register("s", table, time="ts")
    answer = db.select("s", on="v", predicates={"all": "v > 0", "two": "v <= 2"}, window="2 s").using(every=1).run()
    assert answer.aggregate("sum") == {"all": 7.0, "two": None} == answer.exact_aggregate("sum")
    assert answer.shares == {"all": 1.0, "two": 1.0}


def test_nulls_and_nan_do_not_count() -> None:
    table = pa.table(
        {"ts": pa.array(range(4), pa.timestamp("s")), "v": pa.array([None, 2.0, float("nan"), 4.0], pa.float64())}
    )
    db = nile.connect().register("s", table, time="ts")
    answer = db.select("s", on="v", predicates={"all": "v IS NULL OR v IS NOT NULL", "null": "v IS NULL"}).run()
    assert answer.exact == {"all": 4, "null": 1}
    assert answer.aggregate("avg") == {"all": 3.0, "null": None}


def test_under_a_budget_an_average_is_that_of_the_tuples_found() -> None:
    answer = query(sales(), costs="memory").preferring_for("avg").run(0.5)
    for name, value in answer.aggregate("avg").items():
        values = answer.to_arrow(name)["price"].to_numpy()
        assert value is None if values.size == 0 else value == pytest.approx(float(np.mean(values)), rel=1e-12)


def test_an_aggregate_of_text_and_an_unknown_aggregate_are_refused() -> None:
    db = nile.connect().register("sales", sales(50), time="ts")
    answer = db.select("sales", on="item_id", predicates={"a": "item_id LIKE 'S%'"}).run()
    with pytest.raises(nile.KeyTypeError, match=r"sum\(item_id\): needed a column of numbers"):
        answer.aggregate("sum")
    with pytest.raises(nile.ConfigError, match="aggregate: needed one of avg, median, sum; got 'max'"):
        answer.aggregate("max")
