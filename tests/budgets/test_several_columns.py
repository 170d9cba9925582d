"""Joins on several equal columns: by one key of all of them, exact and within budgets, against DuckDB."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from judge import fresh_duckdb

import nile
from nile.base.nearest import nearest
from nile.exact.join import chain
from nile.exact.join.chain import composite_codes
from nile.execution import combined
from nile.operators.strategies import choice
from nile.operators.strategies.machine_prices import paced
from nile.preferences.budget import Budget

TEXTS = [None, *(f"item {n}" for n in range(12))]
KINDS: dict[str, tuple[pa.DataType, ...]] = {
    "numbers": (pa.int64(), pa.int32(), pa.int64()),
    "mixed": (pa.int32(), pa.float64(), pa.int64()),
    "text": (pa.string(), pa.string(), pa.large_string()),
    "decimal": (pa.decimal128(12, 2), pa.decimal128(14, 2), pa.int32()),
    "time": (pa.timestamp("us"), pa.timestamp("us"), pa.timestamp("ns")),
}


def column(rng: np.random.Generator, kind: pa.DataType, n: int, low: int) -> pa.Array:
    values = rng.integers(low, low + 12, n)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([TEXTS[at % len(TEXTS)] for at in values], kind)
    masked = rng.random(n) < 0.05
    return pa.array(values, mask=masked).cast(pa.int32() if pa.types.is_decimal(kind) else pa.int64()).cast(kind)


def database(seed: int, n: int = 1_500, *, first: str = "numbers", second: str = "text", low: int = -4) -> Any:
    """(database, DuckDB) with streams a, b and c of columns t, x, y, v."""
    rng = np.random.default_rng(seed)
    db, judge = nile.connect(), fresh_duckdb()
    for k, name in enumerate("abc"):
        rows = {
            "t": pa.array(np.sort(rng.integers(0, n, n)).astype(float)),
            "x": column(rng, KINDS[first][k], n, low),
            "y": column(rng, KINDS[second][k], n, low),
            "v": pa.array(rng.random(n)),
        }
        db.register(name, pa.table(rows), time="t")
        judge.register(name, pa.table(rows))
    return db, judge


def rows(table: pa.Table, names: str) -> Counter[tuple[float, ...]]:
    return Counter(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def twin(parts: list[list[list[Any]]]) -> list[list[int]]:
    """`composite_codes` without Arrow: the place of each key among all; -1 where a part is null."""
    known: dict[tuple[Any, ...], int] = {}
    streams = [list(zip(*(part[k] for part in parts), strict=True)) for k in range(len(parts[0]))]
    return [[-1 if None in key else known.setdefault(key, len(known)) for key in stream] for stream in streams]


@pytest.mark.parametrize("most", [chain._MOST_CODES, 40, 4_000])
def test_codes_are_equal_exactly_when_all_parts_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "_MOST_CODES", max(most, 1))
    far = [-(2**62), 2**62, 5, 7, None, 0]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(0, 60, 3)
        pools: list[list[Any]] = [far, TEXTS[:4], [0.0, 1.5, -2.0, None, 3.0], list(range(9))]
        parts = [[[pool[at] for at in rng.integers(0, len(pool), n)] for n in sizes] for pool in pools]
        kinds = [pa.int64(), pa.string(), pa.float64(), pa.int32()]
        for own in (parts, parts[:1], parts[1:3], parts[::-1]):
            types = kinds if own is parts else {1: kinds[:1], 2: kinds[1:3], 4: kinds[::-1]}[len(own)]
            arrays = [[pa.array(each, kind) for each in part] for part, kind in zip(own, types, strict=True)]
            found = [codes.tolist() for codes in composite_codes(arrays)]
            truth = twin(own)
            everywhere = set.intersection(*map(set, truth)) - {-1}
            for (k, mine), (j, theirs) in product(enumerate(truth), repeat=2):
                for one, other in product(range(len(mine)), range(len(theirs))):
                    same = found[k][one] == found[j][other] and found[k][one] >= 0
                    assert not same or mine[one] == theirs[other] >= 0
                    assert same or mine[one] not in everywhere or mine[one] != theirs[other]


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", ["text", "mixed"])
def test_exact_joins_of_two_columns_are_those_of_duckdb(first: str, second: str) -> None:
    for seed, low in ((1, -4), (2, 3)):
        db, judge = database(seed, first=first, second=second, low=low)
        for further in ("", " AND a.v < b.v", " AND a.t < 900 AND b.v > 0.5"):
            where = f"FROM a, b WHERE a.x = b.x AND a.y = b.y{further}"
            truth = judge.sql(f"SELECT a.v AS p, b.v AS q {where} AND abs(a.t - b.t) <= 60").to_arrow_table()
            found = db.sql(f"SELECT a.v AS p, b.v AS q {where} WINDOW 60").to_arrow()
            assert rows(found, "pq") == rows(truth, "pq") != Counter()


def test_exact_joins_of_three_streams_by_two_columns_are_those_of_duckdb() -> None:
    db, judge = database(3, 600)
    where = "FROM a, b, c WHERE a.x = b.x AND b.x = c.x AND a.y = b.y AND c.y = a.y"
    near = " AND ".join(f"abs({p}.t - {q}.t) <= 90" for p, q in ("ab", "bc", "ac"))
    truth = judge.sql(f"SELECT a.v AS p, b.v AS q, c.v AS r {where} AND {near}").to_arrow_table()
    found = db.sql(f"SELECT a.v AS p, b.v AS q, c.v AS r {where} WINDOW 90").to_arrow()
    assert rows(found, "pqr") == rows(truth, "pqr") != Counter()


def test_exact_joins_on_several_columns_ask_no_pair_whether_they_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    plain = combined.Combined.__init__
    monkeypatch.setattr(combined.Combined, "__init__", lambda self, batches, condition, *rest, **given: (
        asked.append(condition), plain(self, batches, condition, *rest, **given))[1])  # fmt: skip
    db, _ = database(4)
    db.sql("SELECT a.v, b.v FROM a, b WHERE a.x = b.x AND a.y = b.y WINDOW 60").to_arrow()
    assert asked == [None]


BUDGETS = {
    "machine": (Budget(0.9), {}),
    "engine": (Budget(0.9), {"costs": "engine"}),
    "seconds": (Budget(seconds=600.0), {}),
    "deadline": (Budget(deadline=600.0), {}),
    "outputs": (Budget(outputs=40), {}),
    "whole": (None, {}),
}
WHERE = {
    "pairs": "a.x = b.x AND a.y = b.y",
    "unequal": "a.x = b.x AND a.y = b.y AND a.v < b.v",
    "selected": "a.x = b.x AND a.y = b.y AND a.v < 0.7 AND b.t > 100",
}


def told(table: pa.Table) -> Counter[tuple[float, ...]]:
    return rows(table, "pxyq")


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("first", "second"), [("numbers", "text"), ("mixed", "decimal")])
def test_what_is_found_within_a_budget_is_there(preference: str, budget: str, first: str, second: str) -> None:
    db, judge = database(5, first=first, second=second)
    given, options = BUDGETS[budget]
    for where in WHERE.values():
        asked = f"SELECT a.v AS p, a.x AS x, a.y AS y, b.v AS q FROM a, b WHERE {where}"
        truth = told(judge.sql(f"{asked} AND abs(a.t - b.t) <= 60").to_arrow_table())
        answer = db.sql(f"{asked} WITH PREFERENCE {preference} WINDOW 60", budget=given, **options)
        found = told(answer.to_arrow())
        assert found <= truth
        if preference != "asc" and budget not in ("machine", "engine", "outputs"):
            assert found == truth
        elif budget == "outputs":
            assert 0 < found.total() <= 40
        elif preference != "asc":
            assert found.total() > 0.2 * truth.total()
        if preference == "weighted" and answer.estimate is not None:
            assert answer.estimate.low <= truth.total() <= answer.estimate.high


def outliers(db: Any, cap: int = 4) -> set[tuple[int, int]]:
    """Pairs by their places, of keys that are rare when the pair is complete, from the definition."""
    tables = [pa.table(db.sql(f"SELECT t, x, y FROM {name}").to_arrow()).to_pylist() for name in "ab"]
    order = sorted((row["t"], side, at) for side, each in enumerate(tables) for at, row in enumerate(each))
    found: set[tuple[int, int]] = set()
    for n, (t, side, at) in enumerate(order):
        key = tables[side][at]["x"], tables[side][at]["y"]
        if None in key:
            continue
        near = [(s, o) for u, s, o in order[: n + 1] if t - u <= 60 and (tables[s][o]["x"], tables[s][o]["y"]) == key]
        if len(near) <= cap:
            found |= {(at, o) if side == 0 else (o, at) for s, o in near if s != side}
    return found


@pytest.mark.parametrize("costs", ["machine", "engine"])
def test_outliers_are_those_of_both_columns(costs: str) -> None:
    db, _ = database(6, 500)
    query = db.join("a", "b", on=["x", "y"], window="60 s").prefer("asc").using(costs=costs)
    truth = outliers(db)
    for budget in (None, Budget(0.999), Budget(seconds=600.0)):
        table = query.run(budget).to_arrow()
        found = set(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))
        assert found <= truth
        assert found == truth != set() or budget == Budget(0.999)


def test_samples_of_pairs_of_two_columns_are_right_on_average() -> None:
    db, judge = database(7, 4_000, second="numbers")
    where = "FROM a, b WHERE a.x = b.x AND a.y = b.y"
    truth = judge.sql(f"SELECT count(*), sum(a.v), sum(b.v * a.y) {where} AND abs(a.t - b.t) <= 60").fetchall()[0]
    for budget in (Budget(0.2), Budget(outputs=300)):
        totals = []
        for seed in range(60):
            asked = f"SELECT a.v AS p, a.y AS y, b.v AS q {where} WITH PREFERENCE weighted WINDOW 60"
            found = db.sql(asked, budget=budget, costs="engine" if budget.fraction else "machine", seed=seed).to_arrow()
            p, y, q, w = (found[name].to_numpy() for name in ("p", "y", "q", "_weight"))
            totals.append([w.sum(), w @ p, w @ (q * y)])
        mean, error = np.mean(totals, axis=0), np.std(totals, axis=0) / np.sqrt(len(totals))
        assert (np.abs(mean - truth) <= 4.0 * error + 1e-9).all()


def test_ranges_self_joins_and_three_streams_tell_the_keys_of_the_first() -> None:
    db, judge = database(8, 400)
    query = db.join("a", "b", on=["x", "y"], window="60 s")
    for asked in (query, query.prefer("desc"), query.prefer("desc").using(costs="engine", strategy="promise")):
        ranges = asked.returning("ranges").run(None if asked is query else Budget(0.9))
        table = ranges.expand()
        own = db.sql("SELECT x FROM a").to_arrow()["x"]
        assert table["x"].to_pylist() == own.take(table["left_ordinal"]).to_pylist()
        told = ranges.to_arrow().select(["side", "ordinal", "x"]).to_pylist()
        keys = {side: db.sql(f"SELECT x FROM {name}").to_arrow()["x"] for side, name in (("left", "a"), ("right", "b"))}
        assert [keys[each["side"]][each["ordinal"]].as_py() for each in told] == [each["x"] for each in told] != []
    whole = judge.sql("SELECT count(*) FROM a, b WHERE a.x = b.x AND a.y = b.y AND abs(a.t - b.t) <= 60").fetchall()[0]
    assert len(query.run().to_arrow()) == whole[0]
    alone = db.join("a AS p", "a AS q", on=["x", "y"], window="60 s", where="p.v < q.v")
    asked = "SELECT count(*) FROM a p, a q WHERE p.x = q.x AND p.y = q.y AND p.v < q.v AND abs(p.t - q.t) <= 60"
    for found in (alone.run(), alone.prefer("desc").run(Budget(seconds=60.0))):
        assert len(found.to_arrow()) == judge.sql(asked).fetchall()[0][0]
    three = db.join("a", "b", "c", on=["x", "y"], window="60 s")
    near = " AND ".join(f"abs({p}.t - {q}.t) <= 60" for p, q in ("ab", "bc", "ac"))
    asked = f"SELECT count(*) FROM a, b, c WHERE a.x = b.x AND b.x = c.x AND a.y = b.y AND b.y = c.y AND {near}"
    count = judge.sql(asked).fetchall()[0][0]
    for found in (three.run(), three.prefer("desc").run(), three.prefer("weighted").run(Budget(seconds=60.0))):
        assert len(found.to_arrow()) == count > 0
    assert three.returning("ranges").run().expand().num_rows == count


def test_a_preference_that_names_one_column_goes_by_that_one() -> None:
    db, _ = database(9)
    asked = "SELECT a.v AS p, b.v AS q FROM a, b WHERE a.x = b.x AND a.y = b.y WITH PREFERENCE desc {} WINDOW 60"
    both, one = (str(db.sql("EXPLAIN " + asked.format(terms)).to_arrow().to_pylist()) for terms in ("a.x, a.y", "a.x"))
    assert "a.(x, y) = b.(x, y)" in both
    assert "a.x = b.x" in one
    assert rows(db.sql(asked.format("a.x, a.y")).to_arrow(), "pq") == rows(db.sql(asked.format("a.x")).to_arrow(), "pq")


@pytest.mark.parametrize("digits", [(9, 2), (30, 2)])
def test_decimals_are_compared_with_doubles_as_doubles(digits: tuple[int, int]) -> None:
    rng = np.random.default_rng(10)
    db, judge, n = nile.connect(), fresh_duckdb(), 400
    for name in "abr":
        prices = pa.array(rng.integers(1, 120, n), mask=rng.random(n) < 0.05).cast(pa.decimal128(19, 0))
        x: Any = pc.divide(prices.cast(pa.decimal128(22, 2)), pa.scalar(10, pa.decimal128(2, 0)))
        x = x.cast(pa.decimal128(*digits)) if name == "a" else nearest(x.cast(pa.decimal128(30, 2)), pa.float64())
        rows = {
            "t": np.sort(rng.integers(0, n, n)).astype(float),
            "x": x,
            "y": rng.integers(0, 3, n),
            "v": rng.random(n),
        }
        db.register(name, pa.table(rows), time=None if name == "r" else "t")
        judge.register(name, pa.table(rows))
    for where in ("a.x = b.x", "a.x = b.x AND a.y = b.y"):
        asked = f"SELECT a.v AS p, b.v AS q FROM a, b WHERE {where}"
        truth = rows_of(judge.sql(f"{asked} AND abs(a.t - b.t) <= 60").to_arrow_table())
        assert rows_of(db.sql(f"{asked} WINDOW 60").to_arrow()) == truth != Counter()
        for budget in (None, Budget(seconds=60.0), Budget(0.9)):
            for given in ({}, {"costs": "engine"}):
                found = db.sql(f"{asked} WITH PREFERENCE desc WINDOW 60", budget=budget, **given).to_arrow()
                assert rows_of(found) <= truth
                assert rows_of(found) == truth or budget == Budget(0.9)
    on = db.join("a", "b", on="x", window="60 s")
    for query in (on.prefer("desc"), on.prefer("asc"), on.prefer("weighted")):
        kinds = {query.run(budget).to_arrow()["x"].type for budget in (None, Budget(0.5), Budget(seconds=60.0))}
        assert kinds == {pa.float64()}
    for asked in (
        "SELECT a.v AS p, r.v AS q FROM a, r WHERE a.x = r.x",
        "SELECT a.v AS p, r.v AS q FROM a LEFT JOIN r ON a.x = r.x AND a.y = r.y",
        "SELECT a.v AS p, a.t AS q FROM a WHERE x IN (SELECT x FROM r WHERE y = 1)",
    ):
        assert rows_of(db.sql(asked).to_arrow()) == rows_of(judge.sql(asked).to_arrow_table()) != Counter()


def rows_of(table: pa.Table) -> Counter[tuple[float, ...]]:
    return rows(table, "pq")


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("on", ["j + 1", "j", "k"])
def test_a_summary_of_one_of_the_columns_or_of_an_expression_changes_no_pair(
    on: str, preference: str, live: bool
) -> None:
    table = pa.table({"t": np.arange(200.0), "k": np.arange(200) % 5, "j": np.arange(200) % 3, "n": np.arange(200)})
    text = "SELECT x.n AS a, y.n AS b FROM x, y WHERE x.k = y.k AND x.j + 1 = y.j + 1"
    want = {(a, b) for a in range(200) for b in range(200) if a % 15 == b % 15 and abs(a - b) <= 40}
    with nile.connect() as db:
        for name in "xy":
            if live:
                db.stream(name, table.schema, time="t")
            else:
                db.register(name, table, time="t")
            db.sql(f"CREATE SUMMARY s{name} ON {name} ({on}) WITH GRANULARITY '1 s' AND COLLAPSE (2, 3)")
        for name in "xy" if live else ():
            db.push(name, table)
        for costs in ("engine", "machine"):
            for budget in (0.3, 1.0):
                asked = f"{text} WITH PREFERENCE {preference} WINDOW '40 s' BUDGET {budget}"
                found = db.sql(asked, costs=costs).to_arrow()
                pairs = list(zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True))
                assert len(pairs) == len(set(pairs))
                assert set(pairs) <= want
                assert budget < 1.0 or preference == "asc" or set(pairs) == want


@pytest.mark.parametrize("costs", ["engine", "machine"])
@pytest.mark.parametrize("asked", ["count(*) AS n", "sum(v) AS n", "count(DISTINCT v) AS n"])
def test_numbers_within_a_whole_budget_are_exact(asked: str, costs: str) -> None:
    """One key's tuples are told by a count sketch only where what is granted pays for no more."""
    draw = np.random.default_rng(395)
    table = pa.table({"t": np.arange(3_000.0), "j": draw.integers(0, 20, 3_000), "v": draw.integers(0, 50, 3_000)})
    with nile.connect() as db:
        db.register("x", table, time="t")
        exact = db.sql(f"SELECT {asked} FROM x WHERE j = 3").fetchall()
        assert db.sql(f"SELECT {asked} FROM x WHERE j = 3 BUDGET 1.0", costs=costs).fetchall() == exact
        db.sql("CREATE SUMMARY s ON x (j) WITH GRANULARITY '60 s' AND COLLAPSE (2, 3)")
        assert db.sql(f"SELECT {asked} FROM x WHERE j = 3 BUDGET 1.0", costs=costs).fetchall() == exact


