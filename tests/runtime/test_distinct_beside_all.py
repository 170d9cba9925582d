"""Standing aggregates of distinct values beside those of all rows: what stands is what rows say, after each push."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile

AGGREGATES = [
    "count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(p)", "median(v)", "count(DISTINCT p)",
    "count(DISTINCT v)",
    "sum(DISTINCT v)", "avg(DISTINCT v)", "min(DISTINCT v)", "string_agg(p, ',' ORDER BY p)",
    "string_agg(DISTINCT p, ',' ORDER BY p)", "count(DISTINCT p) FILTER (WHERE v > 2)", "sum(v) FILTER (WHERE p = 'a')",
    "count(DISTINCT v + 1)", "count(DISTINCT p || 'x')", "var_samp(v)", "count(DISTINCT k)",
]  # fmt: skip
SCHEMA = pa.schema([("at", pa.float64()), ("k", pa.int64()), ("v", pa.int64()), ("p", pa.string())])


def rows(rng: np.random.Generator, n: int, begin: float) -> pa.Table:
    columns = [
        pa.array(begin + np.sort(rng.integers(0, 10, n)).astype(float)),
        pa.array(rng.integers(0, 3, n), pa.int64(), mask=rng.random(n) < 0.1),
        pa.array(rng.integers(0, 5, n), pa.int64(), mask=rng.random(n) < 0.1),
        pa.array([["a", "b", "c", None][at] for at in rng.integers(0, 4, n)], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def query(rng: np.random.Generator) -> str:
    asked = [str(each) for each in rng.choice(AGGREGATES, int(rng.integers(2, 5)), replace=False)]
    by = ["k", "p", "k, v % 2", ""][rng.integers(4)]
    condition = " WHERE v <> 3" if rng.random() < 0.3 else ""
    having = " HAVING count(*) > 2" if by and rng.random() < 0.3 else ""
    return f"SELECT {', '.join(asked)} FROM s{condition}{f' GROUP BY {by}' if by else ''}{having}"


def told(batches: Any) -> Counter[Any]:
    net: Counter[Any] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            sign = row.pop("_sign")
            net[tuple(row[name] for name in row if not name.startswith("_"))] += sign
    return net


def alike(got: Counter[Any], wanted: Counter[Any]) -> bool:
    """Equal but for the last digits of sums, which DuckDB adds in its own order."""
    assert all(n >= 0 for n in got.values()), got
    left, right = (Counter(tuple(map(rounded, row)) for row in each.elements()) for each in (got, wanted))
    return left == right


def rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("seed", range(40))
def test_what_stands_is_what_duckdb_says_of_the_rows(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    text = query(rng)
    stored = seed % 4 == 0
    db = nile.connect(tmp_path / "db") if stored else nile.connect()
    db.stream("s", SCHEMA, time="at")
    db.subscribe(text, name="q", emit="changes")
    kept, net, pushed = SCHEMA.empty_table(), Counter[Any](), 0
    for step in range(6):
        if step == 3 and stored:
            db.close()
            db = nile.connect(tmp_path / "db")
        if step in (2, 4) and kept.num_rows:
            gone = rng.random(kept.num_rows) < 0.3
            back = kept.filter(pa.array(gone))
            db.push("s", back.append_column("_sign", pa.array(np.full(back.num_rows, -1))))
            kept = kept.filter(pa.array(~gone))
        more = rows(rng, int(rng.integers(0, 30)), step * 10.0)
        pushed += more.num_rows
        db.push("s", more)
        kept = pa.concat_tables([kept, more])
        db.advance(step * 10.0 + 10)
        for row, n in told(db.subscription("q").poll()).items():
            net[row] += n
        if not pushed:  # the row of a query without GROUP BY is told from the first instant on
            continue
        with fresh_duckdb() as con:
            con.register("s", kept)
            wanted = Counter(con.execute(text).fetchall())
        assert alike(net, wanted), (text, step, net, wanted)
    db.close()
