"""Outer joins, queries in queries, window functions and first rows that stand, with DuckDB as judge."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from judge import fresh_duckdb
from thinning import thinned

import nile
from nile.exact.pipeline import setops
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan import algebra

SCHEMA = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("k", pa.string()), ("n", pa.int64())])
QUERIES = [
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.k = b.k AND a.n < b.n",
    "SELECT a.id, b.id AS other FROM a RIGHT JOIN b ON a.k = b.k",
    "SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.k = b.k AND a.n = b.n",
    "SELECT a.id FROM a SEMI JOIN b ON a.k = b.k",
    "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND b.n > a.n)",
    "SELECT a.id FROM a WHERE a.n NOT IN (SELECT n FROM b WHERE b.k = a.k)",
    "SELECT a.id FROM a WHERE a.n = 1 OR EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND b.n > a.n)",
    "SELECT a.id, a.n NOT IN (SELECT n FROM b WHERE b.k = a.k) AS absent FROM a",
    "SELECT a.id FROM a WHERE a.n > ALL (SELECT n FROM b WHERE b.k = a.k)",
    "SELECT k, a.id, b.id AS other FROM a FULL JOIN b USING (k)",
    "SELECT k, n, count(*) AS often, grouping(k, n) AS which FROM a GROUP BY CUBE (k, n)",
    "SELECT a.k, count(*) AS often, count(b.id) AS matched FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k",
    "SELECT a.id, (SELECT max(b.n) FROM b WHERE b.k = a.k) AS most FROM a",
    "SELECT a.id, rank() OVER (PARTITION BY a.k ORDER BY a.n DESC, a.id) AS place FROM a",
    "SELECT a.id, sum(a.n) OVER (ORDER BY a.id ROWS 2 PRECEDING) AS near, lag(a.k) OVER (ORDER BY a.id) AS last FROM a",
    "SELECT a.k, string_agg(a.n, '+' ORDER BY a.n, a.id) AS t, arg_max(a.n, a.id) AS m, last(a.n ORDER BY a.id) AS l "
    "FROM a GROUP BY a.k",
    "SELECT a.k, a.id FROM a QUALIFY row_number() OVER (PARTITION BY a.k ORDER BY a.id DESC) <= 2",
    "SELECT a.k, count(*) AS often, rank() OVER (ORDER BY count(*) DESC) AS place FROM a GROUP BY a.k",
    "SELECT a.id, a.n FROM a ORDER BY a.n DESC NULLS LAST, a.id LIMIT 3",
    "SELECT t.k, count(*) AS often FROM (SELECT a.k FROM a ORDER BY a.id DESC LIMIT 4) AS t GROUP BY t.k",
]
WINDOW = 7


def rows(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    now, out = 0, []
    for at in range(count):
        now += rng.choice([0, 0, 1, 2, 5])
        out.append({"ts": now, "id": at, "k": rng.choice(["x", "y", "z", None]), "n": rng.choice([None, 0, 1, 2, 3])})
    return out


def pushed(db: nile.Database, streams: dict[str, list[dict[str, Any]]], begin: int, end: int) -> None:
    """What came from one instant on and before another, in small pieces of both streams in turn."""
    for name, held in streams.items():
        some = [row for row in held if begin <= row["ts"] < end]
        for at in range(0, len(some), 5):
            db.push(name, pa.RecordBatch.from_pylist(some[at : at + 5], schema=SCHEMA))


def summed(batches: list[pa.RecordBatch], at: int) -> Counter[tuple[Any, ...]]:
    """The changes up to an instant, added up."""
    kept: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        times = batch.column("_ts").cast("int64").to_pylist()
        for ts, row in zip(times, batch.to_pylist(), strict=True):
            _, sign, *values = row.values()
            kept[tuple(values)] += sign if ts <= at * 1_000_000_000 else 0
    assert min(kept.values(), default=0) >= 0
    return +kept


def wanted(streams: dict[str, list[dict[str, Any]]], query: str, at: int) -> Counter[tuple[Any, ...]]:
    connection = fresh_duckdb()
    for name, held in streams.items():
        inside = [row for row in held if at - WINDOW <= row["ts"] <= at]
        connection.register(name, pa.Table.from_pylist(inside, schema=SCHEMA))
    return Counter(connection.execute(query).fetchall())


@pytest.mark.parametrize("query", thinned(QUERIES, 2))
def test_a_standing_query_tells_what_duckdb_finds_at_every_instant(query: str) -> None:
    streams = {"a": rows(1, 60), "b": rows(2, 60)}
    last = max(row["ts"] for held in streams.values() for row in held)
    with nile.connect() as db:
        for name in streams:
            db.stream(name, SCHEMA, time="ts")
        standing = db.subscribe(f"{query} WINDOW {WINDOW}")
        found = []
        for at in range(0, last + 1, 3):
            pushed(db, streams, at, at + 3)
            db.advance(at + 3)
            found += standing.poll()
            assert summed(found, at + 2) == wanted(streams, query, at + 2), at


@pytest.mark.parametrize("query", QUERIES)
def test_a_store_that_opens_again_goes_on(query: str, tmp_path: Path) -> None:
    streams = {"a": rows(3, 50), "b": rows(4, 50)}
    last = max(row["ts"] for held in streams.values() for row in held)
    half, found = last // 2, []
    with nile.connect(tmp_path / "store") as db:
        for name in streams:
            db.stream(name, SCHEMA, time="ts")
        standing = db.subscribe(f"{query} WINDOW {WINDOW}", name="kept")
        pushed(db, streams, 0, half)
        found += standing.poll()
        db.checkpoint()
    with nile.connect(tmp_path / "store") as db:
        standing = db.subscription("kept")
        pushed(db, streams, half, last + 1)
        db.advance(last + 1)
        found += standing.poll()
    assert summed(found, last) == wanted(streams, query, last)


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
@pytest.mark.parametrize("kind", ["left", "right", "full", "semi", "anti"])
def test_every_scheduling_and_every_cut_tells_the_same_state(kind: Any, scheduling: Any) -> None:
    streams = {"a": rows(5, 80), "b": rows(6, 80)}
    schemas = {name: pa.schema([(f"{name}.{f.name}", f.type) for f in SCHEMA]) for name in streams}
    scans = [algebra.Scan(name, schemas[name], algebra.Range(WINDOW), at) for at, name in enumerate(streams)]
    plan = algebra.Outer(*scans, kind, (("a.k", "b.k"),), _less)
    last = max(row["ts"] for held in streams.values() for row in held)
    states = []
    for size in (1, 9, 1_000):
        pipeline = Pipeline(plan, scheduling, "snapshot")
        sources = {}
        for name, held in streams.items():
            batch = pa.RecordBatch.from_arrays(
                pa.RecordBatch.from_pylist(held, schema=SCHEMA).columns, schema=schemas[name]
            )
            times = batch.column(0).to_numpy()
            sources[name] = [(times[i : i + size], batch.slice(i, size)) for i in range(0, len(held), size)]
        found = list(pipeline.run(sources))
        states.append(Counter(tuple(row.values()) for each in found for row in each.rows.to_pylist()))
    assert states[0] == states[1] == states[2]
    connection = fresh_duckdb()
    for name, held in streams.items():
        inside = [row for row in held if row["ts"] >= last - WINDOW]
        connection.register(name, pa.Table.from_pylist(inside, schema=SCHEMA))
    on = "a.k = b.k AND a.n < b.n"
    text = f"SELECT * FROM a {kind} JOIN b ON {on}"
    if kind == "full":  # DuckDB knows equalities alone
        alone = f"SELECT a.*, b.* FROM b ANTI JOIN a ON {on} LEFT JOIN a ON FALSE"
        text = f"SELECT a.*, b.* FROM a LEFT JOIN b ON {on} UNION ALL {alone}"
    assert states[0] == Counter(connection.execute(text).fetchall())


def _less(batch: Any) -> Any:
    return pc.less(batch.column("a.n"), batch.column("b.n"))


def test_nulls_of_not_in_are_unknown_and_an_empty_query_excludes_nothing() -> None:
    with nile.connect() as db:
        db.register("l", pa.table({"x": pa.array([1, 2, None], pa.int64())}))
        db.register("r", pa.table({"y": pa.array([2, None], pa.int64())}))
        asked = "SELECT x FROM l WHERE x NOT IN (SELECT y FROM r{})"
        assert db.sql(asked.format("")).fetchall() == []
        assert db.sql(asked.format(" WHERE y IS NOT NULL")).fetchall() == [(1,)]
        assert db.sql(asked.format(" WHERE y > 5")).fetchall() == [(1,), (2,), (None,)]


def test_with_that_doubles_at_every_step_is_refused_before_it_grows() -> None:
    steps = ["t0 AS (SELECT x FROM l)"] + [
        f"t{at} AS (SELECT a.x FROM t{at - 1} a, t{at - 1} b WHERE a.x = b.x)" for at in range(1, 20)
    ]
    with nile.connect() as db:
        db.register("l", pa.table({"x": [1]}))
        with pytest.raises(nile.SqlError, match="needed at most 256 streams and relations"):
            db.sql(f"WITH {', '.join(steps)} SELECT x FROM t19")


OWN = [
    "SELECT k, count(*) AS often FROM a [PARTITION BY k ROWS 2] GROUP BY k",
    "SELECT a.id, b.id AS other FROM a [PARTITION BY k, n ROWS 1] JOIN b [RANGE 6] ON a.k = b.k WHERE a.n > 0",
    "SELECT count(*) AS often, sum(n) AS total FROM a [RANGE 10 SLIDE 4]",
    "SELECT a.id, b.id AS other FROM a [NOW] JOIN b [RANGE 5 SLIDE 2] ON a.k = b.k",
    "SELECT k FROM a [RANGE 3 SLIDE 7 WHERE n > 0]",
    "SELECT k, count(*) AS often, window_start, window_end "
    "FROM SESSION (TABLE a PARTITION BY k, ts, INTERVAL '3 seconds') GROUP BY k, window_start, window_end WINDOW 9",
    "SELECT s.id, b.id AS other, s.window_end FROM SESSION (TABLE a PARTITION BY k, n, DESCRIPTOR (ts), INTERVAL '2' "
    "SECOND) AS s [RANGE 8], b [RANGE 4] WHERE s.k = b.k AND s.id > 3",
]


@pytest.mark.parametrize("query", OWN)
def test_windows_of_streams_own_stand_and_restart_as_they_run_at_once(query: str, tmp_path: Path) -> None:
    streams = {"a": rows(7, 70), "b": rows(8, 70)}
    last = max(row["ts"] for held in streams.values() for row in held)
    found = []
    for begin, end in ((0, last // 3), (last // 3, last // 2), (last // 2, last + 1)):
        with nile.connect(tmp_path / "store") as db:
            if begin == 0:
                for name in streams:
                    db.stream(name, SCHEMA, time="ts")
                db.subscribe(query, name="kept", emit="changes")
            standing = db.subscription("kept")
            pushed(db, streams, begin, end)
            if end > last:
                db.advance(last + 1)
            found += standing.poll()
    with nile.connect() as db:
        for name, held in streams.items():
            db.register(name, pa.Table.from_pylist(held, schema=SCHEMA), time="ts")
        whole = db.sql(query, emit="changes").to_arrow().to_batches()
        snapshot = db.sql(query, emit="snapshot").to_arrow()
    for at in range(last + 1):
        assert summed(found, at) == summed(whole, at), at
    ends = max(max(row["ts"] for row in held) for name, held in streams.items() if f" {name}" in query)
    assert summed(whole, ends) == Counter(tuple(row.values()) for row in snapshot.to_pylist())


def test_one_wrong_sign_would_be_seen() -> None:
    """A negative control: rows without a partner counted as rows with one."""
    query, streams = QUERIES[0], {"a": rows(1, 60), "b": rows(2, 60)}
    last = max(row["ts"] for held in streams.values() for row in held)
    with mock.patch.dict(setops._CODES, {"anti": setops._CODES["semi"]}), nile.connect() as db:
        for name in streams:
            db.stream(name, SCHEMA, time="ts")
        standing = db.subscribe(f"{query} WINDOW {WINDOW}")
        pushed(db, streams, 0, last + 1)
        db.advance(last + 1)
        found = standing.poll()
    assert any(summed(found, at) != wanted(streams, query, at) for at in range(0, last, 5))


def test_a_semi_join_on_keys_makes_no_pair() -> None:
    """A hundred thousand rows of one key on each side: ten thousand million pairs, none of which is looked at."""
    table = pa.table({"k": [1] * 100_000, "n": range(100_000)})
    with nile.connect() as db:
        db.register("l", table)
        db.register("r", table)
        assert db.sql("SELECT count(*) FROM l WHERE k IN (SELECT k FROM r)").fetchall() == [(100_000,)]
        assert db.sql("SELECT count(*) FROM l WHERE k NOT IN (SELECT k FROM r)").fetchall() == [(0,)]
        assert db.sql("SELECT count(*) FROM l ANTI JOIN r ON l.k = r.k AND r.n < 0").fetchall() == [(100_000,)]


def test_ticks_need_the_scheduling_that_tells_what_goes() -> None:
    with nile.connect() as db:
        db.register("s", pa.table({"ts": [1, 2], "k": ["a", "b"]}), time="ts")
        with pytest.raises(nile.ConfigError, match="scheduling: needed nta for EMIT EVERY"):
            db.sql("SELECT k FROM s WINDOW 1 EMIT EVERY '1 s'", scheduling="tpa")
