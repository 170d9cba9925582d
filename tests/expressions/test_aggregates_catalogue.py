"""Laws over the catalogue of aggregates, with DuckDB as the judge: an aggregate is tested by being listed."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb
from thinning import thinned

import nile
from nile.aggregates.catalogue import ALIASES, CATALOGUE, COLLECTED, Kind
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan.algebra import RUNNING, Aggregate, Group, Range, Scan
from nile.expressions.tree import Column
from nile.spark.scan.groups import Totals, added, partial
from nile.sql import plan as plans
from nile.sql.reading.select_expressions import _AGGREGATES

IN_SQL = [kind for kind in CATALOGUE.values() if kind.sql is not None]
SHARES = (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)


def calls(kind: Kind, column: str, *, distinct: bool = False) -> list[str]:
    """The aggregate of a column as SQL, one text for each share it is asked at."""
    inner = f"DISTINCT {column}" if distinct else column
    if kind.argument == "key":
        return [] if distinct else [f"{kind.sql}({column}, ts)", f"{kind.sql}({column}, -ts)"]
    if distinct and kind.is_collected:
        return [f"{kind.sql}({inner} ORDER BY {column})"]
    return [f"{kind.sql}({inner}, {share})" for share in SHARES] if kind.argument else [f"{kind.sql}({inner})"]


def near(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(near, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)


def agree(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    return len(mine) == len(theirs) and all(
        len(a) == len(b) and all(map(near, a, b)) for a, b in zip(mine, theirs, strict=True)
    )


def table(rng: random.Random, rows: int) -> pa.Table:
    """ts rising; g, n, v and t with nulls; n whole; v with NaN, -0.0 and ties; t text."""
    return pa.table(
        {
            "ts": pa.array(range(rows), pa.int64()),
            "g": pa.array([rng.choice(["a", "b", "c", None]) for _ in range(rows)], pa.string()),
            "n": pa.array([rng.choice([None, *range(-4, 9)]) for _ in range(rows)], pa.int64()),
            "v": pa.array(
                [rng.choice([None, math.nan, -0.0, 0.0, 0.25, 1.5, -2.75, 1e6]) for _ in range(rows)], pa.float64()
            ),
            "t": pa.array([rng.choice([None, "", "tea", "cup", "é"]) for _ in range(rows)], pa.string()),
        }
    )


def test_quantiles_of_sql_lie_where_duckdb_and_db_aggregate_have_them() -> None:
    db = nile.connect()
    db.register("s", {"ts": [0.0, 1.0, 2.0, 3.0], "x": [1, 2, 3, 10]}, time="ts")
    for call, wanted in (
        ("quantile_cont(x, 0.5)", 2.5),
        ("quantile_cont(x, 0.9)", 7.9),
        ("median(x)", 2.5),
        ("quantile_disc(x, 0.5)", 2),
        ("quantile_disc(x, 0.9)", 10),
        ("quantile(x, 0.5)", 2),
    ):
        told = db.sql(f"SELECT {call} AS q FROM s").fetchall()[0][0]
        judged = duckdb.sql(f"SELECT {call} FROM (VALUES (1), (2), (3), (10)) s(x)").fetchall()[0][0]
        asked = db.aggregate("s", {"q": call}).run().to_arrow().to_pylist()[0]["q"]
        assert told == pytest.approx(judged) == pytest.approx(wanted)
        assert told == pytest.approx(asked)
        assert type(told) is type(judged)


def test_every_name_means_one_aggregate_and_sql_reads_each_that_it_has() -> None:
    assert not set(ALIASES) & set(CATALOGUE)
    assert {kind.name for kind in IN_SQL} == set(_AGGREGATES.values())


@pytest.mark.parametrize("kind", thinned(IN_SQL, 2), ids=lambda kind: kind.name)
def test_one_shot_sql_equals_duckdb(kind: Kind) -> None:
    rng = random.Random(kind.name)
    for rows in (0, 1, 2, 60):
        data = table(rng, rows)
        db, judge = nile.connect(), fresh_duckdb()
        db.register("s", data, time="ts")
        judge.register("s", data)
        columns = ["n", "v", "n + 1"] if kind.takes == "number" else ["n", "v", "t"]
        columns = ["n", "t"] if kind.gives == "text" else columns  # -0.0 and 0.0 are told apart as text
        asked = [call for column in columns for call in [*calls(kind, column), *calls(kind, column, distinct=True)]]
        named = ", ".join(f"{call} AS a{at}" for at, call in enumerate(asked))
        for where in ("", " WHERE n > 0", " WHERE n > 100"):
            text = f"SELECT {named} FROM s{where}"
            assert agree(db.sql(text).fetchall(), judge.execute(text).fetchall()), (text, rows)
            text = f"SELECT g, {named} FROM s{where} GROUP BY g ORDER BY g NULLS LAST"
            assert agree(db.sql(text).fetchall(), judge.execute(text).fetchall()), (text, rows)


@pytest.mark.parametrize("name", RUNNING)
def test_what_left_a_window_is_as_if_it_had_never_come(name: str) -> None:
    """At every instant the windowed aggregate is DuckDB's over what the window holds, however the input is cut."""
    kind, rng = CATALOGUE[name], random.Random(name)
    data = table(rng, 80).slice(0, 80)
    judge = fresh_duckdb()
    judge.register("s", data)
    for column in ("n", "v") if kind.takes == "number" else ("n", "v", "t"):
        schema = pa.schema([data.schema.field(column)])
        for share in SHARES if kind.argument else (None,):
            call = f"{kind.sql}({column})" if share is None else f"{kind.sql}({column}, {share})"
            whole = judge.execute(
                f"SELECT (SELECT {call} FROM s WHERE ts BETWEEN a.ts - 9 AND a.ts) FROM s a ORDER BY a.ts"
            ).fetchall()
            for cut in (1, 7, 80):
                plan = Group(Scan("s", schema, Range(9), 0), (), (Aggregate("a", name, column, share),))
                assert agree(after_each(Pipeline(plan), data.select([column]), cut), whole), (call, cut)


