"""A process that pushes a known stream into a database with a store, for ever.

`python tests/harness/child_engine.py PATH`; with `fork` behind it a server of such processes, which have their kernels.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from fork_server import serve

import nile
from nile.durable import keeper, pieces
from nile.execution.envelopes import packed
from nile.pyramid.grid.manager_state import manager_bytes

_READ_EVERY = 5_000

SALES = pa.schema([("at", pa.float64()), ("item", pa.string()), ("n", pa.int64())])
LONELY = "SELECT at, item, n FROM sales WHERE n % 3 > 0"
QUERY = "SELECT item, count(*) AS sold, sum(n) AS total FROM sales [RANGE '20 s'] GROUP BY item"

SAME = f"SELECT item, sold FROM ({QUERY}) q WHERE sold > 1"
"""It runs on the plan of QUERY."""
MADE = (
    ("dear_1", "INSERT INTO dear SELECT at, item FROM sales WHERE n % 5 = 0"),
    ("most", "CREATE MATERIALIZED VIEW most AS SELECT dear.item, max(n) AS n FROM dear, sales "
             "WHERE dear.item = sales.item GROUP BY dear.item WINDOW '9 s'"),
)  # fmt: skip
"""Queries that fill a stream, and from it a relation."""

THREE = (
    "SELECT a.n AS l, b.n AS m, c.n AS r FROM sales a, sales b, sales c WHERE a.item = b.item AND b.item = c.item "
    "WITH PREFERENCE weighted a.item WINDOW '20 s'"
)


def rows(begin: int, end: int) -> pa.RecordBatch:
    """Rows of the source: some out of order, some too late, some without a time."""
    at = [
        None if i % 211 == 0 else 0.5 * i - (40.0 if i % 97 == 0 else i * 13 % 7)
        for i in range(begin + 1000, end + 1000)
    ]
    items = [None if i % 31 == 0 else f"item {i * 7919 % 37}" for i in range(begin, end)]
    return pa.RecordBatch.from_arrays(
        [pa.array(at, pa.float64()), pa.array(items), pa.array(range(begin, end))], schema=SALES
    )


def opened(path: Path | None) -> nile.Database:
    """The database at `path`, with its stream, summary and standing query: new, or gone on with."""
    db = nile.connect(path, checkpoint=None, **({} if path is None else {"memory": "16MB"}))
    db.stream("sales", SALES, time="at", lateness="10 s")
    if not db.sql("SHOW SUMMARIES").fetchall():
        db.sql("CREATE SUMMARY items ON sales (item) WITH GRANULARITY '30 s' AND COLLAPSE (3, 2)")
    db.stream("dear", [("at", "float64"), ("item", "string")], time="at")
    for name, text in MADE:
        if name not in db.subscriptions:
            db.sql(text)
    db.subscribe(QUERY, name="recent")
    db.subscribe(SAME, name="same")
    db.subscribe(LONELY, name="lonely")
    db.subscribe(THREE, name="three", budget=0.3)
    return db


def push(db: nile.Database, begin: int, end: int) -> None:
    """Rows begin..end-1, in batches whose sizes differ."""
    while begin < end:
        to = min(end, begin + 1 + begin * 31 % 90, (begin // _READ_EVERY + 1) * _READ_EVERY)
        db.push("sales", rows(begin, to), offset=to)
        if to % _READ_EVERY == 0:
            db.subscription("lonely").poll()
        begin = to
    db.subscription("recent").poll()
    db.subscription("same").poll()
    db.subscription("three").poll()


def seen(db: nile.Database) -> dict[str, Any]:
    """All that must have come back."""
    return {
        "rows": db.sql("SELECT * FROM sales").to_arrow().to_pydict(),
        "dear": db.sql("SELECT * FROM dear").to_arrow().to_pydict(),
        "most": db.sql("SELECT * FROM most").to_arrow().to_pydict(),
        "filling": [packed("query", db.subscription(name).capture()) for name, _ in MADE],
        "same": packed("query", db.subscription("same").capture()["operators"]),
        "accounting": db.accounting("sales"),
        "late": db.late("sales").to_pydict(),
        "rejected": db.quarantine("sales").to_pydict(),
        "summary": manager_bytes(db.summary("items")),
        "unread": unread(db.subscription("lonely")),
        "query": packed("query", db.subscription("recent").capture()["operators"]),
        "three": packed("three", db.subscription("three").capture()["join"]),
    }


def unread(standing: Any) -> tuple[int, list[dict[str, Any]]]:
    """The ordinal of the first output that nobody has read, and all of these, which go on to wait."""
    return standing.outputs - standing.unread, [row for batch in standing._found for row in batch.to_pylist()]


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of what differs; the values are too long to be shown side by side."""
    return [name for name in one if one[name] != other[name]]


def in_small() -> None:
    """From here on outputs that wait go to files of their own, and states are cut into pieces, at most checkpoints."""
    keeper._SEALED = 500  # bytes
    pieces.LEAST = pieces._SHORTEST = 256
    pieces._MEAN = 512


def main() -> None:
    """Push and commit until killed; says how many rows are durable."""
    push(opened(None), 0, 400)  # kernels are compiled before anyone may be killed, or they never would be
    if "fork" in sys.argv[2:]:
        serve(work)
    else:
        work()


def work() -> None:
    """Open the store and go on from its offset."""
    db = opened(Path(sys.argv[1]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        begin = db.offset("sales")
        push(db, begin, begin + 1 + begin * 17 % 300)
        db.checkpoint()
        sys.stdout.write(f"{db.offset('sales')}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    in_small()
    main()
