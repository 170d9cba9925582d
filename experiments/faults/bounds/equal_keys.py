"""Many rows with one key on both sides: counted and aggregated without a pair, in bounded memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import nile
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.memory import MB, anonymous, bounded
from nile.summaries.heavy import pa

__all__ = ["FAULT"]

_TOUCHED = 120 * MB
_CLAIMED = 8_000 * MB
_HOT = 6_000
_TEXT = "SELECT count(*), sum(a.x), min(b.x), avg(a.x) FROM a, b WHERE a.k = b.k"


def _database(rng: np.random.Generator) -> tuple[nile.Database, dict[str, dict[str, Any]]]:
    db, held = nile.connect(), {}
    for name in "ab":
        rows = int(rng.integers(_HOT, 2 * _HOT))
        keys = np.where(rng.random(rows) < 0.9, 0, rng.integers(1, 50, rows))
        columns = {"t": np.sort(rng.integers(0, 1_000, rows)), "k": keys, "x": rng.integers(-100, 100, rows)}
        db.register(name, pa.table(columns), time="t")
        held[name] = columns
    return db, held


def _counted(held: dict[str, dict[str, Any]], window: int | None) -> tuple[int, int]:
    """(pairs, sum of a.x over them), tuple by tuple."""
    a, b = held["a"], held["b"]
    pairs = total = 0
    for key in np.unique(a["k"]):
        times = b["t"][b["k"] == key]
        mine = a["k"] == key
        low, high = np.zeros(int(mine.sum()), np.int64), np.full(int(mine.sum()), times.shape[0])
        if window is not None:
            low = np.searchsorted(times, a["t"][mine] - window, "left")
            high = np.searchsorted(times, a["t"][mine] + window, "right")
        pairs += int((high - low).sum())
        total += int(((high - low) * a["x"][mine]).sum())
    return pairs, total


def _holding(held: dict[str, dict[str, Any]], window: int) -> int:
    """Pairs of what the windows hold at 1,000."""
    a, b = (columns["k"][columns["t"] >= 1_000 - window] for columns in held.values())
    return int(sum((a == key).sum() * (b == key).sum() for key in np.unique(a)))


def _ask(db: nile.Database, window: int | None) -> tuple[int, int, int]:
    """(pairs by aggregate, sum of a.x, pairs by estimate) of the join in Python."""
    join = db.join("a", "b", on="k")
    join = join if window is None else join.within(window)
    told = join.aggregate({"n": "count(*)", "s": "sum(a.x)"}).run()
    return told.value("n"), told.value("s"), int(join.run().estimate.value)


@cache
def _loaded() -> None:
    """Kernels come into memory once a process, whatever is asked: what a question touches is what it adds."""
    with nile.connect() as db:
        for name in "ab":
            db.register(name, pa.table({"t": [0, 1], "k": [0, 1], "x": [0, 1]}), time="t")
        for window in (None, 400):
            _ask(db, window)
        db.sql(_TEXT).fetchall()
    _told({name: {"t": [0, 1], "k": [0, 1], "x": [0, 1]} for name in "ab"}, 400)


def _told(held: dict[str, dict[str, Any]], window: int | None) -> tuple[int, int]:
    """(the last count, the counts that a standing query tells) of the join, pushed stream by stream."""
    count = last = 0
    with nile.connect() as db:
        for name in "ab":
            db.stream(name, [("t", "int64"), ("k", "int64"), ("x", "int64")], time="t")
        text = "SELECT count(*) AS n FROM a, b WHERE a.k = b.k"
        standing = db.subscribe(text if window is None else f"{text} WINDOW {window}", emit="changes")
        for name, columns in held.items():
            db.push(name, columns)
        db.advance(1_000)
        for batch in standing.poll():
            count += batch.num_rows
            last = batch.column("n")[-1].as_py()
    return last, count


def _attempt(seed: int) -> None:
    _loaded()
    rng = generator("equal-keys", seed)
    db, held = _database(rng)
    window = None if rng.random() < 0.5 else int(rng.integers(400, 900))
    wanted = _counted(held, window)
    anonymous()  # what allocators keep for later would hide what is touched
    with bounded(_TOUCHED, _CLAIMED):
        pairs, total, estimated = _ask(db, window)
        expect((pairs, estimated) == (wanted[0],) * 2, f"{wanted[0]} pairs; got {pairs}, estimated {estimated}")
        expect(total == wanted[1], f"a sum of {wanted[1]}; got {total}")
        if window is None:
            ((count, whole, _, mean),) = db.sql(_TEXT).fetchall()
            expect((count, whole) == wanted, f"SQL: {wanted}; got {count}, {whole}")
            expect(mean == wanted[1] / wanted[0], f"SQL: a mean of {wanted[1] / wanted[0]}; got {mean}")
        last, told = _told(held, window)
        here = wanted[0] if window is None else _holding(held, window)
        expect(last == here, f"standing: {here} pairs hold in the end; got {last}")
        expect(told <= 4_000, f"standing: two rows an instant at most, of tuples that come or leave; got {told}")


def _control(seed: int) -> None:
    """A check of memory, and not of numbers: pairs that are made touch more than the cap."""
    rng = generator("equal-keys", seed)
    db, _ = _database(rng)
    anonymous()
    with bounded(_TOUCHED, _CLAIMED):
        parts = list(db.join("a", "b", on="k").run().batches())
        expect(parts, "no pair was made")


FAULT = Fault(
    "equal-keys", "tens of millions of pairs of one key, counted and summed", "exact, and no pair is made", _attempt,
    _control, full=300, small=3,
)  # fmt: skip
