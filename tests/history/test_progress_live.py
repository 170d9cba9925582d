"""Growing answers over live streams: what they keep is asked, in memory or in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("item", pa.string()), ("n", pa.int64())])
JOIN = "SELECT a.n, b.n AS other FROM a, b WHERE a.item = b.item AND a.ts >= TIMESTAMP '1970-01-01 00:16:00'"


def filled(db: nile.Database) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        db.stream(name, SCHEMA, time="ts")
        rng = np.random.default_rng(seed)
        for begin in range(0, 1_200, 400):
            ns = np.arange(begin, begin + 400)
            items = [f"i{k}" for k in rng.integers(0, 150, 400)]
            db.push(name, pa.record_batch([pa.array(ns * 1_000_000, pa.timestamp("us")), items, ns], schema=SCHEMA))


def rows(table: pa.Table) -> list[Any]:
    return sorted(map(tuple, (row.values() for row in table.to_pylist())))


@pytest.mark.parametrize("preference", ["", " WITH PREFERENCE desc a.item", " WITH PREFERENCE weighted a.item"])
def test_a_live_stream_answers_from_what_it_keeps(preference: str) -> None:
    db = nile.connect()
    filled(db)
    result = db.sql(JOIN + preference)
    progress = result.progress(every=0)
    partials = list(progress)
    assert "read for this query" not in progress.explain()
    assert rows(partials[-1].to_arrow()) == rows(db.sql(JOIN).to_arrow())
    more = pa.record_batch([pa.array([1_300_000_000], pa.timestamp("us")), ["i1"], [5_000]], schema=SCHEMA)
    db.push("a", more)
    assert rows(list(result.progress())[-1].to_arrow()) == rows(db.sql(JOIN).to_arrow())
    assert partials[-1].done


def test_a_store_answers_after_it_was_opened_again(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as db:
        filled(db)
        exact = rows(db.sql(JOIN).to_arrow())
        before = rows(list(db.sql(JOIN + " WITH PREFERENCE asc a.item", outlier_cap=14).progress())[-1].to_arrow())
        assert before
    with nile.connect(tmp_path / "store") as db:
        assert rows(list(db.sql(JOIN).progress())[-1].to_arrow()) == exact
        again = list(db.sql(JOIN + " WITH PREFERENCE asc a.item", outlier_cap=14).progress())[-1]
        assert rows(again.to_arrow()) == before
        total = list(db.sql("SELECT count(*) AS c, sum(n) AS s FROM a WHERE item = 'i3'").progress())[-1].to_arrow()
        assert total.equals(db.sql("SELECT count(*) AS c, sum(n) AS s FROM a WHERE item = 'i3'").to_arrow())
        by_cells = db.sql("SELECT n FROM a WHERE item IN ('i3', 'i9')").progress(every=0)
        found = list(by_cells)[-1].to_arrow()
        assert rows(found) == rows(db.sql("SELECT n FROM a WHERE item IN ('i3', 'i9')").to_arrow())
        assert "by the cells of item" in by_cells.explain()
