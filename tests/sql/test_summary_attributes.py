"""Summaries of several columns together, and of expressions: read by every query over them, and true."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.expressions.attributes import computed, computed_types, constant_of
from nile.expressions.tree import Constant
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.sql.text import query_text
from nile.summaries.errors import ExpressionError, NotYet, SqlError

GRID = "WITH GRANULARITY '10 min' AND COLLAPSE (4, 3)"
SCHEMA = [("ts", "double"), ("x", "int64"), ("y", "int64"), ("k", "string"), ("price", "double"), ("n", "int64")]
JOINS = {
    "columns": "SELECT a.ts, b.ts FROM a, b WHERE a.x = b.x AND a.y = b.y WINDOW 90",
    "expression": "SELECT a.ts, b.ts FROM a, b WHERE lower(a.k) = lower(b.k) AND a.x = 3 AND b.x < 9 WINDOW 90",
    "both": "SELECT a.ts, b.n FROM a, b WHERE lower(a.k) = lower(b.k) AND a.n = b.n AND a.price < b.price WINDOW 90",
    "three": "SELECT a.n, b.n, c.n FROM a, b, a c WHERE a.x = b.x AND a.y = b.y AND c.x = b.x AND c.y = a.y WINDOW 60",
    "star": "SELECT * FROM a, b WHERE a.x = b.x AND a.y = b.y WINDOW 90",
}
SETS = ("x, y", "lower(k)", "lower(k), n", "price * n")


def rows(n: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = {
        "ts": np.sort(draw.integers(0, 3_600, n)).astype(float),
        "x": pa.array(draw.integers(0, 20, n), mask=draw.random(n) < 0.02),
        "y": draw.integers(0, 15, n),
        "k": pa.array(np.array(["Tea", "tEA", "cup", "1:a", "a"])[draw.integers(0, 5, n)], mask=draw.random(n) < 0.02),
        "price": draw.integers(1, 30, n) / 4,
        "n": draw.integers(0, 9, n),
    }
    burst = slice(n // 2, n // 2 + 5)  # of a pair that comes nowhere else, though its parts do
    columns["y"][burst] = 15
    values = columns["x"].to_pylist()
    values[burst] = [7] * 5
    return pa.table(columns | {"x": pa.array(values, pa.int64())})


def database(n: int = 1_500, *, summaries: bool = True) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        db.register(name, rows(n, seed), time="ts")
        for number, on in enumerate(SETS if summaries else ()):
            db.sql(f"CREATE SUMMARY {name}{number} ON {name} ({on}) {GRID} USING columns = 256")
    return db


def told(table: pa.Table) -> Counter[Any]:
    kept = table.select([name for name in table.column_names if name != "_weight"])
    return Counter(tuple(row.values()) for row in kept.to_pylist())


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("preference", ["asc", "weighted", pytest.param("desc", marks=pytest.mark.slow)])
def test_joins_are_true_and_whole_at_the_full_budget(name: str, preference: str) -> None:
    db, text = database(), JOINS[name]
    exact = told(database(summaries=False).sql(text).to_arrow())
    assert exact
    asked = f"{text} WITH PREFERENCE {preference}"
    whole = db.sql(f"{asked} BUDGET 1", outlier_cap=10_000, guide="countsketch").to_arrow()
    assert told(whole) == exact
    part = told(db.sql(f"{asked} BUDGET 0.3", guide="countsketch").to_arrow())
    assert part <= exact


@pytest.mark.parametrize("name", ["columns", "expression", "both", "three"])
def test_a_join_visits_what_the_summaries_say_and_explain_names_them(name: str) -> None:
    db = database(6_000)
    asked = f"{JOINS[name]} WITH PREFERENCE desc BUDGET 0.1"
    number = {"columns": 0, "three": 0, "expression": 1, "both": 2}[name]
    claimed = db.sql(asked, guide="countsketch").explain()
    assert f"summaries a{number} (a), b{number} (b)" in claimed
    seen = db.sql(asked, guide="countsketch").to_arrow().num_rows
    for stream in "ab":
        db.summary(f"{stream}{number}").store.side.counters[:] = 0
    assert db.sql(asked, guide="countsketch").to_arrow().num_rows < seen
    for stream in "ab":
        for each in range(len(SETS)):
            db.sql(f"DROP SUMMARY {stream}{each}")
    if name == "expression":  # which is a key only where a summary is of it
        with pytest.raises(NotYet, match="needed one key"):
            db.sql(asked)
    else:
        assert "summar" not in db.sql(asked, guide="directory").explain()


WHERE = {
    "x = 7 AND y = 15": "x, y",
    "y IN (1, 15, 77) AND x IN (7, 98)": "x, y",
    "lower(k) = 'tea' AND ts > 1000": "lower(k)",
    "n = 4 AND lower(k) IN ('tea', 'a')": "lower(k), n",
    "price * n > 40": "price * n",
    "price * n BETWEEN 3 AND 5 OR lower(k) = 'cup'": "price * n",
}


@pytest.mark.parametrize("where", WHERE)
def test_selections_and_aggregates_read_them_and_are_true(where: str) -> None:
    db, plain = database(), database(summaries=False)
    number = SETS.index(WHERE[where])
    exact = told(plain.sql(f"SELECT ts, x, price FROM a WHERE {where}").to_arrow())
    asked = f"SELECT ts, x, price FROM a WHERE {where} WITH PREFERENCE desc ({WHERE[where]})"
    assert f"summary a{number} has none" in db.sql(f"{asked} BUDGET 0.5").explain()
    assert told(db.sql(f"{asked} BUDGET 1").to_arrow()) == exact
    assert told(db.sql(f"{asked} BUDGET 0.5").to_arrow()) <= exact
    counted = f"SELECT count(*) AS n, sum(price) AS total FROM a WHERE {where}"
    (whole,) = plain.sql(counted).to_arrow().to_pylist()
    (found,) = db.sql(f"{counted} BUDGET 1").to_arrow().to_pylist()
    assert (found["n"], found["total"] or 0) == (whole["n"], pytest.approx(whole["total"] or 0))


def visited(db: nile.Database, text: str) -> tuple[int, Any]:
    """How many rows are found, and what the run did."""
    result = db.sql(text, seed=1)
    return result.to_arrow().num_rows, result.answer.figures


BURSTS = {
    "x = 7 AND y = 15": "x, y",
    "y IN (15, 77) AND x IN (7, 98)": "x, y",
    "lower(k) = 'rare'": "lower(k)",
    "n = 77 AND lower(k) IN ('tea', 'rare')": "lower(k), n",
    "price * n > 500": "price * n",
}
"""Conditions that hold in one burst alone, and what tells where it is."""


def bursting() -> pa.Table:
    table = rows(12_000, 3)
    k, n = table["k"].to_pylist(), table["n"].to_numpy().copy()
    k[3_000:3_100] = ["RARE"] * 100
    n[3_000:3_100] = 77
    y, x = table["y"].to_numpy().copy(), table["x"].to_pylist()
    y[3_000:3_100], x[3_000:3_100] = 15, [7] * 100
    for name, column in (("x", pa.array(x, pa.int64())), ("y", y), ("k", k), ("n", n)):
        table = table.set_column(table.column_names.index(name), name, pa.array(column))
    return table


@pytest.mark.parametrize("where", BURSTS)
@pytest.mark.parametrize("asked", ["selection", "aggregate"])
def test_without_its_counters_or_itself_a_summary_of_several_changes_what_is_visited(where: str, asked: str) -> None:
    db = nile.connect()
    db.register("a", bursting(), time="ts")
    on = BURSTS[where]
    db.sql(f"CREATE SUMMARY m ON a ({on}) {GRID} USING columns = 1024")
    text = f"SELECT ts FROM a WHERE {where} WITH PREFERENCE desc ({on}) BUDGET 0.3"
    if asked == "aggregate":
        text = f"SELECT count(*) AS n FROM a WHERE {where} BUDGET 0.1"
    claimed = db.sql(text).explain()
    assert "summary m has none" in claimed
    _, figures = visited(db, text)
    assert figures.ruled_out > 5_000
    db.summary("m").store.side.counters[:] = 0
    _, blind = visited(db, text)
    assert blind.ruled_out > 11_900  # nothing is promised anywhere; nulls are in no cell
    db.sql("DROP SUMMARY m")
    if asked == "selection":
        with pytest.raises(SqlError, match="needed what a summary of a is of"):
            db.sql(text)
    else:
        assert db.sql(text).explain() != claimed
        assert visited(db, text)[1].ruled_out == 0


@pytest.mark.parametrize("where", [where for where in BURSTS if ">" not in where])
def test_progress_leaves_out_what_a_summary_of_several_rules_out_and_ends_the_same(where: str) -> None:
    db = nile.connect()
    table = bursting()
    db.stream("a", table.schema, time="ts")
    db.push("a", table)
    texts = (
        f"SELECT ts, x FROM a WHERE {where}",
        f"SELECT ts, x FROM a WHERE {where} WITH PREFERENCE weighted x",
        f"SELECT count(*) AS n, sum(price) AS p FROM a WHERE {where}",
    )

    def asked(text: str) -> tuple[Counter[Any], str]:
        growing = db.sql(text).progress()
        return [told(found.to_arrow()) for found in growing][-1], growing.explain()

    plain = {text: asked(text) for text in texts}
    db.sql(f"CREATE SUMMARY m ON a ({BURSTS[where]}) {GRID} USING columns = 1024")
    for text in texts:
        rows_found, explained = asked(text)
        assert rows_found == plain[text][0]
        assert "summary m rules out" in explained
        assert "summary m rules out 0 " not in explained
    db.summary("m").store.side.counters[:] = 0
    for text in texts:
        rows_found, explained = asked(text)
        assert re.search(r"summary m rules out 1(2,000|1,9\d\d) tuples", explained)
        assert rows_found != plain[text][0]
    db.sql("DROP SUMMARY m")
    for text in texts:
        rows_found, explained = asked(text)
        assert (rows_found, "summary m" in explained) == (plain[text][0], False)


def test_a_summary_of_a_pair_leaves_out_the_zones_that_its_columns_do_not() -> None:
    db = database(20_000)
    asked = "SELECT count(*) AS n FROM a WHERE x = 7 AND y = 15 BUDGET 0.1"
    result = db.sql(asked)
    result.fetchall()
    assert result.answer.figures.ruled_out > 10_000
    db.sql("DROP SUMMARY a0")
    result = db.sql(asked)
    result.fetchall()
    assert result.answer.figures.ruled_out == 0


def test_two_are_equal_where_all_their_parts_are() -> None:
    texts = ["", "1", ":", "1:", "11:1", "a\x1f", "1:11:1", None]
    pairs = list(product(texts, texts))
    batch = pa.RecordBatch.from_pydict({"p": [p for p, _ in pairs], "q": [q for _, q in pairs]})
    made = computed(("p", "q"), batch, where="here").to_pylist()
    kept = [pair for pair in pairs if None not in pair]
    assert [text is None for text in made] == [None in pair for pair in pairs]
    assert len(set(filter(lambda text: text is not None, made))) == len(kept)
    numbers = pa.RecordBatch.from_pydict({"p": [0.0, -0.0, 1.5, float("nan")], "q": [True, True, False, False]})
    same, negative, other, odd = computed(("p", "q"), numbers, where="here").to_pylist()
    assert same == negative
    assert len({same, other, odd}) == 3
    types = computed_types(("p", "q"), numbers.schema, where="here")
    assert constant_of([Constant(0, "integer"), Constant(True, "boolean")], types) == same
    assert constant_of([Constant("0", "text"), Constant(True, "boolean")], types) is None


def test_a_live_stream_keeps_them_and_forgets_what_is_taken_back(tmp_path: Path) -> None:
    schema = pa.schema(
        [(name, {"double": pa.float64(), "int64": pa.int64(), "string": pa.string()}[kind]) for name, kind in SCHEMA]
    )
    text = f"CREATE SUMMARY both ON s (lower(k), n) {GRID}"
    db = nile.connect(tmp_path / "store")
    db.stream("s", schema, time="ts")
    db.sql(text)
    table = rows(2_000, 5).cast(schema)
    db.push("s", table.slice(0, 1_500))
    db.sql("DELETE FROM s WHERE n = 4")
    db.push("s", table.slice(1_500))
    db.advance(4_000)
    counters = db.summary("both").store.side.counters.copy()
    kept = db.sql("SELECT * FROM s").to_arrow().num_rows
    assert db.summary("both").store.tuples == kept < 2_000
    asked = "SELECT count(*) AS n FROM s WHERE lower(k) = 'tea' AND n = 4 BUDGET 1"
    found = db.sql(asked).fetchall()
    db.close()
    with nile.connect(tmp_path / "store") as again:
        assert np.array_equal(again.summary("both").store.side.counters, counters)
        assert again.sql(asked).fetchall() == found
        (shown,) = again.sql("SHOW SUMMARIES").to_arrow().to_pylist()
        assert (shown["column"], shown["tuples"]) == ("lower(k), n", kept)
        made = again._names.summaries["both"]
        assert statement_text(made) == statement_text(read_statement(text, again._names))


def test_a_preference_names_what_a_summary_is_of() -> None:
    db = database()
    text = "SELECT b.ts FROM a, b WHERE a.x = b.x AND a.y = b.y WINDOW 90 WITH PREFERENCE desc"
    for term in (
        "COUNT(a.x, a.y)",
        "SUMMARY.Estimate.Count(b.x, b.y)",
        "(a.x, a.y)",
        "COUNT(a.x, a.y), COUNT(b.x, b.y)",
    ):
        result = db.sql(f"{text} {term} BUDGET 0.2")
        assert "join a.(x, y) = b.(x, y)" in result.explain()
        assert db.sql(query_text(result.query)).to_arrow() == result.to_arrow()
    assert "join a.x = b.x" in db.sql(f"{text} COUNT(a.x) BUDGET 0.2").explain()
    same = db.sql(f"{text} COUNT((a.x)) BUDGET 0.2").to_arrow()
    assert same == db.sql(f"{text} a.x BUDGET 0.2").to_arrow()


REFUSED = {
    f"CREATE SUMMARY s ON a (x, x) {GRID}": "needed each attribute once; got x again",
    f"CREATE SUMMARY s ON a (x,) {GRID}": "needed a column or an expression; got none",
    f"CREATE SUMMARY s ON a (1 + 1) {GRID}": "needed an expression over columns of a",
    f"CREATE SUMMARY s ON a (sum(x)) {GRID}": "needed single rows in a summary; got an aggregate",
    f"CREATE SUMMARY s ON a (lower(kk)) {GRID}": "needed a column",
    f"CREATE SUMMARY s ON a (lower(k) {GRID}": "needed '\\)' at the end of the list",
    f"CREATE SUMMARY s ON a (x {GRID}": "needed",
    f"CREATE SUMMARY s ON a (lower(x)) {GRID}": "lower",
    "SELECT ts FROM a WHERE x = 1 WITH PREFERENCE desc (x, n) BUDGET 0.5": "needed what a summary of a is of",
    "SELECT a.ts FROM a, b WHERE a.x = b.x WITH PREFERENCE desc (a.x, b.y) WINDOW 9": "attributes of one stream",
    "SELECT ts FROM a WHERE x = 1 WITH PREFERENCE desc COUNT(sum(x), y) BUDGET 0.5": "needed expressions over columns",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises((SqlError, ExpressionError), match=REFUSED[text]):
        database(10).sql(text)


def test_ways_that_count_columns_alone_refuse_the_preference_and_answer_the_condition() -> None:
    db = nile.connect()
    db.stream("s", SCHEMA, time="ts")
    db.sql(f"CREATE SUMMARY both ON s (x, y) {GRID}")
    db.push("s", rows(300, 1))
    text = "SELECT ts FROM s WHERE x = 3 AND y = 4 WITH PREFERENCE desc"
    with pytest.raises(NotYet, match="needed a preference over columns"):
        db.subscribe(f"{text} (x, y) BUDGET 0.5")
    with pytest.raises(NotYet, match="needed a preference over one column"):
        db.sql(f"{text} (x, y)").progress()
    standing = db.subscribe(f"{text} x BUDGET 0.5")
    standing.close()
