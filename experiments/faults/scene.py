"""A database with every kind of standing query, all of whose state can be compared, and what may be done to it.

The same changes give the same state, byte for byte, however they came about: `Scene.state` of a database that was
interrupted, called back or gone back into is that of one to which the same was done in peace.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nile.engine.connect import connect
from nile.execution.envelopes import flat
from nile.execution.live.subscription import Subscription
from nile.experiments.faults.fault import expect
from nile.pyramid.grid.manager_state import manager_content

__all__ = ["LEVELS", "PARTS", "QUERIES", "SHARED", "Callback", "Scene", "differing", "first_difference", "rows"]

Callback = Callable[[pa.RecordBatch], None]

QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("SELECT n, k FROM a WHERE k < 3", {}),
    "running": ("SELECT k, count(*) AS n FROM a GROUP BY k", {"emit": "changes"}),
    "windowed": ("SELECT k, sum(n) AS n FROM a [RANGE '4 s'] GROUP BY k", {}),
    "distinct": ("SELECT DISTINCT k FROM a [RANGE '3 s']", {"emit": "changes"}),
    "stored": ("SELECT a.n, r.w FROM a, r WHERE a.k = r.k", {}),
    "join": ("SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WINDOW '2 s'", {}),
    "self": ("SELECT x.n, y.n AS m FROM a x, a y WHERE x.k = y.k WINDOW '1 s'", {}),
    "priced": ("SELECT a.n, p.w FROM a, p WHERE a.k = p.k WINDOW '3 s'", {"emit": "changes"}),
    "alone": ("SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.k = b.k AND a.n < b.n WINDOW '2 s'", {"emit": "changes"}),
    "ranked": ("SELECT n, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM a [RANGE '3 s']", {"emit": "changes"}),
    "desc": ("SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '4 s' BUDGET 0.5", {}),
    "weighted": (
        "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WITH PREFERENCE weighted a.k WINDOW '4 s' BUDGET 0.5",
        {"seed": 1},
    ),
    "asc": (
        "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WITH PREFERENCE asc a.k WINDOW '4 s' BUDGET 0.5",
        {"outlier_cap": 2},
    ),
}
_ONE = "SELECT k, count(*) AS n, sum(n) AS s FROM a [RANGE '3 s'] GROUP BY k"
SHARED = ("whole", "busy", "more", "again")
"""These run on one plan; `whole` is the oldest of them."""
_SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": (_ONE, {"emit": "changes"}),
    "busy": (f"{_ONE} HAVING count(*) > 2", {"emit": "changes"}),
    "more": ("SELECT k, count(*) AS n, sum(n) + 1 AS m FROM a [RANGE '3 s'] GROUP BY k", {"emit": "changes"}),
    "again": (_ONE, {"emit": "changes"}),
}
PARTS = ("sums", "longer", "different", "pairs")
"""Joins of one stream with itself: of all the tuples are held once, and of the first and third the join runs once."""
_JOINED = "FROM a x, a y WHERE x.k = y.k"
_PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sums": (f"SELECT y.n, sum(x.n) AS s {_JOINED} GROUP BY y.n WINDOW '2 s'", {"emit": "changes"}),
    "longer": (f"SELECT x.k, sum(y.n) AS s {_JOINED} GROUP BY x.k WINDOW '3 s'", {"emit": "changes"}),
    "different": (f"SELECT DISTINCT x.k, y.n {_JOINED} WINDOW '2 s'", {"emit": "changes"}),
    "pairs": (f"SELECT x.n, y.n AS m {_JOINED} WINDOW '1 s'", {}),
}
LEVELS = ("grouped", "few", "most", "unlike", "each", "joined")
"""Of these the join runs once, of all but the last a GROUP BY of it, of two a GROUP BY of that, of two a DISTINCT."""
_GROUPED = f"SELECT x.k, y.n, sum(x.n) AS s {_JOINED} GROUP BY x.k, y.n"
_BY_KEY = f"SELECT k, sum(s) AS s, count(*) AS c FROM ({_GROUPED}) q GROUP BY k"
_DIFFERENT = f"SELECT DISTINCT k, s FROM ({_GROUPED}) q"
_LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped": (f"{_BY_KEY} WINDOW '2 s'", {"emit": "changes"}),
    "few": (f"SELECT c, max(s) AS s FROM ({_BY_KEY}) q GROUP BY c WINDOW '2 s'", {"emit": "changes"}),
    "most": (f"SELECT k, max(s) AS s FROM ({_DIFFERENT}) q GROUP BY k WINDOW '2 s'", {"emit": "changes"}),
    "unlike": (f"{_DIFFERENT} WINDOW '2 s'", {"emit": "changes"}),
    "each": (f"{_GROUPED} WINDOW '2 s'", {"emit": "changes"}),
    "joined": (f"SELECT x.n, y.n AS m {_JOINED} WINDOW '2 s'", {"emit": "changes"}),
}
_SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("n", pa.int64())]


def rows(first: int, count: int = 12) -> dict[str, Any]:
    """Rows first..first+count-1 of a stream: five per second, six keys; the last is late by half a second."""
    n = np.arange(first, first + count)
    at = n / 5.0
    at[-1] -= 0.5
    return {"t": at, "k": n * n % 6, "n": n}


class Scene:
    """Streams a and b (out of order by up to a second), relations r and p, which changes, a summary, and these queries.

    told: the rows that callbacks were told, by query; callbacks: what is called with a batch beside noting it.
    store: where its store lies, None for none; scheduler: of operators of exact queries, None: each query by itself.
    """

    def __init__(
        self,
        queries: tuple[str, ...],
        *,
        store: Path | None = None,
        polled: tuple[str, ...] = (),
        callbacks: dict[str, Callback] | None = None,
        scheduler: str | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.db = connect(store, checkpoint=None, scheduler=scheduler)
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.standing: dict[str, Subscription] = {}
        self.store = store
        goods: Any = {"k": [0, 1, 4], "w": [7, 8, 9]}
        if store is not None:
            goods = store.with_suffix(".csv")
            goods.write_text("k,w\n0,7\n1,8\n4,9\n")
        self.db.register("r", goods)
        self.db.sql("CREATE RELATION p (k BIGINT, w BIGINT)")
        self.db.sql("INSERT INTO p VALUES (0, 7), (1, 8), (4, 9)")
        for stream in "ab":
            self.db.stream(stream, _SCHEMA, time="t", lateness="1 s", keep=None if stream == "a" else "20 s")
        self.db.sql("CREATE SUMMARY s ON a (k) WITH GRANULARITY '2 s' AND COLLAPSE (2, 2)")
        for name in queries:
            self.subscribe(name, None if name in polled else (callbacks or {}).get(name, lambda _: None))
        self.push("a", 0)
        self.push("b", 0)

    def subscribe(self, name: str, callback: Callback | None) -> None:
        """One of QUERIES, SHARED, PARTS or LEVELS, with a callback that notes what it is told; None: it is polled."""
        text, options = (QUERIES | _SHARED | _PARTS | _LEVELS)[name]
        told = self.told.setdefault(name, [])

        def heard(batch: pa.RecordBatch) -> None:
            told.extend(batch.to_pylist())
            if callback is not None:
                callback(batch)

        self.standing[name] = self.db.subscribe(
            text, None if callback is None else heard, name=None if self.store is None else name, **options
        )

    def push(self, stream: str, first: int, count: int = 12) -> int:
        """Rows with an offset that says which."""
        return self.db.push(stream, rows(first, count), offset={"rows": first + count})

    def next(self, stream: str) -> int:
        """The row that comes next."""
        return self.db._live.get(stream).pushed

    def found_again(self) -> None:
        """Take up named queries that were made, let go of closed ones: who did that may have been interrupted."""
        self.standing = {name: one for name, one in self.standing.items() if not one.closed}
        for name in set(self.db.subscriptions) - set(self.standing):
            self.standing[name] = self.db.subscription(name)

    def reopen(self) -> None:
        """The database as another process would have it."""
        assert self.store is not None
        self.db = connect(self.store, checkpoint=None, scheduler=self.scheduler)
        self.standing.clear()
        self.found_again()

    def state(self) -> dict[str, Any]:
        """All that is held and all that was told."""
        out: dict[str, Any] = {}
        live = self.db._live
        for name, stream in live.streams().items():
            kept = [(ts.tolist(), batch.to_pylist()) for ts, batch in stream.kept(stream.schema.names)]
            told = [row for ts, batch in kept for row in zip(ts, map(repr, batch), strict=True)]
            out[f"stream {name}"] = (_plain(*stream.content()), live.offsets.get(name), told)
        for name in self.db._names.summaries:
            manager = live.summaries.get(name)
            out[f"summary {name}"] = None if manager is None else _plain(*manager_content(manager))
        for name, one in self.standing.items():
            held = None if one.closed else _plain(*flat(one.capture()))
            # Behind what is held: under a scheduler that works on what waits first, and finds more.
            out[f"query {name}"] = (one.closed, one.outputs, held)
            out[f"told {name}"] = list(map(repr, self.told.get(name, [])))
        out["names"] = (sorted(self.db._names.entries), self.db.subscriptions)
        return out

    def check_free(self) -> None:
        """Nothing is held: another thread gets the lock, nobody is being told, no push is going on."""
        live, got = self.db._live, []

        def other() -> None:
            if live.lock.acquire(timeout=5):
                live.lock.release()
                got.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        expect(got, "the lock is held by nobody who will let it go")
        expect(not live.commits._telling, "somebody is told for ever")
        expect(not any(stream.pushing for stream in live.streams().values()), "a push goes on for ever")


def _plain(params: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> tuple[Any, ...]:
    """What an envelope would hold, byte for byte, without its checksum: that takes longer than the rest."""
    header = json.dumps(params, sort_keys=True, allow_nan=False)
    return header, [(name, each.dtype.str, each.shape, each.tobytes()) for name, each in arrays.items()]


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The parts in which two states differ."""
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def first_difference(one: Any, other: Any, at: str = "") -> str:
    """Where two states first differ, and what each has there."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for k, (mine, its) in enumerate(zip(one, other, strict=True)):
            if mine != its:
                return first_difference(mine, its, f"{at}[{k}]")
    mine, its = repr(one), repr(other)
    start = max(next((k for k, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b), 0) - 40, 0)
    return f"{at}: {mine[start : start + 120]} is not {its[start : start + 120]}"
