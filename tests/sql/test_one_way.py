"""One question, asked through SQL, the builder and db.join, select or aggregate: one bound query, one operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nile
from nile.exact.join.form import RULE, RULE_OF_MANY
from nile.execution.approximate.run import approximate
from nile.execution.options import Options
from nile.execution.statement.builder import QueryBuilder, read_query
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.join.join import PromisingJoin
from nile.operators.multiway.multiway import MultiwayJoin
from nile.summaries.hashing import KeyTable

COLUMNS = ("left_ordinal", "right_ordinal", "k", "left_ts", "right_ts")
CHOSEN = ("a.n AS left_ordinal", "b.n AS right_ordinal", "a.k", "a.ts AS left_ts", "b.ts AS right_ts")
MILLISECOND = 1_000_000


def keys_of(kind: str, codes: np.ndarray, missing: np.ndarray, side: int) -> pa.Array:
    """Keys of a kind, some null; "mixed" are of another width on each side."""
    if kind == "text":
        return pa.array([None if gone else f"item {code}" for code, gone in zip(codes, missing, strict=True)])
    kinds = {"whole": pa.int64(), "real": pa.float64(), "mixed": (pa.int32(), pa.int64())[side % 2]}
    return pa.array(codes, mask=missing).cast(kinds[kind])


def streams(kind: str, n: int = 600, seed: int = 3, names: str = "ab") -> dict[str, pa.Table]:
    """Streams with ties in time and null keys; n: the place of each tuple."""
    rng = np.random.default_rng(seed)
    made = {}
    for side, name in enumerate(names):
        ts = np.cumsum(rng.integers(0, 3, n)) * MILLISECOND
        key = keys_of(kind, rng.integers(0, 15, n), rng.random(n) < 0.1, side)
        made[name] = pa.table({"ts": pa.array(ts).view(pa.timestamp("ns")), "k": key, "n": np.arange(n)})
    return made


def database(tables: dict[str, pa.Table], **options: Any) -> nile.Database:
    db = nile.connect()
    for name, table in tables.items():
        db.register(name, table, time="ts", **options)
    return db


def asked(db: nile.Database, window: float | None) -> tuple[nile.Result, nile.Result, nile.JoinAnswer]:
    """The three ways."""
    text = f"SELECT {', '.join(CHOSEN)} FROM a, b WHERE a.k = b.k"
    built = db.query("a").join("b", on="k")
    if window is not None:
        text += f" WINDOW {window}"
        built = built.window(window)
    return db.sql(text), built.select(*CHOSEN).run(), db.join("a", "b", on="k", window=window).run()


def oracle(tables: dict[str, pa.Table], window: float | None) -> set[tuple[int, int]]:
    """Every pair, tried."""
    widest = None if window is None else round(window * 1e9)
    sides = [
        list(
            zip(
                tables[name]["ts"].cast(pa.int64()).to_pylist(),
                *(tables[name][c].to_pylist() for c in "kn"),
                strict=True,
            )
        )
        for name in "ab"
    ]
    return {
        (i, j)
        for at, key, i in sides[0]
        for other, its, j in sides[1]
        if key is not None and key == its and (widest is None or abs(at - other) <= widest)
    }


@pytest.mark.parametrize("kind", ["whole", "text", "real", "mixed"])
@pytest.mark.parametrize("window", [None, 0.001, 0.005, 0.1, 1_000])
def test_the_three_ways_give_the_same_rows_in_the_same_order(kind: str, window: float | None) -> None:
    tables = streams(kind)
    by_sql, built, joined = (answer.to_arrow() for answer in asked(database(tables), window))
    assert by_sql.equals(built)
    for name in COLUMNS:
        assert joined[name].to_pylist() == by_sql[name].to_pylist()
    assert set(zip(joined["left_ordinal"].to_pylist(), joined["right_ordinal"].to_pylist(), strict=True)) == oracle(
        tables, window
    )
    assert joined.num_rows == len(oracle(tables, window))
    assert set(joined["weight"].to_pylist()) <= {1.0}


@pytest.mark.parametrize("window", [None, 0.02])
@pytest.mark.parametrize("left", ["places", "one off", "shuffled", "null", "narrow"])
@pytest.mark.parametrize("chosen", ["a.n AS x, b.n AS y", "a.n AS x, 0 AS y", "a.n + b.n AS x, b.n - a.n AS y"])
def test_columns_that_number_rows_are_what_any_other_column_is(chosen: str, left: str, window: float | None) -> None:
    tables = streams("whole")
    numbers = np.arange(600)
    own = {
        "places": pa.array(numbers),
        "one off": pa.array(np.where(numbers == 300, 299, numbers)),
        "shuffled": pa.array(np.random.default_rng(1).permutation(600)),
        "null": pa.array(numbers, mask=numbers == 7),
        "narrow": pa.array(numbers, pa.int32()),
    }[left]
    db = database({**tables, "a": tables["a"].set_column(2, "n", own)})
    text = f"SELECT {chosen} FROM a, b WHERE a.k = b.k AND b.n <> 5" + (f" WINDOW {window}" if window else "")
    rows = places(db.sql(text).to_arrow(), ("x", "y"))
    values = own.to_pylist()
    pairs = [(values[i], 0 if "0 AS" in chosen else j) for i, j in oracle(tables, window) if j != 5]
    if "+" in chosen:
        pairs = [(None, None) if i is None else (i + j, j - i) for i, j in pairs]
    assert sorted(rows, key=str) == sorted(pairs, key=str)


def test_the_accounts_are_the_same_where_tuples_come_late_and_without_a_key() -> None:
    tables = streams("whole")
    order = np.random.default_rng(5).permutation(600)
    late = {name: table.take(order) for name, table in tables.items()}
    ways = asked(database(late, lateness=0.05), 0.1)
    accounts = [list(answer.accounting.values()) for answer in ways]
    assert accounts[0] == accounts[1] == accounts[2]
    assert all(side.late for side in accounts[0])
    assert len({answer.to_arrow().num_rows for answer in ways}) == 1


@pytest.mark.parametrize("window", [None, 0.1])
def test_explain_names_the_same_operator(window: float | None) -> None:
    db = database(streams("whole"))
    by_sql, built, _ = asked(db, window)
    for told in (by_sql.explain(), built.explain(), db.join("a", "b", on="k", window=window).explain()):
        assert RULE in told.replace("\n      ", " ")


@pytest.mark.parametrize("preference", [None, "desc", "weighted"])
def test_an_exact_join_is_neither_summarised_nor_priced(
    preference: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = database(streams("whole"))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("made for an exact join")

    monkeypatch.setattr(PromisingJoin, "__init__", refuse)
    monkeypatch.setattr("nile.exact.join.chain.ExactJoin.matches", refuse)
    monkeypatch.setattr(KeyTable, "_encode_words", lambda _, column: refuse() if len(column) else None)
    query = db.join("a", "b", on="k", window=0.1)
    answer = query.run() if preference is None else query.prefer(preference).run(1.0)
    assert answer.to_arrow().num_rows > 0
    assert answer.coverage == 1.0
    assert answer.estimate.value == answer.to_arrow().num_rows


@pytest.mark.parametrize("preference", [None, "desc", "asc", "weighted"])
@pytest.mark.parametrize("costs", ["engine", "memory"])
def test_the_figures_are_those_of_the_plain_probe(costs: str, preference: str | None) -> None:
    query = database(streams("text")).join("a", "b", on="k", window=0.1).using(costs=costs)
    answer = query.run() if preference is None else query.prefer(preference).run(1.0)
    assert not isinstance(answer._join, PromisingJoin)
    probe = PromisingJoin(answer.plan, answer.input)
    found = list(probe.run())
    assert answer.figures == probe.figures
    pairs = answer.pairs()
    mine, theirs = (
        sorted(zip(left.tolist(), right.tolist(), strict=True))
        for left, right in (
            (pairs.left, pairs.right),
            (np.concatenate([part.left for part in found]), np.concatenate([part.right for part in found])),
        )
    )
    assert mine == theirs


def test_a_join_takes_no_more_columns_than_are_looked_at() -> None:
    db = database(streams("whole"))
    rows = db.sql("SELECT 1 AS one FROM a, b WHERE a.k = b.k AND a.n < b.n WINDOW 0.1").to_arrow()
    pairs = db.join("a", "b", on="k", window=0.1).run().pairs()
    assert rows.num_rows == int((pairs.left < pairs.right).sum())
    assert set(rows["one"].to_pylist()) == {1}


def bound(db: nile.Database, text: str, **options: Any) -> Any:
    """What a statement under a preference or a budget is bound to."""
    return approximate(db._names, read_query(text, db._names), Options.of(options)).operator.bound  # type: ignore[attr-defined]


def places(table: pa.Table, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def several(
    db: nile.Database, names: str, where: str, window: float | None
) -> tuple[nile.Result, nile.Result, nile.JoinQuery, tuple[str, ...]]:
    """A join of streams on k: by SQL, built, and asked of db.join; and the columns of its ordinals there."""
    chosen = [f"{name}.n AS n{name}" for name in names]
    keys = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    text = f"SELECT {', '.join(chosen)} FROM {', '.join(names)} WHERE {keys}" + (f" AND {where}" if where else "")
    built = db.query(names[0])
    for name in names[1:]:
        built = built.join(name, on="k")
    if where:
        built = built.where(where)
    if window is not None:
        text += f" WINDOW {window}"
        built = built.window(window)
    query = db.join(*names, on="k", window=window, where=where or None)
    called = ("left", "right") if len(names) == 2 else tuple(names)
    return db.sql(text), built.select(*chosen).run(), query, tuple(f"{name}_ordinal" for name in called)


PAIR, TRIPLE, OWN = "a.n < b.n", "a.n < b.n AND b.n <> c.n", "a.n > 100 AND b.n % 2 = 0"
JOINS = [("ab", ""), ("ab", PAIR), ("ab", OWN), ("ab", f"{OWN} AND {PAIR}"), ("abc", ""), ("abc", TRIPLE), ("abc", OWN)]


@pytest.mark.parametrize(("names", "where"), JOINS)
@pytest.mark.parametrize("window", [None, 0.02])
def test_joins_of_any_streams_under_any_condition_are_one(names: str, where: str, window: float | None) -> None:
    kept = 600 if len(names) == 2 else 150
    db = database(streams("whole", kept, names=names))
    by_sql, built, query, ordinals = several(db, names, where, window)
    answer = query.run()
    rows = places(by_sql.to_arrow(), tuple(f"n{name}" for name in names))
    assert rows
    assert by_sql.to_arrow().equals(built.to_arrow())
    assert places(answer.to_arrow(), ordinals) == rows  # in the same order
    for result in (by_sql, built):
        assert [one.applied for one in result.accounts] == [kept] * len(names)
        assert [one.applied + gone for one, gone in zip(answer.accounts, answer.excluded.values(), strict=True)] == [
            one.applied for one in result.accounts
        ]
    for told in (by_sql.explain(), built.explain(), query.explain()):
        assert (RULE if len(names) == 2 else RULE_OF_MANY) in told.replace("\n      ", " ")
    if where in ("", OWN):
        ranges = query.returning("ranges").run()
        assert sorted(places(ranges.expand(), ordinals)) == sorted(rows)
        assert ranges.accounts == answer.accounts


@pytest.mark.parametrize("where", [None, TRIPLE])
@pytest.mark.parametrize("window", [None, 0.05])
@pytest.mark.parametrize("costs", ["engine", "memory"])
def test_the_figures_of_several_streams_are_those_of_the_plain_probe(
    costs: str, window: float | None, where: str | None
) -> None:
    db = database(streams("text", 150, names="abc"))
    answer = db.join("a", "b", "c", on="k", window=window, where=where).using(costs=costs).run()
    joined: MultiwayJoinable = answer.joined
    probe = MultiwayJoin(answer.plan, joined.input(answer.plan.costs, ranges=False, whole=True))
    found = [row for part in probe.run() for row in part.members.tolist()]  # type: ignore[union-attr]
    mine = [row for part in answer.outputs() for row in part.members.tolist()]
    assert found
    assert sorted(mine) == sorted(found)
    assert answer.figures == probe.figures


def test_an_exact_join_of_several_is_neither_summarised_nor_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    db = database(streams("whole", 150, names="abc"))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("made for an exact join")

    monkeypatch.setattr(MultiwayJoin, "__init__", refuse)
    monkeypatch.setattr(KeyTable, "_encode_words", lambda _, column: refuse() if len(column) else None)
    answer = db.join("a", "b", "c", on="k", window=0.1, where="a.n < b.n").run()
    assert answer.estimate.value == answer.to_arrow().num_rows > 0


@pytest.mark.parametrize(("names", "where"), JOINS)
@pytest.mark.parametrize("kind", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("output", ["pairs", "ranges"])
def test_joins_with_a_preference_are_one_bound_query(names: str, where: str, kind: Any, output: str) -> None:
    if output == "ranges" and where and where != OWN:
        pytest.skip("a condition over several leaves no whole ranges")
    db = database(streams("whole", 600 if len(names) == 2 else 200, names=names))
    _, _, query, ordinals = several(db, names, where, 0.2)
    query = query.prefer(kind, outlier_cap=8).returning(output).using(seed=5)
    chosen = ", ".join(f"{name}.n AS n{name}" for name in names)
    keys = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    text = f"SELECT {chosen} FROM {', '.join(names)} WHERE {keys}" + (f" AND {where}" if where else "")
    text += f" WITH PREFERENCE {kind} a.k WINDOW 0.2"
    options = {"output": output, "seed": 5, "outlier_cap": 8}
    built = db.query(names[0])
    for name in names[1:]:
        built = built.join(name, on="k")
    built = (built.where(where) if where else built).select(*chosen.split(", ")).prefer(kind, "a.k").window(0.2)
    assert bound(db, text, **options) == bound(db, built.sql(), **options) == query.bound
    answer = query.run(0.4)
    wanted = places(answer.expand(), ordinals)
    for result in (db.sql(text, budget=0.4, **options), built.budget(0.4).run(**options)):
        assert places(result.to_arrow(), tuple(f"n{name}" for name in names)) == wanted
        assert (result.accounts, result.budget, result.figures) == (answer.accounts, answer.budget, answer.figures)
        assert (result.estimate, result.coverage) == (answer.estimate, answer.coverage)
        told = result.explain().replace("\n      ", " ")
        assert all(line.strip() in told for line in query.explain(0.4).split("\n"))


def number(db: nile.Database, text: str, built: QueryBuilder, **options: Any) -> tuple[nile.Result, nile.Result]:
    return db.sql(text, **options), built.run(**options)


@pytest.mark.parametrize("kind", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("budget", [None, 0.5])
@pytest.mark.parametrize("where", ["n > 50 AND k < 9", "k < 9 OR n % 7 = 0"])
def test_selections_are_one_bound_query(kind: Any, budget: float | None, where: str) -> None:
    db = database(streams("whole"))
    query = db.select("a", on="k", predicates={"the query": where}).prefer(kind)
    text = f"SELECT n FROM a WHERE {where} WITH PREFERENCE {kind} k"
    built = db.query("a").where(where).select("n").prefer(kind, "k")
    mine, theirs = query.bound, bound(db, text)
    assert bound(db, built.sql()) == theirs
    (_, one), (_, other) = *mine.predicates, *theirs.predicates
    assert set(one.columns) == set(other.columns)  # as it was written, and as SQL writes it
    answer = query.run(budget)
    exact = sorted(row[0] for row in db.sql(f"SELECT n FROM a WHERE {where}").fetchall())
    for result in number(db, text, built, **({} if budget is None else {"budget": budget})):
        rows = [row[0] for row in result.fetchall()]
        found = (
            answer.in_order() if budget is None else answer.batches()
        )  # without a budget a statement orders its rows
        assert rows == [row for batch in found for row in batch["ordinal"].to_pylist()]
        assert set(rows) <= set(exact)
        assert budget is not None or sorted(rows) == exact
        assert (result.accounts, result.budget, result.figures) == (answer.accounts, answer.budget, answer.figures)
        assert query.explain(budget).split("\n")[0].strip() in result.explain().replace("\n    ", " ")


def rounded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Estimates in a statement's types: whole numbers to the nearest."""
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = table[name]
        if pa.types.is_integer(kind) and pa.types.is_floating(column.type):
            column = pc.round(column, round_mode="half_to_even")
        columns.append(column.cast(kind))
    return pa.table(columns, schema=schema)


