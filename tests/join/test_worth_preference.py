"""WITH PREFERENCE desc COUNT(key) * worth: pairs, and tuples, by how many there are times what they are worth."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.sql.text import query_text
from nile.summaries.errors import BudgetError, ConfigError, KeyTypeError, NotYet, SqlError, UnknownColumn

JOIN = "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WINDOW 40"
BY = {
    "COUNT(a.k)": lambda a, b: 1.0,
    "COUNT(a.k) * a.price": lambda a, b: a["price"],
    "SUMMARY.Estimate.Count(a.k) × (a.price * a.n)": lambda a, b: a["price"] * a["n"],
    "COUNT(a.k) * a.price, COUNT(b.k) * (b.price - 4)": lambda a, b: a["price"] * abs(b["price"] - 4),
    "COUNT(a.k) * a.k": lambda a, b: a["k"],
    "COUNT(b.k) * b.price": lambda a, b: b["price"],
}


def table(n: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    key = np.floor(30 * draw.random(n) ** 2).astype(np.int64)
    price = pa.array(draw.exponential(4.0, n), mask=draw.random(n) < 0.05)
    keys = pa.array(key, mask=draw.random(n) < 0.03)
    return pa.table({"ts": np.sort(draw.integers(0, 500, n)) * 1.0, "k": keys, "price": price, "n": np.arange(n)})


def database(n: int = 400, seed: int = 0) -> nile.Database:
    db = nile.connect()
    for number, name in enumerate("ab"):
        db.register(name, table(n, 2 * seed + number), time="ts")
    return db


def told(found: pa.Table) -> list[tuple[int, int]]:
    return [(row["n"], row["m"]) for row in found.to_pylist()]


def ranked(n: int, seed: int, by: str) -> list[tuple[float, list[tuple[int, int]]]]:
    """Of each tuple that completes pairs, what it is preferred by and its pairs: by the definition, most first."""
    left, right = (table(n, 2 * seed + number).to_pylist() for number in (0, 1))
    worth = BY[by]
    sides = (left, right)
    one = {"price": 1.0, "n": 1.0, "k": 1.0}

    def own(side: int, row: dict[str, Any]) -> float:
        known = {name: 0.0 if value is None else float(value) for name, value in row.items()}
        if side == 1 and row["price"] is None and "b.price" in by:
            return 0.0
        return float(
            worth(known, one | {"price": 5.0 if "b.price -" in by else 1.0}) if side == 0 else worth(one, known)
        )

    means: list[dict[int, float]] = []
    for side in (0, 1):
        by_key: dict[int, list[float]] = {}
        for row in sides[side]:
            if row["k"] is not None:
                by_key.setdefault(row["k"], []).append(own(side, row))
        means.append({key: float(np.mean(each)) for key, each in by_key.items()})
    arrivals = sorted([(row["ts"], side, row["n"], row) for side in (0, 1) for row in sides[side]], key=lambda x: x[:3])
    seen: tuple[list[Any], list[Any]] = ([], [])
    made = []
    for ts, side, _, row in arrivals:
        partners = [other for other in seen[1 - side] if other["k"] == row["k"] and ts - other["ts"] <= 40]
        if row["k"] is not None:
            seen[side].append(row)
            if partners:
                pairs = [(row["n"], p["n"]) if side == 0 else (p["n"], row["n"]) for p in reversed(partners)]
                made.append((len(partners) * own(side, row) * means[1 - side][row["k"]], pairs))
    return sorted(made, key=lambda each: -each[0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by", BY)
def test_the_first_pairs_are_those_that_are_worth_most_by_the_definition(by: str, seed: int) -> None:
    found = told(database(150, seed).sql(f"{JOIN} WITH PREFERENCE desc {by} LIMIT 90").to_arrow())
    wanted = ranked(150, seed, by)
    worth = {pair: value for value, pairs in wanted for pair in pairs}
    best = [value for value, pairs in wanted for _ in pairs][:90]
    assert [worth[pair] for pair in found] == pytest.approx(best)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("budget", [0.02, 0.1, 0.3, 0.6, 1.0])
def test_a_budget_is_kept_and_what_is_found_is_true(budget: float) -> None:
    db = database(1_500)
    exact = Counter(told(db.sql(JOIN).to_arrow()))
    worth = (
        {pair: value for value, pairs in ranked(1_500, 0, "COUNT(a.k) * a.price") for pair in pairs}
        if budget == 0.6
        else {}
    )
    answer = db.sql(f"{JOIN} WITH PREFERENCE desc COUNT(a.k) * a.price BUDGET {budget}", costs="engine")
    found = Counter(told(answer.to_arrow()))
    assert found <= exact
    assert found
    assert answer.estimate.value == exact.total()
    if budget == 1.0:
        assert found == exact
        return
    assert answer.budget.spent <= budget * (1 + 1e-9)
    figures = answer.figures
    assert figures.arrivals == figures.admitted + figures.nulls + sum(figures.shed)
    assert (sum(figures.shed) > 0) == (budget < 0.2)
    if worth:
        plain = told(db.sql(f"{JOIN} WITH PREFERENCE desc COUNT(a.k) BUDGET {budget}", costs="engine").to_arrow())
        assert sum(worth[pair] for pair in found) > 1.2 * sum(worth[pair] for pair in plain[: found.total()])


def test_outliers_come_by_what_they_are_worth_least_first() -> None:
    db = database(300)
    plain = told(db.sql(f"{JOIN} WITH PREFERENCE asc COUNT(a.k) BUDGET 1", outlier_cap=5).to_arrow())
    found = told(db.sql(f"{JOIN} WITH PREFERENCE asc COUNT(a.k) * a.price BUDGET 1", outlier_cap=5).to_arrow())
    assert Counter(found) == Counter(plain)
    assert found != plain


def test_selections_go_by_what_the_tuples_of_their_values_are_worth() -> None:
    draw = np.random.default_rng(4)
    n = 20_000
    key = draw.integers(0, 64, n)
    gain = np.where(key // 4 == 3, 50.0, 1.0) * draw.exponential(1.0, n)
    db = nile.connect()
    db.register("s", {"ts": np.arange(n) * 1.0, "k": key, "gain": gain}, time="ts")
    asked = db.select("s", on="k", predicates={f"q{i}": f"k BETWEEN {4 * i} AND {4 * i + 3}" for i in range(16)})
    sums = {}
    for by in ("share", "gain", "2 * gain", "k - k"):
        rows = asked.prefer("desc", by=by).run(0.1).to_arrow()["ordinal"].to_numpy()
        sums[by] = float(gain[rows].sum())
    assert sums["gain"] > 2 * sums["share"]
    assert sums["2 * gain"] == sums["gain"]
    assert "count times 2 * gain" in asked.prefer("desc", by="2 * gain").explain()
    with pytest.raises(UnknownColumn):
        asked.prefer("desc", by="gian")


def test_a_selection_in_sql_is_true() -> None:
    db = database(2_000)
    where = "SELECT n FROM a WHERE k > 4 AND price > 1"
    exact = set(db.sql(where).to_arrow()["n"].to_pylist())
    asked = f"{where} WITH PREFERENCE desc COUNT(k) * (price * n) BUDGET"
    assert exact.issuperset(db.sql(f"{asked} 0.3").to_arrow()["n"].to_pylist())
    assert exact == set(db.sql(f"{asked} 1").to_arrow()["n"].to_pylist())
    assert "regions by count times price * n" in db.sql(f"{asked} 0.3").explain()


def test_it_is_written_out_as_it_was_read_and_explained() -> None:
    db = database(50)
    for term in BY:
        asked = db.sql(f"{JOIN} WITH PREFERENCE desc {term} BUDGET 50 %")
        again = query_text(asked.query)
        assert query_text(db.sql(again).query) == again
        assert db.sql(again).to_arrow() == asked.to_arrow()
    told = db.sql(f"{JOIN} WITH PREFERENCE desc COUNT(a.k) * (a.price * 2) BUDGET 50 %").explain()
    assert "preference desc by count(a.k) * (a.price * 2)" in told
    assert "every tuple's matches are counted, and multiplied by |price * 2| of a" in told


REFUSED = [
    ("WITH PREFERENCE weighted COUNT(a.k) * a.price BUDGET 0.5", ConfigError, "faithful to all pairs alike"),
    ("WITH PREFERENCE desc COUNT(a.k) * a.price BUDGET 2 SECONDS", BudgetError, "as a fraction or in outputs"),
    ("WITH PREFERENCE desc COUNT(a.k) * a.price FADE FACTOR 0.5 BUDGET 0.5", ConfigError, "fade factor"),
    ("AND a.n < b.n WITH PREFERENCE desc COUNT(a.k) * a.price BUDGET 0.5", ConfigError, "a condition on the pair"),
    ("WITH PREFERENCE desc COUNT(a.k) * (a.price + b.price) BUDGET 0.5", SqlError, "columns of one stream"),
    ("WITH PREFERENCE desc COUNT(a.k) * 3 BUDGET 0.5", SqlError, "needed expressions over columns"),
    ("WITH PREFERENCE desc COUNT(a.k) * BUDGET 0.5", SqlError, "needed"),
    ("WITH PREFERENCE desc COUNT(a.k) * lower(a.t) BUDGET 0.5", SqlError, "needed"),
]


@pytest.mark.parametrize(("clause", "error", "says"), REFUSED)
def test_what_cannot_be_is_refused(clause: str, error: type[Exception], says: str) -> None:
    text = JOIN.replace(" WINDOW 40", "")
    with pytest.raises(error, match=says):
        database(20).sql(f"{text} {clause} WINDOW 40").to_arrow()


def test_a_worth_is_a_number_and_other_ways_refuse_it() -> None:
    db = nile.connect()
    for name in "ab":
        db.stream(
            name, [("ts", "double"), ("k", "int64"), ("price", "double"), ("t", "string"), ("n", "int64")], time="ts"
        )
        db.push(
            name,
            [{"ts": 1.0, "k": 1, "price": 2.0, "t": "x", "n": 0}, {"ts": 2.0, "k": 1, "price": 2.0, "t": "x", "n": 1}],
        )
    with pytest.raises(KeyTypeError, match="needed a number that a count is multiplied by; got string"):
        db.sql(f"{JOIN} WITH PREFERENCE desc COUNT(a.k) * a.t BUDGET 0.9").to_arrow()
    text = f"{JOIN} WITH PREFERENCE desc COUNT(a.k) * a.price"
    with pytest.raises(NotYet, match="over expressions"):
        db.subscribe(f"{text} BUDGET 0.5")
    with pytest.raises(NotYet, match="what tuples are worth"):
        db.sql(text).progress()