def after_each(pipeline: Pipeline, data: pa.Table, cut: int) -> list[tuple[Any, ...]]:
    """The one row after each tuple; `cut` tuples come at once."""
    ts, rows = np.arange(data.num_rows), data.combine_chunks().to_batches()[0]
    out = []
    for begin in range(0, data.num_rows, cut):
        out += pipeline.push("s", ts[begin : begin + cut], rows.slice(begin, cut))
    out += pipeline.finish()
    told = {
        at: row
        for one in out
        for at, sign, row in zip(one.ts.tolist(), one.sign.tolist(), one.rows.column(0).to_pylist(), strict=True)
        if sign > 0
    }
    found: list[tuple[Any, ...]] = []
    for at in ts.tolist():
        found.append((told[at],) if at in told else found[-1])
    return found


@pytest.mark.parametrize("kind", IN_SQL, ids=lambda kind: kind.name)
def test_a_statement_over_a_window_of_groups_equals_duckdb(kind: Kind) -> None:
    rng = random.Random(kind.name)
    data = table(rng, 60)
    db, judge = nile.connect(), fresh_duckdb()
    db.register("s", data, time="ts")
    judge.register("s", data)
    for call in [*calls(kind, "v"), *calls(kind, "n")]:
        for window in (1, 20):
            mine = db.sql(f"SELECT g, {call} AS a FROM s GROUP BY g WINDOW {window}", emit="snapshot").fetchall()
            theirs = judge.execute(f"SELECT g, {call} AS a FROM s WHERE ts >= {59 - window} GROUP BY g").fetchall()
            assert agree(sorted(mine, key=str), sorted(theirs, key=str)), (call, window)


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("column", ["n", "v"])
def test_sums_of_parts_merge_in_any_order_and_nothing_changes_nothing(name: str, column: str) -> None:
    """What tasks of a scan add up: associative, commutative, of any cut; no rows are the identity."""
    rng = random.Random(name)
    data = table(rng, 90).combine_chunks().to_batches()[0]
    kind = CATALOGUE[name]
    field = data.schema.field(column)
    native = "integer" if column == "n" else "number"
    gives = pa.int64() if kind.gives == "whole" else field.type if kind.gives in ("same", "sum") else pa.float64()
    share = 0.3 if kind.argument else None
    argument = Column(column, native)  # type: ignore[arg-type]
    item = plans.AggregateItem(plans.Field("a", gives), name, argument, fraction=share)
    fields = tuple(plans.Field(each.name, each.type) for each in data.schema)
    group = plans.Group(
        plans.Relation("s", "s", fields), (plans.Item(plans.Field("g", pa.string()), Column("g", "text")),), (item,)
    )

    def told(parts: list[pa.Table]) -> list[tuple[Any, ...]]:
        whole = added(group, parts)
        assert whole is not None
        rows = Totals(group, [(0, whole.combine_chunks().to_batches()[0])], np.ones(1)).row_batch()
        return sorted(zip(*(each.to_pylist() for each in rows.columns), strict=True), key=str)

    one = told([partial(group, data)])
    judge = fresh_duckdb()
    judge.register("s", pa.table(data))
    call = f"{kind.sql}({column})" if share is None else f"{kind.sql}({column}, {share})"
    theirs = judge.execute(f"SELECT g, {call} FROM s GROUP BY g").fetchall()
    assert agree(one, sorted(theirs, key=str))
    parts = [partial(group, data.slice(i, 7)) for i in range(0, 90, 7)]
    empty = partial(group, data.slice(0, 0))
    for _ in range(4):
        rng.shuffle(parts)
        at = rng.randrange(1, len(parts))
        nested = [added(group, parts[:at]), empty, added(group, parts[at:])]
        assert agree(told(parts), one)
        assert agree(told(nested), one)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", [each for each in IN_SQL if not each.is_spread and not each.is_collected], ids=lambda kind: kind.name
)
def test_weighted_outputs_with_all_the_budget_equal_duckdb(kind: Kind) -> None:
    rng = random.Random(kind.name)
    db, judge = nile.connect(), fresh_duckdb()
    for name in ("l", "r"):
        data = pa.table(
            {
                "ts": pa.array(range(40), pa.int64()),
                "k": pa.array([rng.randrange(4) for _ in range(40)], pa.int64()),
                "n": pa.array([rng.randrange(-4, 9) for _ in range(40)], pa.int64()),
            }
        )
        db.register(name, data, time="ts")
        judge.register(name, data)
    for call in calls(kind, "a.n"):
        text = f"SELECT {call} AS x FROM l a, r b WHERE a.k = b.k"
        told = db.sql(f"{text} WITH PREFERENCE weighted WINDOW 10", budget=nile.Budget(fraction=1.0)).fetchall()
        assert agree(
            [tuple(map(float, told[0]))],
            [tuple(map(float, judge.execute(f"{text} AND abs(a.ts - b.ts) <= 10").fetchall()[0]))],
        ), call


