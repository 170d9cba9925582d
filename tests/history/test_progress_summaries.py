"""Progress over the histories of streams that have a summary: what is ruled out changes no end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile

SCHEMA = [("ts", pa.float64()), ("item", pa.int64()), ("price", pa.float64())]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(n=some.integers(0, 1_200), seed=some.integers(0, 1 << 30), items=some.sampled_from([1, 7, 300, 2_000]))
def test_a_summary_changes_no_end_of_progress(n: int, seed: int, items: int) -> None:
    draw = np.random.default_rng(seed)
    db = nile.connect()
    for name in ("s", "t"):
        db.stream(name, SCHEMA, time="ts")
        item = np.sort(draw.integers(0, items, n)) // draw.integers(1, 4) * draw.integers(1, 3)
        table = {"ts": np.arange(n) * 1.0, "item": item, "price": draw.integers(0, 9, n) * 1.0}
        db.push(name, pa.table(table).cast(pa.schema(SCHEMA)))
    low, value, most = draw.integers(0, n + 1), draw.integers(0, items + 1), draw.integers(0, 30)
    bound = f"s.ts >= {low}" if seed % 2 else "s.ts >= 0"
    one_of = f"{bound} AND s.item IN ({value}, {value // 2})"
    asked = [
        f"SELECT s.ts, t.ts AS u FROM s, t WHERE s.item = t.item AND {bound} AND t.item < {most}",
        *(f"SELECT ts, price FROM s WHERE {one_of}{prefers}" for prefers in ("", " WITH PREFERENCE weighted item")),
        f"SELECT count(*) AS n, sum(price) AS p, median(price) AS m FROM s WHERE {one_of}",
        f"SELECT price, count(*) AS n FROM s WHERE {one_of} GROUP BY price",
    ]
    asked += [f"{asked[0]} WITH PREFERENCE {kind} s.item" for kind in ("desc", "asc", "weighted")]

    def ends() -> list[list[str]]:
        return [sorted(map(str, list(db.sql(text).progress())[-1].to_arrow().to_pylist())) for text in asked]

    before = ends()
    for name in ("s", "t"):
        db.sql(
            f"CREATE SUMMARY m{name} ON {name} (item) WITH GRANULARITY '2 min' AND COLLAPSE (3, 3) USING columns = 64"
        )
    assert ends() == before
    for name in ("s", "t"):  # the summaries count what comes later, too
        db.push(name, {"ts": [1e6], "item": [value], "price": [1.0]})
    told = ends()
    for name in ("s", "t"):
        db.sql(f"DROP SUMMARY m{name}")
    assert ends() == told