@pytest.mark.parametrize("budget", [None, 0.5])
@pytest.mark.parametrize("by", [None, "k"])
def test_aggregates_are_one_bound_query(budget: float | None, by: str | None) -> None:
    db = database(streams("whole"))
    wanted = {"total": "sum(n)", "rows": "count(*)", "most": "max(n)", "middle": "quantile_cont(n, 0.5)"}
    query = db.aggregate("a", wanted, where="n > 20", by=by).using(seed=3)
    chosen = ", ".join([*([by] if by else []), *(f"{text} AS {name}" for name, text in wanted.items())])
    text = f"SELECT {chosen} FROM a WHERE n > 20" + (f" GROUP BY {by}" if by else "")
    built = db.query("a").where("n > 20")
    built = (built.group_by(by) if by else built).agg(**wanted)
    if budget is None:
        results = number(db, text, built)
        answer = query.run()
    else:
        results = number(db, text, built, budget=budget, seed=3)
        answer = query.run(budget)
        theirs = bound(db, text, budget=budget, seed=3)
        assert bound(db, built.sql(), budget=budget, seed=3) == theirs
        # A statement's projection gives the columns their names.
        named = tuple(replace(each, name=name) for each, name in zip(theirs.aggregates, wanted, strict=True))
        keys = tuple(replace(each, text=each.text.removeprefix("a.")) for each in theirs.by)
        assert replace(theirs, aggregates=named, by=keys) == query.bound
    mine = answer.to_arrow().select([*([by] if by else []), *wanted])
    for result in results:
        table = result.to_arrow()
        assert sorted(places(table, tuple(mine.schema.names)), key=repr) == sorted(
            places(rounded(mine, table.schema), tuple(mine.schema.names)), key=repr
        )
        assert [one.tuples_in for one in result.accounts] == [one.tuples_in for one in answer.accounts]
        if budget is not None:
            assert (result.accounts, result.budget, result.figures) == (answer.accounts, answer.budget, answer.figures)
            assert all(line.strip() in result.explain() for line in query.explain(budget).split("\n")[1:3])


