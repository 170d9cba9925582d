"""Standing queries with ORDER BY: a snapshot comes in order; DISTINCT ON keeps the first row of each key up to date."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile

SCHEMA = pa.schema([("at", pa.float64()), ("k", pa.int64()), ("v", pa.int64()), ("n", pa.int64())])
ORDERED = [
    "SELECT k, n FROM s ORDER BY k DESC NULLS LAST, n",
    "SELECT k, count(*) AS c, sum(v) AS t FROM s GROUP BY k ORDER BY c DESC, k NULLS FIRST",
    "SELECT k AS a FROM s WHERE v > 1 ORDER BY v, n DESC",
    "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC, n) < 3 ORDER BY n",
    "SELECT DISTINCT ON (k) k, n FROM s ORDER BY k, v DESC, n",
    "SELECT k, n FROM s ORDER BY n OFFSET 4",
]


def rows(rng: np.random.Generator, n: int, begin: float, known: int) -> pa.Table:
    columns = [
        pa.array(begin + np.sort(rng.integers(0, 10, n)).astype(float)),
        pa.array(rng.integers(0, 4, n), pa.int64(), mask=rng.random(n) < 0.1),
        pa.array(rng.integers(0, 5, n), pa.int64()),
        pa.array(np.arange(known, known + n)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@pytest.mark.parametrize(("window", "scheduling"), [(None, "nta"), (12, "nta"), (12, "tpa")])
@pytest.mark.parametrize("text", ORDERED)
def test_a_snapshot_comes_in_order(text: str, window: int | None, scheduling: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(text))
    options = (
        {"emit": "snapshot", "scheduling": scheduling} if window and "QUALIFY" not in text else {"emit": "snapshot"}
    )
    clause = "" if window is None else f" WINDOW '{window} s'"
    db = nile.connect(tmp_path / "db")
    db.stream("s", SCHEMA, time="at")
    db.subscribe(text + clause, name="q", **options)
    kept, begin = SCHEMA.empty_table(), 0.0
    for step in range(4):
        more = rows(rng, 15, begin, kept.num_rows)
        db.push("s", more)
        kept = pa.concat_tables([kept, more])
        begin += 11.0
        db.advance(begin - 0.5)
        if step == 1:
            db.close()
            db = nile.connect(tmp_path / "db")
        held = kept if window is None else kept.filter(pa.array(kept["at"].to_numpy() >= begin - 0.5 - window))
        with fresh_duckdb() as con:
            con.register("s", held)
            wanted = con.execute(text).fetchall()
        got = [tuple(row.values()) for batch in db.subscription("q").poll() for row in batch.to_pylist()]
        assert got == wanted, (step, got, wanted)
    db.close()


@pytest.mark.parametrize("window", [None, 12])
def test_the_first_row_of_each_key_is_kept_up_to_date(window: int | None) -> None:
    rng = np.random.default_rng(3)
    text = ORDERED[4]
    kept, net = SCHEMA.empty_table(), Counter[Any]()
    with nile.connect() as db:
        db.stream("s", SCHEMA, time="at")
        told = db.subscribe(text + ("" if window is None else f" WINDOW '{window} s'"), emit="changes")
        for step in range(5):
            more = rows(rng, 15, 11.0 * step, kept.num_rows)
            db.push("s", more)
            kept = pa.concat_tables([kept, more])
            now = 11.0 * step + 10.5
            db.advance(now)
            for batch in told.poll():
                for row in batch.to_pylist():
                    net[row["k"], row["n"]] += row["_sign"]
            held = kept if window is None else kept.filter(pa.array(kept["at"].to_numpy() >= now - window))
            with fresh_duckdb() as con:
                con.register("s", held)
                assert +net == Counter(con.execute(text).fetchall())
            assert all(n >= 0 for n in net.values())