@pytest.mark.parametrize("name", COLLECTED)
@pytest.mark.parametrize("column", ["n", "v", "t"])
def test_rows_in_an_order_are_those_of_the_window(name: str, column: str) -> None:
    """At every instant DuckDB's over what the window holds, however the input is cut and wherever it starts anew."""
    kind, rng = CATALOGUE[name], random.Random(name + column)
    data = table(rng, 50)
    judge = fresh_duckdb()
    judge.register("s", data)
    schema = pa.schema([data.schema.field(each) for each in ("ts", column, "n")] if column != "n" else
                       [data.schema.field(each) for each in ("ts", "n")])  # fmt: skip
    value = f"CAST({column} AS VARCHAR)" if kind.gives == "text" else column
    if kind.gives == "text" and column != "t":
        return
    for order in ((("n", True, True), ("ts", False, True)), (("n", False, False), ("ts", True, True))):
        key, down, _ = order[0]
        by = ", ".join(f"{one} {'DESC' if d else ''} NULLS {'LAST' if last else 'FIRST'}" for one, d, last in order)
        if kind.argument == "key":
            if down != (name == "arg_max"):
                continue
            order, call = order[:1], f"{kind.sql}({value}, {key})"
        else:
            call = f"{kind.sql}({value}{', $$-$$' if kind.gives == 'text' else ''} ORDER BY {by})"
        rows = "(SELECT * FROM s WHERE ts BETWEEN a.ts - 9 AND a.ts ORDER BY ts)"
        whole = [judge.execute(f"SELECT {call} FROM {rows.replace('a.ts', str(at))}").fetchall()[0] for at in range(50)]
        asked = Aggregate("a", name, column, None, order, separator="-")
        for cut in (1, 7, 50):
            pipeline = Pipeline(Group(Scan("s", schema, Range(9), 0), (), (asked,)))
            assert agree(after_each(pipeline, data.select(schema.names), cut), whole), (call, cut)
