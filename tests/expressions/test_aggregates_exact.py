"""Aggregates at full budget against DuckDB, on random data with nulls, NaN, infinities and empty groups."""

from __future__ import annotations

import math
import warnings
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import nile

FLOAT_TOLERANCE = 1e-12  # of the sum of absolute values: DuckDB adds doubles one by one
ASKED = {
    "rows": "count(*)",
    "n": "count(x)",
    "total": "sum(x)",
    "whole": "sum(k)",
    "mean": "avg(x)",
    "mean_k": "avg(k)",
    "least": "min(x)",
    "most": "max(x)",
    "least_k": "min(k)",
    "most_k": "max(k)",
    "var_k": "var_samp(k)",
    "pop_k": "var_pop(k)",
    "dev_k": "stddev_samp(k)",
    "revenue": "sum(x * k)",
    "middle": "median(k)",
    "ninth": "quantile_cont(k, 0.9)",
    "disc": "quantile_disc(k, 0.3)",
    "different": "count(distinct g)",
    "kinds": "count(distinct x)",
}

CONNECTION = duckdb.connect()

rows = st.tuples(
    st.none() | st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1e15, math.nan, math.inf, -math.inf]),
    st.none() | st.integers(-(2**40), 2**40) | st.integers(-3, 3),
    st.none() | st.sampled_from(["a", "b", "ü", ""]),
)
tables = st.lists(rows, max_size=60)


def table_of(data: list[tuple[Any, Any, Any]]) -> pa.Table:
    return pa.table(
        {
            "t": pa.array([i // 3 for i in range(len(data))], pa.int64()),
            "x": pa.array([row[0] for row in data], pa.float64()),
            "k": pa.array([row[1] for row in data], pa.int64()),
            "g": pa.array([row[2] for row in data], pa.string()),
        }
    )


def judged(table: pa.Table, where: str, by: str | None = None) -> list[dict[str, Any]]:
    connection = CONNECTION
    connection.register("judge_input", table)
    chosen = ", ".join(f"{text} AS {name}" for name, text in ASKED.items())
    group, order = (f"{by}, ", f" GROUP BY {by}") if by else ("", "")
    made = connection.execute(f"SELECT {group}{chosen} FROM judge_input WHERE {where}{order}")
    names = [column[0] for column in made.description]
    return [dict(zip(names, row, strict=True)) for row in made.fetchall()]


def same(mine: Any, theirs: Any, scale: float) -> bool:
    if mine is None or theirs is None:
        return mine is None and theirs is None
    if isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(mine)
    if isinstance(theirs, float) and math.isinf(theirs):
        return float(mine) == theirs
    return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=FLOAT_TOLERANCE * scale)


def assert_equal_to_duckdb(answer: nile.AggregateAnswer, table: pa.Table, where: str, by: str | None = None) -> None:
    mine = answer.to_arrow().to_pylist()
    theirs = judged(table, where, by)
    if by is not None:
        key = lambda row: (row[by] is None, str(row[by]))  # noqa: E731
        mine, theirs = sorted(mine, key=key), sorted(theirs, key=key)
        assert [row[by] for row in mine] == [row[by] for row in theirs]
    x = np.nan_to_num(np.abs(table["x"].to_numpy(zero_copy_only=False).astype(float)), posinf=0.0)
    k = np.nan_to_num(np.abs(table["k"].to_numpy(zero_copy_only=False).astype(float)))
    scale = 1.0 + float(x.sum()) + float((x * k).sum())
    for got, wanted in zip(mine, theirs, strict=True):
        for name in ASKED:
            assert same(got[name], wanted[name], scale), (name, got[name], wanted[name])
            assert got[f"{name}_certified"]
    assert answer.is_exact


@settings(max_examples=40)
@given(data=tables, method=st.sampled_from(["auto", "naive"]))
def test_at_full_budget_every_aggregate_is_duckdbs(data: list[tuple[Any, Any, Any]], method: str) -> None:
    table = table_of(data)
    db = nile.connect().register("s", table, time="t")
    query = db.aggregate("s", ASKED, where="k > 0 OR x < 5").using(method=method)
    assert_equal_to_duckdb(query.run(), table, "k > 0 OR x < 5")


@settings(max_examples=25)
@given(data=tables)
def test_groups_are_duckdbs_and_null_is_one(data: list[tuple[Any, Any, Any]]) -> None:
    table = table_of(data)
    db = nile.connect().register("s", table, time="t")
    assert_equal_to_duckdb(db.aggregate("s", ASKED, by="g", where="k < 100").run(1.0), table, "k < 100", "g")


MOMENTS = {name: text for name, text in ASKED.items() if name not in ("middle", "ninth", "disc", "different", "kinds")}


@settings(max_examples=25)
@given(data=tables, borders=st.sampled_from(["predicates", "learned"]), cost=st.sampled_from(["engine", "memory"]))
def test_a_grid_with_all_its_edges_read_is_exact_too(data: list[tuple[Any, Any, Any]], borders: str, cost: str) -> None:
    table = table_of(data)
    db = nile.connect().register("s", table, time="t")
    query = db.aggregate("s", MOMENTS, predicates={"a": "k BETWEEN -2 AND 2 AND t < 9", "b": "k IS NULL"}, by="g")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nile.CostWarning)  # of so few tuples the grid costs more than they do
        answer = query.using(method="grid", borders=borders, costs=cost, zone=7, buckets=4).run(1000.0)
    assert answer.is_exact
    for name, where in (("a", "k BETWEEN -2 AND 2 AND t < 9"), ("b", "k IS NULL")):
        theirs = {row["g"]: row for row in judged(table, where, "g")}
        assert {group for (group,) in answer.groups(name)} == set(theirs)
        for group, row in theirs.items():
            for aggregate in MOMENTS:
                got = answer.value(aggregate, query=name, group=group)
                assert same(got, row[aggregate], 1e7), (aggregate, got, row[aggregate])