@pytest.mark.parametrize(("names", "where"), [("ab", ""), ("ab", PAIR), ("abc", TRIPLE)])
@pytest.mark.parametrize("kind", [None, "weighted"])
def test_aggregates_of_joins_are_one_bound_query(names: str, where: str, kind: Any) -> None:
    db = database(streams("whole", 600 if len(names) == 2 else 150, names=names))
    _, _, query, _ = several(db, names, where, 0.1)
    wanted = {"total": "sum(a.n)", "rows": "count(*)"}
    chosen = ", ".join(["a.k", *(f"{text} AS {name}" for name, text in wanted.items())])
    keys = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    text = f"SELECT {chosen} FROM {', '.join(names)} WHERE {keys}" + (f" AND {where}" if where else "")
    text += " GROUP BY a.k"
    options: dict[str, Any] = {}
    if kind is None:
        text += " WINDOW 0.1"
        options["emit"] = "snapshot"
        asked = db.join(*names, on="k", where=where or None)
        result = db.sql(text.replace(" WINDOW 0.1", ""))
    else:
        text += f" WITH PREFERENCE {kind} a.k WINDOW 0.1"
        options = {"budget": 0.5, "seed": 2}
        asked = query.prefer(kind).using(seed=2)
        result = db.sql(text, **options)
    answer = asked.aggregate(wanted, by="a.k").run(options.get("budget"))
    mine = answer.to_arrow().select(["a.k", *wanted]).rename_columns(["k", *wanted])
    table = result.to_arrow()
    rows = sorted(places(table, tuple(table.schema.names)))
    assert rows
    if kind is None:
        assert sorted(places(mine, tuple(mine.schema.names))) == rows
    else:
        assert sorted(places(rounded(mine, table.schema), ("k", "total", "rows"))) == rows
        assert (result.accounts, result.budget, result.figures) == (answer.accounts, answer.budget, answer.figures)
