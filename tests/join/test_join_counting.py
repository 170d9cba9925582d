"""Aggregates of joins without their pairs: as DuckDB says, as over the pairs themselves, and in no more memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.answers import join_aggregate
from nile.execution.exact import relational
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.partners import runs_of
from nile.sql.plan import AggregateItem, Field

ASKED = (
    "count(*)", "count(a.x)", "sum(a.i)", "sum(b.i)", "avg(a.i)", "min(a.i)", "max(b.i)", "min(a.g)", "median(b.i)",
    "quantile_cont(a.i, 0.3)", "quantile_disc(b.i, 0.7)", "count(distinct a.g)", "stddev_samp(a.i)", "var_pop(b.i)",
    "sum(a.x)", "avg(b.x)",
)  # fmt: skip
JOINS = (
    "a, b WHERE a.k = b.k",
    "a, b WHERE a.k = b.k AND a.g = b.g",
    "a, b",
    "a, r AS b WHERE a.k = b.k",
    "a, b, c WHERE a.k = b.k AND b.k = c.k",
    "a, b WHERE a.k = b.k AND a.i < b.i",
    "(SELECT k, i * 2 AS i, g, x FROM a) AS a, b WHERE a.k = b.k",
)
TOLERANCE = 1e-9  # DuckDB adds doubles one by one


def table(rng: Any, rows: int, kind: Any) -> pa.Table:
    keys = pa.array(rng.integers(0, 5, rows), mask=rng.random(rows) < 0.1).cast(kind)
    return pa.table(
        {
            "ts": np.sort(rng.integers(0, 40, rows)).astype(float),
            "k": keys,
            "x": pa.array(rng.choice([0.1, 0.0, 1e15, 1e-300, 3.3], rows), mask=rng.random(rows) < 0.2),
            "i": pa.array(rng.integers(-9, 9, rows), mask=rng.random(rows) < 0.1),
            "g": pa.array(rng.choice(list("abc"), rows)),
        }
    )


def same(got: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> bool:
    """Whether rows without an order are alike, doubles but for the last digits."""

    def place(row: tuple[Any, ...]) -> str:
        return str([f"{value + 0.0:.4g}" if isinstance(value, float) else value for value in row])

    def close(one: Any, other: Any) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return bool(one == other)

    pairs = zip(sorted(got, key=place), sorted(wanted, key=place), strict=True)
    return all(close(*cells) for row, other in pairs for cells in zip(row, other, strict=True))


def opened(seed: int) -> tuple[nile.Database, Any]:
    rng = np.random.default_rng(seed)
    kind = (pa.int64(), pa.float64(), pa.string())[seed % 3]
    db, con = nile.connect(), fresh_duckdb()
    for name, rows in (("a", 30), ("b", 25), ("c", 10), ("r", 20)):
        made = table(rng, rows, kind)
        db.register(name, made, time=None if name == "r" else "ts")
        con.register(name, made)
    return db, con


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by", ["", "a.k", "a.g", "b.g", "a.g, a.k"])
def test_counted_groups_are_those_of_duckdb(seed: int, by: str) -> None:
    db, con = opened(seed)
    for join in JOINS:
        for asked in (ASKED, ASKED[:3]):
            keys, grouping = (f"{by},", f"GROUP BY {by}") if by else ("", "")
            text = f"SELECT {keys} {', '.join(asked)} FROM {join} {grouping}"
            assert same(db.sql(text).fetchall(), con.sql(text).fetchall()), text


@pytest.mark.parametrize("join", [JOINS[0], JOINS[2], JOINS[3], JOINS[4]])
@pytest.mark.parametrize("window", [1, 12])
def test_under_a_window_they_are_those_of_the_pairs_that_hold(join: str, window: int) -> None:
    db, con = opened(1)
    columns = "a.k AS ak, a.i AS ai, b.i AS bi, b.g AS bg"
    pairs = db.sql(f"SELECT {columns} FROM {join} WINDOW {window}", emit="snapshot").to_arrow()
    con.register("pairs", pairs)
    for by, own in (("", ""), ("a.k", "ak"), ("b.g", "bg")):
        got = db.sql(
            f"SELECT {by + ',' if by else ''} count(*), sum(a.i), min(b.i) FROM {join} "
            f"{'GROUP BY ' + by if by else ''} WINDOW {window}",
            emit="snapshot",
        ).fetchall()
        keys = own + "," if own else ""
        grouping = f"GROUP BY {own}" if own else ""
        wanted = con.sql(f"SELECT {keys} count(*), sum(ai), min(bi) FROM pairs {grouping}").fetchall()
        assert same(got, wanted)


@pytest.mark.parametrize("by", [None, "a.k", "b.g", ["a.g", "a.k"]])
@pytest.mark.parametrize("window", [None, 1, 4])
def test_a_python_joins_aggregates_are_those_over_its_pairs(
    by: Any, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _ = opened(3)
    side = "b" if by == "b.g" else "a"
    asked = {
        "n": "count(*)", "c": f"count({side}.x)", "s": f"sum({side}.i)", "m": f"avg({side}.x)",
        "least": f"min({side}.i)", "most": f"max({side}.x)", "middle": f"median({side}.i)",
        "low": f"quantile({side}.i, 0.3)",
        "kinds": f"count(distinct {side}.g)", "spread": f"stddev({side}.i)", "ones": "sum(1)",
    }  # fmt: skip
    if by is None:
        asked |= {"other": "sum(b.i)", "its": "min(b.x)"}
    query = db.join("a", "b", on="k")
    query = query if window is None else query.within(window)
    counted = query.aggregate(asked, by=by).run().to_arrow()
    monkeypatch.setattr(join_aggregate, "counted_numbers", lambda *_: None)
    over_pairs = query.aggregate(asked, by=by).run().to_arrow()
    assert counted.schema == over_pairs.schema
    rows = [[tuple(row.values()) for row in each.to_pylist()] for each in (counted, over_pairs)]
    assert same(*rows)


def test_rows_that_stand_for_many_are_summed_as_if_written_out() -> None:
    rng = np.random.default_rng(5)
    for scale in (1.0, 1e300, 1e-310, 1e17):
        values = rng.normal(0, scale, 200)
        often = rng.integers(0, 50, 200)
        codes = rng.integers(0, 3, 200)
        for function in ("sum", "avg", "var_samp", "stddev_pop", "median", "min", "max"):
            item = AggregateItem(Field("x", pa.float64()), function, None)
            given = aggregated(item, pa.array(values), codes, 3, often)
            written = aggregated(item, pa.array(np.repeat(values, often)), np.repeat(codes, often), 3)
            assert [repr(v) for v in given.to_pylist()] == [repr(v) for v in written.to_pylist()], (function, scale)


def test_sums_of_whole_numbers_that_stand_for_many_are_exact_or_refused() -> None:
    item = AggregateItem(Field("x", pa.int64()), "sum", None)
    one = np.zeros(2, np.int64)
    assert aggregated(item, pa.array([2**40, -(2**39)]), one, 1, np.array([2**20, 2**20])).to_pylist() == [2**59]
    with pytest.raises(nile.SumOverflow):
        aggregated(item, pa.array([2**40, 1]), one, 1, np.array([2**30, 1]))


def equal_keys(rows: int) -> nile.Database:
    db = nile.connect()
    ts = np.arange(rows) * 1e-3
    for name in ("a", "b"):
        db.register(name, pa.table({"ts": ts, "k": np.zeros(rows, np.int64), "x": np.arange(rows)}), time="ts")
    return db


def test_no_pair_of_equal_keys_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a pair was made")

    monkeypatch.setattr(relational, "joined", never)
    db = equal_keys(20_000)
    wanted = (400_000_000, 20_000 * 199_990_000, 0, 19_999)
    assert db.sql("SELECT count(*), sum(a.x), min(b.x), max(a.x) FROM a, b WHERE a.k = b.k").fetchall() == [wanted]
    told = db.join("a", "b", on="k").aggregate({"n": "count(*)", "s": "sum(a.x)"}).run()
    assert told.value("n") == wanted[0]
    assert told.value("s") == wanted[1]
    assert told.estimate("n").certified


def test_explain_tells_how_many_pairs_were_counted() -> None:
    told = equal_keys(300).sql("SELECT count(*) FROM a, b WHERE a.k = b.k").explain(analyze=True)
    assert "90,000" in told


def test_products_of_many_inputs_beyond_64_bits_are_refused_with_what_to_do() -> None:
    db = nile.connect()
    rows = 70_000
    made = pa.table({"ts": np.arange(rows) * 1.0, "k": np.zeros(rows, np.int64)})
    for name in "abcd":
        db.register(name, made, time="ts")
    text = "SELECT count(*) FROM a, b, c, d WHERE a.k = b.k AND b.k = c.k AND c.k = d.k"
    with pytest.raises(nile.MemoryRefused, match="name a window"):
        db.sql(text).fetchall()
    assert math.log2(rows**4) > 62


@pytest.mark.parametrize("bounded", [0, 1, 2])
@pytest.mark.parametrize("keys", [1, 3, 40])
def test_partners_of_codes_are_those_that_a_loop_finds(keys: int, bounded: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, m = (int(each) for each in rng.integers(0, 30, 2))
        codes, own = rng.integers(-1, keys, n), rng.integers(-1, keys, m)
        bounds = [(rng.integers(0, m + 1, n), rng.integers(0, m + 1, n)) for _ in range(bounded)]
        begin, counts, order = runs_of(codes, own, bounds)
        for row in range(n):
            inside = [k for k in range(m) if all(low[row] <= k < high[row] for low, high in bounds)]
            wanted = [k for k in inside if own[k] == codes[row] >= 0]
            assert order[begin[row] : begin[row] + counts[row]].tolist() == wanted