def test_weighted_may_draw_fewer_pairs_from_more_budget_which_tell_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """From where all tuples can be counted pairs are drawn evenly: fewer than those of some keys, and worth more."""
    monkeypatch.setattr(choice, "machine_prices", lambda: paced(1.15))
    rng, n = np.random.default_rng(19), 200_000

    def stream() -> pa.Table:
        k, j = ((most * rng.random(n) ** 3).astype(np.int64) for most in (300, 100))
        ts = np.sort((rng.random(n) * n * 1e8).astype(np.int64))
        return pa.table({"ts": pa.array(ts).cast(pa.timestamp("ns")), "k": k, "j": [f"n{each}" for each in j]})

    db = nile.connect().register("a", stream(), time="ts").register("b", stream(), time="ts")
    text = "SELECT a.k AS k FROM a, b WHERE a.k = b.k AND a.j = b.j {} WINDOW 600"
    exact = np.bincount(db.sql(text.format("")).to_arrow()["k"].to_numpy(), minlength=300)
    ways, pairs, quality, off, total = [], [], [], [], []
    for fraction in (0.02, 0.05, 0.1, 0.15):
        found = db.sql(text.format("WITH PREFERENCE weighted"), budget=fraction, costs="machine", seed=1)
        rows = found.to_arrow()
        weight = rows["_weight"].to_numpy()
        told = np.bincount(rows["k"].to_numpy(), weight, minlength=300)
        chosen = found.answer._join.choice.forecast
        ways.append(chosen.strategy)
        pairs.append(len(rows))
        quality.append(chosen.quality)
        off.append(float(((told / told.sum() - exact / exact.sum()) ** 2).sum()))
        total.append(abs(weight.sum() / exact.sum() - 1.0))
    change = ways.index("counts")
    assert ways == ["keys"] * change + ["counts"] * (4 - change)
    assert pairs[change] < pairs[change - 1]
    assert quality == sorted(quality)
    assert max(off[change:]) < 0.1 * min(off[:change])
    assert max(total[change:]) < 1e-6 < min(total[:change])
