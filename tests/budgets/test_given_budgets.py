"""Budgets as people give them: numbers of numpy, one at a time; DISTINCT within one; windows of no length."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.summaries.errors import BudgetError, NotYet

JOIN = "SELECT {} FROM a, b WHERE a.k = b.k WINDOW {}"
PREFERENCES = ("desc", "asc", "weighted")


def database(n: int = 3_000) -> nile.Database:
    """Three streams, in whose times whole seconds come again and again."""
    db = nile.connect()
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        given = {"t": np.sort(rng.integers(0, 400, n)) * 1.0, "k": rng.integers(0, 20, n), "v": rng.integers(0, 9, n)}
        db.register(name, pa.table(given), time="t")
    return db


def rows(answer: nile.Result) -> list[str]:
    return sorted(map(str, answer.to_arrow().to_pylist()))


@pytest.mark.parametrize("given", [np.float64(0.25), np.float32(0.25), np.float16(0.25)])
def test_a_number_of_numpy_is_the_budget_that_it_is_as_pythons_own(given: Any) -> None:
    assert nile.Budget(fraction=given) == nile.Budget(fraction=0.25)
    assert type(nile.Budget(fraction=given).fraction) is float
    assert nile.Budget(outputs=np.int32(7)) == nile.Budget(outputs=7)
    db, text = database(), JOIN.format("a.k, b.v", "'9 s'") + " WITH PREFERENCE desc a.k"
    assert rows(db.sql(text, budget=given)) == rows(db.sql(text, budget=0.25))


@pytest.mark.parametrize("given", [np.nan, np.float32(np.inf), np.float64(-1), np.int64(0), np.bool_(True), True])
def test_what_is_no_amount_is_refused_whoever_holds_it(given: Any) -> None:
    with pytest.raises(BudgetError, match="needed a fraction above 0"):
        nile.Budget(fraction=given)


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 5",
        "SELECT count(*) AS n FROM a",
        "SELECT k FROM a WITH PREFERENCE desc k",
    ],
)
@pytest.mark.parametrize("said", ["BUDGET 0.9", "BUDGET 5 OUTPUTS", "BY DEADLINE '20 s'"])
def test_a_query_is_given_one_budget(asked: str, said: str) -> None:
    db = database()
    message = "query, budget: needed one; got .* in the statement, and 0.5 of the exact cost beside it; leave one of"
    for text in (f"{asked} {said}", f"EXPLAIN {asked} {said}"):
        with pytest.raises(BudgetError, match=message):
            db.sql(text, budget=0.5)
    assert db.sql(asked, budget=0.5).to_arrow().num_rows


def test_a_standing_query_is_given_one_budget() -> None:
    db = nile.connect()
    for name in "ab":
        db.stream(name, pa.schema([("t", pa.float64()), ("k", pa.int64())]), time="t")
    text = "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 5 "
    message = (
        "needed one; got 0.02 seconds by the clock in the statement, and 0.5 of the exact cost beside it; leave one"
    )
    with pytest.raises(BudgetError, match=message):
        db.subscribe(text + "BY DEADLINE '20 ms'", budget=0.5)
    assert db.subscribe(text, budget=np.float64(0.5)).budget.asked == 0.5


@pytest.mark.parametrize(
    ("clause", "told"),
    [
        ("BY DEADLINE '20 ms'", "budget: 0.02 seconds by the clock"),
        ("BUDGET 2 SECONDS", "budget: 2 CPU seconds in all"),
        ("BUDGET 10 %", "budget: 0.1 of the exact cost"),
        ("BUDGET 9 OUTPUTS", "budget: 9 outputs"),
    ],
)
def test_explain_says_of_what_a_budget_is(clause: str, told: str) -> None:
    text = JOIN.format("a.k", 5) + f" WITH PREFERENCE desc a.k {clause}"
    assert told in database().sql(f"EXPLAIN {text}").to_arrow().column("plan")[0].as_py().splitlines()


@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize("budget", ["", "BUDGET 1", "BUDGET 30 %", "BUDGET 9 SECONDS", "BUDGET 40 OUTPUTS"])
def test_distinct_rows_of_a_join_are_those_of_what_was_found(preference: str, budget: str) -> None:
    db, asked = database(), JOIN.format("{} a.k, b.v + 1 AS w", 3) + f" WITH PREFERENCE {preference} a.k {budget}"
    found = db.sql(asked.format("DISTINCT")).to_arrow().to_pylist()
    every = db.sql(asked.format("")).to_arrow().select(["k", "w"]).to_pylist()
    assert len(found) == len({tuple(row.items()) for row in found})
    assert {tuple(row.items()) for row in found} == {tuple(row.items()) for row in every}


def test_distinct_keys_come_in_the_order_of_the_preference() -> None:
    db = database()
    of_key = Counter(db.sql(JOIN.format("a.k", 3)).to_arrow().column("k").to_pylist())
    most = sorted(of_key, key=lambda key: (-of_key[key], key))[:3]
    text = JOIN.format("DISTINCT a.k", 3) + " WITH PREFERENCE desc a.k LIMIT 3"
    assert db.sql(text).to_arrow().column("k").to_pylist() == most


def test_distinct_rows_of_one_stream_within_a_budget_are_refused_with_the_reason() -> None:
    with pytest.raises(NotYet, match="approximate DISTINCT: needed a join, of whose outputs each row comes once"):
        database().sql("SELECT DISTINCT k FROM a WITH PREFERENCE desc k BUDGET 10 %").to_arrow()


EXACT = {
    "pairs": JOIN.format("a.k, a.t, b.t AS u", "{}"),
    "a condition": "SELECT a.k, a.t, b.t AS u FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW {}",
    "no key": "SELECT a.t, b.t AS u FROM a, b WHERE a.v < b.v AND a.k = 3 AND b.k = 4 WINDOW {}",
    "three": "SELECT a.t, b.v, c.v AS w FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW {}",
    "pairs of windows": "SELECT a.t, c.v FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW (a, b) = {} AND (b, c) = 1",
    "groups": "SELECT a.k, count(*) AS n, sum(b.v) AS s FROM a, b WHERE a.k = b.k GROUP BY a.k WINDOW {}",
    "a selection": "SELECT k, t FROM a WHERE v > 5 WINDOW {}",
    "groups of one": "SELECT k, count(*) AS n FROM a GROUP BY k WINDOW {}",
    "EXCEPT": "SELECT k FROM a EXCEPT SELECT k FROM b WINDOW {}",
}


@pytest.mark.parametrize("asked", EXACT)
@pytest.mark.parametrize("emit", ["append", "changes", "snapshot"])
def test_a_window_of_no_length_joins_what_comes_at_one_time(asked: str, emit: str) -> None:
    db, text = database(), EXACT[asked]
    emit = "append" if asked == "pairs of windows" else emit
    none, hardly = (db.sql(text.format(window), emit=emit).to_arrow() for window in ("0", "'1 ns'"))
    kept = [name for name in none.column_names if not name.startswith("_ts")]  # 1 ns later they have gone
    assert sorted(map(str, none.select(kept).to_pylist())) == sorted(map(str, hardly.select(kept).to_pylist()))


@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize("budget", ["", "BUDGET 1", "BUDGET 30 %", "BUDGET 20 OUTPUTS"])
@pytest.mark.parametrize("text", [EXACT["pairs"], EXACT["three"], EXACT["groups"]])
def test_a_window_of_no_length_has_the_same_preferences(text: str, preference: str, budget: str) -> None:
    db, asked = database(), f"{text} WITH PREFERENCE {preference} a.k {budget}"
    assert rows(db.sql(asked.format(0))) == rows(db.sql(asked.format("'1 ns'")))


@pytest.mark.parametrize("method", ["nile", "paper", "hash-drop", "hash-backlog", "scan", "hash-buckets", "hash-keys"])
def test_every_method_takes_a_window_of_no_length(method: str) -> None:
    query = [database().join("a", "b", on="k", window=w).prefer("desc").using(method=method) for w in (0, "1 ns")]
    none, hardly = (sorted(map(str, each.run(0.3).to_arrow().to_pylist())) for each in query)
    assert none == hardly


@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize("streams", ["ab", "abc"])
def test_standing_joins_take_a_window_of_no_length(preference: str, streams: str) -> None:
    source, told = database(), []
    for window in ("0", "'1 ns'"):
        db = nile.connect()
        for name in streams:
            db.stream(name, pa.schema([("t", pa.float64()), ("k", pa.int64())]), time="t", lateness=0)
        keys = " AND ".join(f"a.k = {name}.k" for name in streams[1:])
        named = f"SELECT a.k, a.t FROM {', '.join(streams)} WHERE {keys} WITH PREFERENCE {preference} a.k"
        asked = db.subscribe(f"{named} WINDOW {window} BUDGET 30 %")
        for at in range(0, 400, 20):
            for name in streams:
                where = f"t >= {at} AND t < {at + 20}"
                db.push(name, source.sql(f"SELECT t, k FROM {name} WHERE {where}").to_arrow())
        db.advance(500.0)
        told.append(sorted(str(row) for batch in asked.poll() for row in batch.to_pylist()))
    assert told[0] == told[1]
    assert len(told[0]) > 20


def test_a_lateness_of_nothing_counts_what_comes_late() -> None:
    db = nile.connect()
    db.stream("a", pa.schema([("t", pa.float64()), ("k", pa.int64())]), time="t", lateness=0)
    asked = db.subscribe("SELECT k FROM a")
    db.push("a", {"t": [1.0, 3.0], "k": [1, 2]})
    db.push("a", {"t": [2.0, 3.0], "k": [3, 4]})
    db.advance(9.0)
    assert [row["k"] for batch in asked.poll() for row in batch.to_pylist()] == [1, 2, 4]
    assert asked.accounting["a"].late == 1
