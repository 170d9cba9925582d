"""Exact queries at work when tuples are taken back: at every instant right by definition, DuckDB as judge."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb
from oracle_pipeline import key
from test_pipeline_duckdb import ROW, Maker, near, stream
from test_standing_sql import QUERIES, SCHEMA, WINDOW, rows, summed
from thinning import thinned
from workload_pipeline import told

import nile
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan.algebra import Plan, Range, Scan, Slide, Unbounded

END = 140


class Windows(Maker):
    """Random plans over windows that take tuples back."""

    def leaf(self) -> tuple[Plan, str]:
        n = len(self.scans)
        size = int(self.rng.integers(1, 12))
        window: Any = [Range(size), Range(size), Unbounded(), Slide(size, int(self.rng.integers(1, 5)))][
            self.rng.integers(4)
        ]
        self.scans.append(Scan(f"s{self.rng.integers(self.streams)}", ROW, window, n))
        return self.scans[-1], f"w{n}"


def held(window: Any, ts: Any, gone: Any, table: Any, now: int) -> Any:
    """What a window holds at an instant of tuples that are there from ts on and, from `gone` on, are not."""
    seen = (ts <= now) & (gone > now)
    if isinstance(window, Range):
        seen &= ts >= now - window.ns
    if isinstance(window, Slide):
        mark = now // window.step * window.step
        seen &= (ts <= mark) & (ts >= mark - window.ns)
    return table.take(pa.array(np.flatnonzero(seen)))


def checked(con: Any, seed: int) -> str:
    """Random pushes, and tuples taken back, in any cut: '' where the changes add up to what holds at every instant."""
    rng = np.random.default_rng(seed)
    maker = Windows(rng, 2)
    plan, sql = maker.make(int(rng.integers(1, 4)))
    streams = {f"s{i}": stream(rng, int(rng.integers(0, 15))) for i in range(2)}
    gone = {name: np.full(len(ts), END + 1) for name, (ts, _) in streams.items()}
    pipeline = Pipeline(plan)
    out = []
    for name, (ts, table) in streams.items():
        last, at = 0, 0
        while name in pipeline._last and at < len(ts):
            end = min(len(ts), at + int(rng.integers(1, 6)))
            out += pipeline.push(name, ts[at:end], table.slice(at, end - at))
            at, last = end, int(ts[end - 1])
            for _ in range(int(rng.integers(0, 3))):
                late = int(rng.integers(0, 3))
                last = last + late if at == len(ts) or last + late <= ts[at] else last
                choose = np.flatnonzero((gone[name][:end] > END) & (rng.random(end) < 0.3))
                gone[name][choose] = last
                out += pipeline.take_back(name, last, ts[choose], table.take(pa.array(choose)))
    flat = told(out + pipeline.finish(END))
    for now in range(END):
        state: Counter[Any] = Counter()
        for ts, sign, row in flat:
            state[row] += sign if ts <= now else 0
        if min(state.values(), default=0) < 0:
            return f"{sql} at {now}: {state}"
        if now % 7 != seed % 7:
            continue
        for i, scan in enumerate(maker.scans):
            ts, table = streams[scan.name]
            con.register(f"w{i}", held(scan.window, ts, gone[scan.name], pa.Table.from_batches([table]), now))
        expected = Counter(key(row) for row in con.execute(f"SELECT * FROM {sql}").fetchall())
        got = +state
        if got != expected and not near(got, expected):
            return f"{sql} at {now}: expected {expected}, got {got}"
    return ""


@pytest.mark.parametrize("seeds", thinned([range(20), range(20, 50)], 2))
def test_taking_back_is_right_at_every_instant(seeds: range) -> None:
    con = fresh_duckdb()
    wrong = [(seed, found) for seed in seeds if (found := checked(con, seed))]
    assert not wrong[:3]


@pytest.mark.long
def test_taking_back_is_right_at_every_instant_of_ten_thousand_cases() -> None:
    con = fresh_duckdb()
    wrong = [(seed, found) for seed in range(1_000, 11_000) if (found := checked(con, seed))]
    assert not wrong[:3]


def database(path: Path | None = None) -> nile.Database:
    db = nile.connect() if path is None else nile.connect(path)
    for name in ("a", "b"):
        db.stream(name, SCHEMA, time="ts")
    return db


def driven(db: nile.Database, draw: random.Random, streams: Any, gone: Any, begin: int, end: int) -> None:
    """What comes from one instant on and before another, and some of what came taken back."""
    for at in range(begin, end, 3):
        for name, all_rows in streams.items():
            some = [row for row in all_rows if at <= row["ts"] < at + 3]
            if some:
                db.push(name, pa.RecordBatch.from_pylist(some, schema=SCHEMA))
        db.advance(at + 3)
        for name, all_rows in streams.items():
            back = [r for r in all_rows if r["ts"] < at + 3 and r["id"] not in gone[name] and draw.random() < 0.06]
            if not back:
                continue
            if draw.random() < 0.5:
                db.push(name, [{**row, "_sign": -1} for row in back])
            else:
                db.sql(f"DELETE FROM {name} WHERE id IN ({', '.join(str(row['id']) for row in back)})")
            gone[name].update(dict.fromkeys((row["id"] for row in back), at + 3))


def wanted(streams: Any, gone: Any, query: str, at: int) -> Counter[tuple[Any, ...]]:
    connection = fresh_duckdb()
    for name, all_rows in streams.items():
        inside = [r for r in all_rows if at - WINDOW <= r["ts"] <= at and gone[name].get(r["id"], at + 1) > at]
        connection.register(name, pa.Table.from_pylist(inside, schema=SCHEMA))
    return Counter(connection.execute(query).fetchall())


MORE = [
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k",
    "SELECT a.k, count(*) AS often, sum(a.n) AS total, min(a.n) AS least, median(a.n) AS middle FROM a GROUP BY a.k",
    "SELECT count(*) AS often, sum(a.n) AS total FROM a",
    "SELECT DISTINCT a.k FROM a WHERE a.n > 0",
    "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
]


@pytest.mark.parametrize("query", thinned([*QUERIES, *MORE], 5))
def test_a_standing_query_corrects_what_it_told(query: str, tmp_path: Path) -> None:
    streams = {"a": rows(1, 30), "b": rows(2, 30)}
    gone: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    last = max(row["ts"] for held in streams.values() for row in held) + 3
    draw = random.Random(query)
    with database(tmp_path / "store") as db:
        db.subscribe(f"{query} WINDOW {WINDOW}", name="kept", emit="changes")
        driven(db, draw, streams, gone, 0, 24)
        found = db.subscription("kept").poll()
    with nile.connect(tmp_path / "store") as db:
        standing = db.subscription("kept")
        driven(db, draw, streams, gone, 24, last)
        db.advance(last + 3)
        found += standing.poll()
    assert gone["a"]
    for at in range(draw.randrange(3), last, 3):
        assert summed(found, at) == wanted(streams, gone, query, at), at


def test_what_came_before_the_query_was_asked_is_taken_back_without_it() -> None:
    db = database()
    db.push("a", [{"ts": 1, "id": 1, "k": "x", "n": 1}])
    counts = db.subscribe("SELECT count(*) AS often FROM a WINDOW 100", emit="changes")
    db.push("a", [{"ts": 2, "id": 2, "k": "x", "n": 1}, {"ts": 2, "id": 3, "k": "x", "n": 1}])
    db.sql("DELETE FROM a WHERE id < 3")
    db.advance(5)
    assert summed(counts.poll(), 4) == {(1,): 1}


def test_a_window_that_closes_counts_no_row_that_was_taken_back() -> None:
    db = database()
    closing = db.subscribe(
        "SELECT count(*) AS often FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, "
        "window_end EMIT ON WINDOW CLOSE"
    )
    db.push("a", [{"ts": at, "id": at, "k": "x", "n": 1} for at in range(8)])
    db.sql("DELETE FROM a WHERE id < 3")
    db.advance(30)
    (batch,) = closing.poll()
    assert batch.column("often").to_pylist() == [5]


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT id FROM a", {"emit": "append"}, "appended rows only"),
        ("SELECT count(*) AS n FROM a [ROWS 5]", {"emit": "changes"}, "a window of rows"),
        ("SELECT id FROM a WINDOW 5", {"emit": "changes", "scheduling": "tpa"}, "scheduling tpa"),
        (
            "SELECT count(*) AS n FROM ISTREAM (SELECT id FROM a WHERE n > 0) AS t",
            {"emit": "changes"},
            "made of a query",
        ),
        (
            "SELECT a.id FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 5 BUDGET 0.5",
            {},
            "an approximate query",
        ),
    ],
)
def test_what_cannot_correct_itself_says_why(query: str, options: Any, message: str) -> None:
    db = database()
    db.push("a", [{"ts": 1, "id": 1, "k": "x", "n": 1}])
    standing = db.subscribe(query, **options)
    with pytest.raises(nile.ConfigError, match=f"needed standing queries that can correct .* got .*{message}"):
        db.sql("DELETE FROM a WHERE id = 1")
    assert db.sql("SELECT id FROM a").fetchall() == [(1,)]
    standing.close()
    assert db.sql("DELETE FROM a WHERE id = 1").message == "1 row of 'a' deleted"
