"""Conditions that follow from others through a join: the same rows, fewer of them read."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import nile

SECOND = 1_000_000
ZERO = "TIMESTAMP '1970-01-01 00:00:{:02d}'"


def table(source: random.Random, rows: int, *, timed: bool = True) -> pa.Table:
    times = sorted(source.randrange(30 * SECOND) for _ in range(rows))
    columns: dict[str, Any] = {
        "k": pa.array([None if source.random() < 0.1 else source.randrange(6) for _ in range(rows)]),
        "x": pa.array([source.choice((0.0, -0.0, 1.5, float("nan"), None)) for _ in range(rows)]),
        "w": pa.array([source.choice(("a", "b", "", None)) for _ in range(rows)]),
        "v": pa.array(range(rows)),
    }
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), **columns} if timed else columns)


def condition(source: random.Random, of: str, *, timed: bool = True) -> str:
    k, s = source.randrange(6), source.randrange(30)
    choices = [
        f"{of}.k = {k}", f"{of}.k < {k}", f"{k} >= {of}.k", f"{of}.k IN (1, {k})", f"{of}.k BETWEEN 1 AND {k}",
        f"NOT ({of}.k = {k} OR {of}.k > 4)", f"{of}.x <= 0.0", f"{of}.x > 0", f"{of}.x = -0.0", f"{of}.w LIKE 'a%'",
        f"{of}.w <> 'b'", f"{of}.k IS NOT NULL", f"{of}.k + {of}.v > 4",
    ]  # fmt: skip
    if timed:
        low, high = ZERO.format(s), ZERO.format(min(s + 4, 59))
        choices += [
            f"{of}.ts > {low}", f"{high} > {of}.ts", f"{of}.ts BETWEEN {low} AND {high}", f"{of}.ts = {low}",
            f"{of}.ts >= {low} AND {of}.ts < {high}",
        ]  # fmt: skip
    return source.choice(choices)


def both(db: nile.Database, ours: str, theirs: str, tables: dict[str, pa.Table]) -> None:
    con = duckdb.connect()
    for name, each in tables.items():
        con.register(name, each)
    assert sorted(map(repr, db.sql(ours).fetchall())) == sorted(map(repr, con.sql(theirs).fetchall())), ours


@pytest.mark.parametrize("seed", range(12))
def test_joins_of_streams_have_the_rows_that_they_have_in_duckdb(seed: int) -> None:
    source = random.Random(seed)
    tables = {name: table(source, 60) for name in "abc"}
    with nile.connect() as db:
        for name, each in tables.items():
            db.register(name, each, time="ts")
        for _ in range(12):
            key = source.choice("kxw")
            on = f"a.{key} = b.{key}"
            asked = " AND ".join(condition(source, source.choice("ab")) for _ in range(source.choice((1, 1, 2))))
            seconds = source.choice((1, 3, 9))
            near = f"abs(epoch_us(a.ts) - epoch_us(b.ts)) <= {seconds * SECOND}"
            both(
                db,
                f"SELECT a.v, b.v AS w FROM a JOIN b ON {on} WHERE {asked} WINDOW {seconds}",
                f"SELECT a.v, b.v AS w FROM a JOIN b ON {on} WHERE {asked} AND {near}",
                tables,
            )
            other = source.choice((1, 5))
            both(
                db,
                f"SELECT a.v, b.v AS w FROM a [RANGE {seconds}], b [RANGE {other}] WHERE {on} AND {asked}",
                f"SELECT a.v, b.v AS w FROM a JOIN b ON {on} WHERE {asked} AND epoch_us(a.ts) - epoch_us(b.ts) <= "
                f"{other * SECOND} AND epoch_us(b.ts) - epoch_us(a.ts) <= {seconds * SECOND}",
                tables,
            )
            third = condition(source, "c")
            far = f"abs(epoch_us(b.ts) - epoch_us(c.ts)) <= {other * SECOND}"
            both(
                db,
                f"SELECT a.v, b.v AS w, c.v AS u FROM a, b, c WHERE {on} AND b.k = c.k AND {asked} AND {third} "
                f"WINDOW (a, b) = {seconds} AND (b, c) = {other}",
                f"SELECT a.v, b.v AS w, c.v AS u FROM a, b, c WHERE {on} AND b.k = c.k AND {asked} AND {third} "
                f"AND {near} AND {far}",
                tables,
            )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("join", ["LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "INNER"])
def test_joins_of_relations_have_the_rows_that_they_have_in_duckdb(seed: int, join: str) -> None:
    source = random.Random(seed)
    tables = {name: table(source, 40, timed=False) for name in "ab"}
    shown = "a.v" if join in ("SEMI", "ANTI") else "a.v, b.v AS w"
    with nile.connect() as db:
        for name, each in tables.items():
            db.register(name, each)
        for _ in range(8):
            key = source.choice("kxw")
            sides = "a" if join in ("SEMI", "ANTI") else "ab"
            asked = condition(source, source.choice(sides), timed=False)
            also = f" AND {condition(source, source.choice('ab'), timed=False)}" if source.random() < 0.5 else ""
            query = f"SELECT {shown} FROM a {join} JOIN b ON a.{key} = b.{key}{also} WHERE {asked}"
            both(db, query, query, tables)


def test_partners_of_what_is_asked_for_are_asked_for_too() -> None:
    source = random.Random(1)
    with nile.connect() as db:
        db.register("a", table(source, 100), time="ts")
        db.register("b", table(source, 100), time="ts")
        db.register("r", table(source, 100, timed=False))
        told = db.sql(
            f"EXPLAIN SELECT a.v, b.v AS w, r.v AS u FROM a JOIN b ON a.k = b.k JOIN r ON b.k = r.k "
            f"WHERE a.k = 3 AND a.ts > {ZERO.format(10)} AND a.ts <= {ZERO.format(12)} WINDOW 5"
        ).fetchall()[0][0]
        told = " ".join(told.split())
        assert "b.ts >= TIMESTAMP '1970-01-01 00:00:05' AND b.ts <= TIMESTAMP '1970-01-01 00:00:17' AND b.k = 3" in told
        assert "r.k = 3" in told
        told = db.sql("EXPLAIN SELECT r.v FROM r LEFT JOIN r AS q ON r.k = q.k WHERE r.k < 2").fetchall()[0][0]
        assert "where q.k < 2" in told
        told = db.sql("EXPLAIN SELECT a.v FROM a [ROWS 3] JOIN b [ROWS 2] ON a.k = b.k WHERE a.k < 2").fetchall()[0][0]
        assert "b.k < 2" not in told  # the last two tuples are counted before they are selected
