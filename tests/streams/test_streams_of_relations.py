"""Streams of relations, windows of fixed bounds and ticks, against their definitions and DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile

SECOND = 1_000_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("k", pa.string()), ("n", pa.int64())])
RELATIONS = [
    "SELECT k, count(*) AS often FROM s [RANGE 7] GROUP BY k",
    "SELECT id, k FROM s [ROWS 3]",
    "SELECT DISTINCT k FROM s [RANGE 4]",
    "SELECT a.id, b.id AS other FROM s [RANGE 5] a JOIN s [ROWS 4] b ON a.k = b.k AND a.id < b.id",
    "SELECT max(n) AS most FROM s [PARTITION BY k ROWS 1]",
]


def table(seed: int, count: int = 60) -> pa.Table:
    rng = random.Random(seed)
    now, rows = 0, []
    for at in range(count):
        now += rng.choice([0, 0, 1, 2, 5])
        rows.append({"ts": now, "id": at, "k": rng.choice(["x", "y", None]), "n": rng.choice([None, 0, 1, 2])})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def told(table: pa.Table) -> list[tuple[int, tuple[Any, ...]]]:
    """(when, row) of a stream."""
    times = table.column("_ts").cast("int64").to_pylist()
    return [(ts, tuple(row.values())[1:]) for ts, row in zip(times, table.to_pylist(), strict=True)]


@pytest.mark.parametrize("query", RELATIONS)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_stream_is_what_its_definition_says_of_the_changes(query: str, seed: int) -> None:
    with nile.connect() as db:
        db.register("s", table(seed), time="ts")
        changes = db.sql(query, emit="changes").to_arrow()
        streams = {kind: told(db.sql(f"{kind} ({query})").to_arrow()) for kind in ("ISTREAM", "DSTREAM", "RSTREAM")}
    net: dict[int, Counter[tuple[Any, ...]]] = {}
    times = changes.column("_ts").cast("int64").to_pylist()
    for ts, row in zip(times, changes.to_pylist(), strict=True):
        _, sign, *values = row.values()
        net.setdefault(ts, Counter())[tuple(values)] += sign
    came = Counter({(ts, row): n for ts, some in net.items() for row, n in some.items() if n > 0})
    went = Counter({(ts, row): -n for ts, some in net.items() for row, n in some.items() if n < 0})
    assert Counter(streams["ISTREAM"]) == came
    assert Counter(streams["DSTREAM"]) == went
    held: Counter[tuple[Any, ...]] = Counter()
    whole: Counter[tuple[int, tuple[Any, ...]]] = Counter()
    for ts in sorted(net):
        held.update(net[ts])
        if any(net[ts].values()):
            whole.update({(ts, row): n for row, n in held.items() if n})
    assert Counter(streams["RSTREAM"]) == whole


def test_select_all_of_a_stream_is_the_stream() -> None:
    with nile.connect() as db:
        db.register("s", table(3), time="ts")
        found = told(db.sql("ISTREAM (SELECT * FROM s)").to_arrow())
    assert found == [(row["ts"] * SECOND, tuple(row.values())) for row in table(3).to_pylist()]


def test_a_stream_that_a_query_gives_has_windows_as_any_other() -> None:
    kept = table(4).filter(pa.compute.greater(table(4).column("n"), 0))
    asked = "SELECT t.k, count(*) AS often FROM {} GROUP BY t.k"
    with nile.connect() as db:
        db.register("s", table(4), time="ts")
        db.register("kept", kept, time="ts")
        for own in ("[ROWS 3]", "[RANGE 6]", "[PARTITION BY k ROWS 2]", "[RANGE 4 SLIDE 3]", "[NOW]"):
            plain = db.sql(asked.format(f"kept t {own}"), emit="changes").to_arrow()
            for source in ("(SELECT k, id FROM s WHERE n > 0) AS t", "ISTREAM (SELECT k, id FROM s WHERE n > 0) AS t"):
                derived = db.sql(asked.format(f"{source} {own}"), emit="changes").to_arrow()
                last = kept.column("ts").to_pylist()[-1] * SECOND
                assert _until(derived, last) == _until(plain, last), (source, own)


def _until(changes: pa.Table, last: int) -> Counter[tuple[Any, ...]]:
    times = changes.column("_ts").cast("int64").to_pylist()
    return Counter((ts, *tuple(r.values())[1:]) for ts, r in zip(times, changes.to_pylist(), strict=True) if ts <= last)


GROUPS = "SELECT w.window_start, w.window_end, w.k, count(*) AS often, sum(n) AS total FROM {} AS w GROUP BY ALL"


def buckets(size: int, slide: int, seed: int) -> Counter[tuple[Any, ...]]:
    connection = fresh_duckdb()
    connection.register("s", table(seed))
    text = f"""
        SELECT make_timestamp(b * 1000000), make_timestamp((b + {size}) * 1000000), k, count(*), sum(n)
        FROM s, (SELECT unnest(range(-{30 * slide}, 1000, {slide})) AS b) WHERE b <= ts AND ts < b + {size} GROUP BY ALL
    """
    return Counter(connection.execute(text).fetchall())


@pytest.mark.parametrize(("size", "slide"), [(10, 10), (10, 5), (7, 3), (4, 4)])
@pytest.mark.parametrize("way", ["", " EMIT ON WINDOW CLOSE"])
def test_windows_of_fixed_bounds_are_what_duckdb_counts_in_them(size: int, slide: int, way: str) -> None:
    source = f"HOP(s, ts, INTERVAL '{slide} seconds', INTERVAL '{size} seconds')"
    source = f"TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '{size} seconds')" if size == slide else source
    with nile.connect() as db:
        db.register("s", table(5), time="ts")
        found = db.sql(GROUPS.format(source) + way).to_arrow()
    assert Counter(tuple(row.values()) for row in found.to_pylist()) == buckets(size, slide, 5)


def test_a_closed_window_is_told_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    rows, found, held = table(6, 200).to_pylist(), [], []
    text = GROUPS.format("HOP(s, ts, INTERVAL '5 seconds', INTERVAL '10 seconds')") + " EMIT ON WINDOW CLOSE"
    for begin in range(0, len(rows), 40):
        with nile.connect(tmp_path / "store") as db:
            if begin == 0:
                db.stream("s", SCHEMA, time="ts")
                db.subscribe(text, name="kept")
            standing = db.subscription("kept")
            for row in rows[begin : begin + 40]:
                db.push("s", pa.RecordBatch.from_pylist([row], schema=SCHEMA))
                found += standing.poll()
            held.append(standing.memory)
            if begin + 40 >= len(rows):
                db.advance(row["ts"] + 20)
                found += standing.poll()
    told = Counter(tuple(row.values()) for batch in found for row in batch.to_pylist())
    assert told == _counted(rows)
    assert max(held[1:]) < 4 * held[0] + 20_000  # what is open, whatever has gone


def _counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    connection = fresh_duckdb()
    connection.register("s", pa.Table.from_pylist(rows, schema=SCHEMA))
    text = """
        SELECT make_timestamp(b * 1000000), make_timestamp((b + 10) * 1000000), k, count(*), sum(n)
        FROM s, (SELECT unnest(range(-100, 1000, 5)) AS b) WHERE b <= ts AND ts < b + 10 GROUP BY ALL
    """
    return Counter(connection.execute(text).fetchall())


@pytest.mark.parametrize("query", RELATIONS)
def test_ticks_tell_the_state_as_it_is_at_each_of_them(query: str) -> None:
    with nile.connect() as db:
        db.register("s", table(7), time="ts")
        every = db.sql(f"{query} EMIT EVERY '4 s'").to_arrow()
        changes = db.sql(query, emit="changes").to_arrow()
    times = every.column("_ts").cast("int64").to_pylist()
    assert {ts % (4 * SECOND) for ts in times} == {0}
    last = max(table(7).column("ts").to_pylist())
    for tick in range(0, last, 4):
        assert _state(every, tick) == _state(changes, tick), tick


def _state(changes: pa.Table, at: int) -> Counter[tuple[Any, ...]]:
    kept: Counter[tuple[Any, ...]] = Counter()
    times = changes.column("_ts").cast("int64").to_pylist()
    for ts, row in zip(times, changes.to_pylist(), strict=True):
        _, sign, *values = row.values()
        kept[tuple(values)] += sign if ts <= at * SECOND else 0
    return +kept


@pytest.mark.parametrize("query", [*(f"ISTREAM ({each})" for each in RELATIONS), f"RSTREAM ({RELATIONS[0]})",
                                   f"{RELATIONS[0]} EMIT EVERY '4 s'"])  # fmt: skip
def test_a_stream_of_a_relation_stands_and_restarts(query: str, tmp_path: Path) -> None:
    rows, found = table(8).to_pylist(), []
    for begin in range(0, len(rows), 20):
        with nile.connect(tmp_path / "store") as db:
            if begin == 0:
                db.stream("s", SCHEMA, time="ts")
                db.subscribe(query, name="kept")
            standing = db.subscription("kept")
            db.push("s", pa.RecordBatch.from_pylist(rows[begin : begin + 20], schema=SCHEMA))
            if begin + 20 >= len(rows):
                db.advance(rows[-1]["ts"] + 1)
            found += standing.poll()
    with nile.connect() as db:
        db.register("s", table(8), time="ts")
        whole = db.sql(query).to_arrow()
    last = rows[-1]["ts"] // 4 * 4 * SECOND
    assert _until(pa.Table.from_batches(found, found[0].schema), last) == _until(whole, last)
