"""Conditions over the columns of several streams: SQL's meaning against DuckDB, budgets, push-down, errors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import fresh_duckdb

import nile
from nile.operators.inputs.pair_conditions import read_pair_condition
from nile.operators.multiway import multiway
from nile.streams.files import csv
from nile.summaries.errors import ConfigError, ExpressionError, UnknownColumn, UnknownStream

NAMES = ("a", "b", "c")
NAN = float("nan")


def table(seed: int, n: int, *, keys: int = 6) -> pa.Table:
    """Rows with a number (NaN, null, zeros of both signs), a whole number and a text, each sometimes null."""
    rng = np.random.default_rng(seed)
    numbers = np.array([NAN, -0.0, 0.0, 1.5, -2.0, 3.0, np.inf])
    return pa.table({
        "i": np.arange(n), "at": np.cumsum(rng.integers(0, 3, n)),
        "k": pa.array(rng.integers(0, keys, n), mask=rng.random(n) < 0.1),
        "x": pa.array(rng.choice(numbers, n), mask=rng.random(n) < 0.2),
        "n": pa.array(rng.integers(-3, 4, n).astype(np.int32), mask=rng.random(n) < 0.2),
        "t": pa.array(rng.choice(np.array(["", "a", "b", "ab", "B"]), n), mask=rng.random(n) < 0.2),
    })  # fmt: skip


def database(streams: int, n: int, seed: int = 0) -> tuple[nile.Database, Any]:
    db, duck = nile.connect(), fresh_duckdb()
    for k, name in enumerate(NAMES[:streams]):
        rows = table(10 * seed + k, n)
        db.register(name, rows, time="at")
        duck.register(name, rows)
    return db, duck


def by_duckdb(duck: Any, streams: int, where: str, window: int) -> list[tuple[int, ...]]:
    names = NAMES[:streams]
    apart = " and ".join(f"abs({p}.at - {q}.at) <= {window}" for p, q in itertools.combinations(names, 2))
    equal = " and ".join(f"a.k = {name}.k" for name in names[1:])
    wanted = ", ".join(f"{name}.i" for name in names)
    sql = f"select {wanted} from {', '.join(names)} where {apart} and {equal} and ({where})"
    return sorted(duck.execute(sql).fetchall())


def rows_of(answer: Any) -> list[tuple[int, ...]]:
    columns = answer.to_arrow()
    names = [name for name in columns.schema.names if name.endswith("_ordinal")]
    return list(zip(*[columns[name].to_pylist() for name in names], strict=True))


def conditions(streams: int) -> st.SearchStrategy[str]:
    """Random conditions: comparisons inside and across streams, arithmetic, text, NULL, AND, OR, NOT."""
    alias = st.sampled_from(NAMES[:streams])
    number = st.one_of(
        st.tuples(alias, st.sampled_from("xn")).map(".".join),
        st.sampled_from(["0", "1.5", "-2"]),
        st.tuples(alias, st.sampled_from("+-*"), alias).map(lambda p: f"({p[0]}.x {p[1]} {p[2]}.x)"),
        st.tuples(alias, alias).map(lambda p: f"({p[0]}.n + 2 * {p[1]}.n)"),
    )
    text = st.one_of(alias.map(lambda a: f"{a}.t"), st.sampled_from(["'a'", "'ab'"]))
    operator = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    leaf = st.one_of(
        st.tuples(number, operator, number).map(" ".join),
        st.tuples(text, operator, text).map(" ".join),
        st.tuples(number, number, number).map(lambda p: f"{p[0]} between {p[1]} and {p[2]}"),
        alias.map(lambda a: f"{a}.x is null"),
        alias.map(lambda a: f"{a}.t like 'a%'"),
        st.tuples(alias, alias).map(lambda p: f"{p[0]}.n in ({p[1]}.n, 2)"),
        st.tuples(alias, alias).map(lambda p: f"coalesce({p[0]}.x, {p[1]}.x) > 0"),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            st.tuples(inner, inner).map(lambda p: f"{p[0]} and {p[1]}"),
            inner.map(lambda p: f"not ({p})"),
        ),
        max_leaves=4,
    )


@given(data=st.data(), streams=st.sampled_from([2, 2, 3]), seed=st.integers(0, 5), window=st.sampled_from([0, 3, 40]))
@settings(max_examples=50)
def test_duckdb_finds_the_same_whatever_the_condition(data: Any, streams: int, seed: int, window: int) -> None:
    where = data.draw(conditions(streams))
    db, duck = database(streams, 50 if streams == 2 else 25, seed)
    query = db.join(*NAMES[:streams], on="k", window=window or "1 ms", where=where)
    expected = by_duckdb(duck, streams, where, window)
    for method in multiway.METHODS:
        answer = query.using(method=method).run()
        assert sorted(rows_of(answer)) == expected
        assert answer.estimate.value == len(expected)
        assert answer.budget.spent <= 1.0 + 1e-9


CONDITION = "a.x < b.x and a.n <> b.n and b.t <> ''"


@given(
    seed=st.integers(0, 3),
    fraction=st.sampled_from([0.05, 0.3, 0.7]),
    guide=st.sampled_from(["countsketch", "directory"]),
    preference=st.sampled_from(["desc", "weighted", "asc"]),
    method=st.sampled_from(multiway.METHODS),
    costs=st.sampled_from(["engine", "memory"]),
)
@settings(max_examples=30)
def test_under_a_budget_outputs_are_some_of_the_exact_ones_each_once_and_paid_for(
    seed: int, fraction: float, guide: str, preference: str, method: str, costs: str
) -> None:
    db, duck = database(2, 700, seed)
    expected = set(by_duckdb(duck, 2, CONDITION, 60))
    query = db.join("a", "b", on="k", window=60, where=CONDITION).prefer(preference).guided_by(guide)
    answer = query.using(method=method, costs=costs, seed=seed).run(budget=fraction)
    found = rows_of(answer)
    assert len(found) == len(set(found))
    assert set(found) <= expected
    assert answer.budget.spent <= fraction + 1e-9
    figures = answer.figures
    assert figures.outputs == len(found) <= figures.candidates
    for name, excluded in answer.excluded.items():
        accounts = answer.accounting[name]
        assert accounts.tuples_in == 700 - excluded == accounts.applied + accounts.shed


def test_a_small_trace_is_charged_an_insert_and_look_up_a_tuple_a_scan_a_candidate_and_an_emit_a_pair() -> None:
    """b at 2 s meets a at 0 and 1 s; only the second passes.  engine: 3 inserts, 3 look-ups, 2 scans, 1 emit."""
    db = nile.connect()
    db.register("a", pa.table({"at": [0, 1], "k": [7, 7], "x": [1, 5]}), time="at")
    db.register("b", pa.table({"at": [2], "k": [7], "x": [4]}), time="at")
    answer = db.join("a", "b", on="k", window=9, where="a.x > b.x").run()
    assert rows_of(answer) == [(1, 0)]
    assert answer.figures.spent == 3 * 10 + 3 * 10 + 2 * 2 + 10
    assert answer.figures.candidates == 2
    # The exact base of a budget is the same: what the plain join with the condition spends.
    base = answer.joined.costs(answer.plan.costs, ranges=False)
    assert base.tolist() == [20.0, 20.0, 20.0 + 2 * 2 + 10]


def test_a_condition_on_one_stream_selects_its_tuples_before_insertion_and_accounts_for_them() -> None:
    db, duck = database(2, 200)
    where = "a.n > 0 and b.t = 'a' and (a.x < 3 or a.x is null)"
    query = db.join("a", "b", on="k", window=20, where=where)
    answer = query.run()
    assert sorted(rows_of(answer)) == by_duckdb(duck, 2, where, 20)
    left = duck.execute("select count(*) from a where a.n > 0 and (a.x < 3 or a.x is null)").fetchall()[0][0]
    assert answer.excluded["left"] == 200 - left
    assert answer.accounting["left"].applied == left == answer.accounting["left"].tuples_in
    assert answer.figures.arrivals == sum(one.applied for one in answer.accounting.values())
    assert isinstance(answer, nile.JoinAnswer)  # nothing is left to look at in a pair
    for own, name in (("n > 0 AND (x < 3.0 OR x IS NULL)", "a"), ("t = 'a'", "b")):
        assert f"where {own}: before insertion on {name}" in query.explain()
    assert sorted(rows_of(answer)) == sorted(
        tuple(row.values()) for row in
        query.returning("ranges").run().expand().select(["left_ordinal", "right_ordinal"]).to_pylist()
    )  # fmt: skip


def test_a_condition_without_columns_is_true_or_false_of_everything() -> None:
    db, duck = database(2, 60)
    assert rows_of(db.join("a", "b", on="k", window=9, where="1 = 2").run()) == []
    both = db.join("a", "b", on="k", window=9, where="1 < 2 and a.x < b.x").run()
    assert sorted(rows_of(both)) == by_duckdb(duck, 2, "a.x < b.x", 9)


def test_columns_follow_their_tuples_when_disorder_is_repaired(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,k,x\n3,u,30\n1,u,10\n2,u,20\n4,u,40\n")
    db = nile.connect().register("a", str(tmp_path / "a.csv"), time="at", lateness="5 s")
    db.register("b", pa.table({"at": [4], "k": ["u"], "y": [25.0]}), time="at")
    for split in (1, 100):
        answer = db.join("a", "b", on="k", window=9, where="x > y").using(seed=split).run()
        assert answer.to_arrow()["left_ts"].cast(pa.int64()).to_pylist() == [4 * 10**9, 3 * 10**9]


def test_a_cell_that_a_condition_needs_and_that_does_not_fit_rejects_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "INFER_ROWS", 2)
    (tmp_path / "a.csv").write_text("at,k,x\n1,u,10\n2,u,30\n3,u,many\n4,u,40\n")
    db = nile.connect().register("a", str(tmp_path / "a.csv"), time="at")
    db.register("b", pa.table({"at": [4], "k": ["u"], "y": [25.0]}), time="at")
    answer = db.join("a", "b", on="k", window=9, where="x > y").run()
    assert rows_of(answer) == [(2, 0), (1, 0)]  # the newest partner first
    kept = answer.accounting["left"]
    assert (kept.tuples_in, kept.applied, kept.rejected) == (4, 3, 1)


def test_what_is_wrong_with_a_condition_is_said_with_the_nearest_name() -> None:
    db, _ = database(2, 5)

    def where(text: str) -> None:
        db.join("a", "b", on="k", where=text)

    with pytest.raises(ExpressionError, match=r"'x' is a column of a and b; write a.x or b.x"):
        where("x > 3")
    with pytest.raises(UnknownStream, match=r"no stream 'aa' in this join; did you mean 'a.x'"):
        where("aa.x > b.x")
    with pytest.raises(UnknownColumn, match=r"stream 'a': there is no column 'xx'; did you mean 'x'"):
        where("a.xx > b.x")
    with pytest.raises(UnknownColumn, match="there is no column 'z'"):
        where("z > b.x")
    with pytest.raises(ExpressionError, match="cannot compare"):
        where("a.t > b.n")
    with pytest.raises(ExpressionError):
        where("a.x > (select 1)")
    with pytest.raises(ExpressionError):
        where("main.a.x > b.x")
    with pytest.raises(ConfigError, match="no whole ranges"):
        db.join("a", "b", on="k", where="a.x > b.x").returning("ranges").run()
    with pytest.raises(ConfigError, match="nile, hash-drop"):
        db.join("a", "b", on="k", where="a.x > b.x").using(method="scan").run()


def test_a_condition_is_taken_apart_at_its_outermost_ands_only() -> None:
    schema = pa.schema([("x", pa.float64()), ("n", pa.int64())])
    alone, read = read_pair_condition(
        "a.x > 1 and (a.n = 2 or b.n = 3) and b.x < 1 and a.x < b.x", ("a", "b"), (schema, schema), where="test"
    )
    assert read is not None
    assert (read.columns(0), read.columns(1)) == (("n", "x"), ("n", "x"))
    own, other = alone
    assert own is not None
    assert other is not None
    assert (own.columns, other.columns) == (("x",), ("x",))
    assert own.mask(pa.record_batch({"x": [0.0, 2.0, None], "n": [1, 2, 3]})).to_pylist() == [False, True, None]
