"""Disorder within the lateness, late tuples, duplicates with an event id: as if sorted, counted, dropped once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, expect, generator
from nile.summaries.heavy import pa

__all__ = ["FAULT"]

_NAME = "disorder"
_QUERIES = (
    "SELECT id, k, n FROM s WHERE n % 3 <> 0",
    "SELECT k, count(*) AS c, sum(n) AS total FROM s [RANGE '7 s'] GROUP BY k",
)
_END = 10_000

Row = tuple[int | None, int, str | None, int]
"""(second or None, event id, key, number), as they arrive."""


@dataclass(frozen=True)
class _Sorted:
    """What must come of the arrivals: rows in order, numbers of late and repeated rows, how many have no time."""

    rows: list[Row]
    late: list[int]
    duplicates: list[int]
    timeless: int


def attempt(seed: int) -> None:
    """A live stream takes arrivals in any cuts and answers as one that is pushed the sorted rows."""
    rows, lateness, rng = _arrivals(seed)
    _check(rows, lateness, lateness, rng)


def control(seed: int) -> None:
    """The same, by a stream whose lateness is a second too short."""
    rows, lateness, rng = _arrivals(seed)
    _check(rows, lateness, lateness - 1, rng)


def _arrivals(seed: int) -> tuple[list[Row], int, np.random.Generator]:
    """Rows, some of them late, twice or without a time; one is exactly as late as may be."""
    rng = generator(_NAME, seed)
    n, lateness = int(rng.integers(20, 90)), int(rng.integers(2, 15))
    base = np.sort(rng.integers(100, 100 + 2 * n, n))
    off = rng.integers(0, lateness + 1, n)
    off[rng.random(n) < 0.05] += lateness * 3
    keys = [None if x == 0 else f"k{x}" for x in rng.integers(0, 5, n).tolist()]
    rows: list[Row] = [(int(at), i, key, i * i % 11) for i, (at, key) in enumerate(zip(base - off, keys, strict=True))]
    rows[n // 2] = (None, *rows[n // 2][1:])
    seen = max(at for at, *_ in rows if at is not None)
    rows.append((seen, n, "last", 1))
    rows.append((seen - lateness, n + 1, "barely", 2))
    for i in sorted(rng.integers(0, n, int(rng.integers(1, 6))).tolist(), reverse=True):
        rows.insert(min(len(rows), i + 1 + int(rng.integers(0, 8))), rows[i])
    return rows, lateness, rng


def _sorted(rows: list[Row], lateness: int) -> _Sorted:
    """The oracle: one row at a time."""
    seen: set[int] = set()
    kept: list[Row] = []
    late, duplicates = [], []
    largest, timeless = -(1 << 60), 0
    for number, row in enumerate(rows, 1):
        at, event, *_ = row
        if at is None:
            timeless += 1
        elif at < largest - lateness:
            late.append(number)
        elif event in seen:
            duplicates.append(number)
        else:
            seen.add(event)
            kept.append(row)
            largest = max(largest, at)
    return _Sorted(sorted(kept, key=lambda row: row[0] or 0), late, duplicates, timeless)


def _check(rows: list[Row], declared: int, used: int, rng: np.random.Generator) -> None:
    must = _sorted(rows, declared)
    with Database() as db, Database() as twin:
        cuts = sorted({0, len(rows), *rng.integers(0, len(rows), 4).tolist()})
        found = _answers(db, [rows[a:b] for a, b in pairwise(cuts)], f"{used} s")
        exact = _answers(twin, [must.rows], None)
        expect(found == exact, "the answers differ from those of the sorted stream")
        told = db.accounting("s")
        told.check()
        expect(told.tuples_in == len(rows), f"{told.tuples_in} tuples counted of {len(rows)}")
        expect(told.applied == len(must.rows), f"{told.applied} tuples applied, must be {len(must.rows)}")
        expect(db.late("s")["row"].to_pylist() == must.late, "other tuples are late")
        reasons = {"null time": must.timeless, "duplicate event id": len(must.duplicates)}
        expect(told.reasons == {name: n for name, n in reasons.items() if n}, f"rejected: {told.reasons}")


def _answers(db: Database, pieces: list[list[Row]], lateness: str | None) -> list[Any]:
    schema = [("at", pa.int64()), ("id", pa.int64()), ("k", pa.string()), ("n", pa.int64())]
    db.stream("s", schema, time="at", lateness=lateness, event_id=None if lateness is None else "id")
    standing = [db.subscribe(text) for text in _QUERIES]
    for piece in pieces:
        columns = zip(*piece, strict=True)
        db.push("s", pa.table([pa.array(column, kind) for column, (_, kind) in zip(columns, schema, strict=True)],
                              names=[name for name, _ in schema]))  # fmt: skip
    db.advance(_END)
    out: list[Any] = [db.sql("SELECT id, k, n FROM s").fetchall()]
    return out + [[tuple(row.values()) for batch in query.poll() for row in batch.to_pylist()] for query in standing]


FAULT = Fault(
    _NAME, "disorder within the lateness, late tuples, duplicates with an event id",
    "as sorted; counted; dropped once", attempt, control, full=10_000, small=40,
)  # fmt: skip
