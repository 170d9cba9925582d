"""Sessions of streams whose tuples only come, against the same groups worked out anew at every instant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned

import nile

CLICKS = pa.schema([("ts", pa.timestamp("us")), ("who", pa.string()), ("n", pa.int64())])
SESSION = "SESSION (clicks PARTITION BY who, ts, INTERVAL '5 seconds')"
QUERIES = (
    f"SELECT who, count(*) AS k, sum(n) AS t, window_start, window_end FROM {SESSION} "
    "GROUP BY who, window_start, window_end",
    f"SELECT window_end, max(n) AS most, who, avg(n) AS mean FROM {SESSION} AS s GROUP BY who, window_end "
    "HAVING count(*) > 1",
    "SELECT window_start, count(n) AS k FROM SESSION (clicks, ts, INTERVAL '3 seconds') GROUP BY window_start",
    f"SELECT upper(who) AS w, min(ts) AS first, window_start FROM {SESSION} GROUP BY who, window_start "
    "ORDER BY first LIMIT 4",
)
OTHERS = (
    f"SELECT who, count(*) AS k, window_end FROM {SESSION} WHERE n > 1 GROUP BY who, window_end",
    f"SELECT count(*) AS k, window_start FROM {SESSION} GROUP BY window_start",
    f"SELECT who, n, count(*) AS k, window_start FROM {SESSION} GROUP BY who, n, window_start",
    f"SELECT who, count(DISTINCT n) AS k, window_end FROM {SESSION} GROUP BY who, window_end",
)
"""Groups that are no sessions of their own: worked out as before."""


def clicks(seed: int, count: int = 60) -> pa.Table:
    random = np.random.default_rng(seed)
    seconds = np.cumsum(random.integers(0, 4, count))
    who = pa.array([None if each == 3 else "abc"[each] for each in random.integers(0, 4, count)], pa.string())
    n = pa.array(random.integers(0, 5, count), mask=random.random(count) < 0.1)
    return pa.table([pa.array(seconds * 1_000_000).cast(CLICKS[0].type), who, n], schema=CLICKS)


def told(db: nile.Database, query: str) -> list[dict[str, Any]]:
    return [row for batch in db.subscription(query).poll() for row in batch.to_pylist()]


@pytest.mark.parametrize("query", [*QUERIES, *OTHERS])
@pytest.mark.parametrize("seed", thinned(range(3), 3))
def test_a_standing_query_over_sessions_is_right_at_every_instant(query: str, seed: int, tmp_path: Path) -> None:
    """However it is cut, and restarted; the judge works out the whole up to each instant."""
    random, rows = np.random.default_rng(seed), clicks(seed)
    db = nile.connect(tmp_path / "store")
    db.stream("clicks", CLICKS, time="ts")
    db.subscribe(query, name="q", emit="changes")
    cuts = np.sort(random.integers(0, rows.num_rows, 6))
    for begin, end in zip([0, *cuts], [*cuts, rows.num_rows], strict=True):
        db.push("clicks", rows.slice(begin, end - begin))
        if random.random() < 0.5:
            db.close()
            db = nile.connect(tmp_path / "store")
    db.advance("1971-01-01")
    found = told(db, "q")
    times = rows["ts"].to_pylist()
    for at in sorted(set(times))[::4]:
        kept: Counter[tuple[Any, ...]] = Counter()
        for row in found:
            if row["_ts"].to_pydatetime() <= at:
                kept[tuple(value for name, value in row.items() if name not in ("_ts", "_sign"))] += row["_sign"]
        with nile.connect() as judge:
            judge.register("clicks", rows.slice(0, sum(each <= at for each in times)), time="ts")
            wanted = Counter(judge.sql(query).fetchall())
        assert {row: n for row, n in kept.items() if n} == dict(wanted), at


def test_the_state_of_sessions_is_that_of_those_which_may_go_on() -> None:
    """A hundred thousand keys, each seen once: their times are forgotten; groups of what was told stay."""
    with nile.connect() as db:
        db.stream("clicks", CLICKS, time="ts")
        standing = db.subscribe(f"ISTREAM ({QUERIES[0]})")
        for begin in range(0, 100_000, 10_000):
            seconds = np.arange(begin, begin + 10_000)
            who = pa.array([f"who{each}" for each in seconds])
            ts = pa.array(seconds * 1_000_000).cast(CLICKS[0].type)
            db.push("clicks", pa.table([ts, who, pa.array(seconds)], schema=CLICKS))
            standing.poll()
        built = standing._plan.pipeline._built.all  # type: ignore[attr-defined]
        (opening,) = (one.operator for one in built if one.operator.KIND == "sessions")
        assert len(opening._table) < 20_000


def test_rows_cannot_be_taken_back_from_sessions_of_all_that_comes() -> None:
    with nile.connect() as db:
        db.stream("clicks", CLICKS, time="ts")
        standing = db.subscribe(QUERIES[0])
        db.push("clicks", clicks(1))
        with pytest.raises(nile.ConfigError, match="got sessions of all that comes"):
            db.sql("DELETE FROM clicks WHERE n = 1")
        standing.close()
        db.subscribe(f"{QUERIES[0]} WINDOW 100")
        db.sql("DELETE FROM clicks WHERE n = 1")
