"""Standing queries through a burst of ten times the rate: what they hold, what they take, what their intervals hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.experiments.benchmarks.harness import Measure
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import nile
else:
    nile = lazy("nile")

__all__ = ["through_bursts"]

COVERAGE_BAR = 0.93
AFTER_BAR = 5.0
_SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("x", pa.float64())]
_STEP = 0.1
_BURST = range(25, 45)
_STEPS, _USUAL, _TIMES = 95, 100, 10
_QUERIES = {
    "aggregates": ("SELECT k % 40 AS g, count(*) AS n, sum(x) AS y FROM s GROUP BY k % 40 WINDOW 2", 600_000),
    "join and aggregates": (
        "SELECT count(*) AS n, sum(a.x * b.x) AS y FROM s a, r b WHERE a.k = b.k WINDOW 2", 1_500_000,
    ),
    "DISTINCT": ("SELECT DISTINCT k FROM s WINDOW 2", 800_000),
    "EXCEPT": ("SELECT k FROM s EXCEPT SELECT k FROM r WINDOW 2", 900_000),
    "INTERSECT": ("SELECT k FROM s INTERSECT SELECT k FROM r WINDOW 2", 900_000),
    "selection": ("SELECT k, x FROM s WHERE x > 0.5", 400_000),
}  # fmt: skip
_APPENDED = {
    "DISTINCT that appends": ("SELECT DISTINCT k FROM s WINDOW 2", 600_000),
    "UNION that appends": ("SELECT k FROM s UNION SELECT k FROM r WINDOW 2", 900_000),
    "EXCEPT that appends": ("SELECT k FROM s EXCEPT SELECT k FROM r WINDOW 2", 900_000),
    "INTERSECT that appends": ("SELECT k FROM s INTERSECT SELECT k FROM r WINDOW 2", 900_000),
}
"""What a filter of last times stands for."""
_BY = {"aggregates": 1, "join and aggregates": 0}
"""Columns of its groups; of others an estimate is told."""


def _database(**bounds: Any) -> Any:
    db = nile.connect(**bounds)
    for name in "sr":
        db.stream(name, _SCHEMA, time="t", keep=1)
    return db


def _rows(draw: np.random.Generator, begin: float, span: float, n: int, seed: int) -> dict[str, Any]:
    keys = draw.integers(0, 3_000, n) + seed * 1_000_003  # other keys with every seed, so that other ones are sampled
    return {"t": np.sort(begin + span * draw.random(n)), "k": keys, "x": draw.random(n)}


def _worth(bounded: Any, by: int) -> Any:
    """What a query that is approximate tells of its numbers: rows with their intervals, or an estimate."""
    return bounded.estimate if by < 0 else bounded.intervals().to_pylist()


def _inside(exact: Any, told: Any, by: int) -> list[bool]:
    """Of each number that is approximate whether its interval holds the truth.

    exact: the exact rows or, where an estimate was told, how many there are.
    """
    if by < 0:
        return [bool(told.low <= exact <= told.high)]
    truth = {tuple(row.values())[:by]: row for row in exact}
    out = []
    for row in told:
        true = truth.get(tuple(row.values())[:by], {})
        known = [name for name in ("n", "y") if row[f"{name}_low"] is not None]
        out += [row[f"{name}_low"] <= (true.get(name) or 0) <= row[f"{name}_high"] for name in known]
    return out


def _truth(exact: Any, by: int) -> Any:
    """Of an exact query beside it: its rows now, how many they are, or how many it has told."""
    if exact.choice.emit != "snapshot":
        return exact.outputs
    rows = pa.Table.from_batches(exact.poll(), exact.schema).to_pylist()
    return len(rows) if by < 0 else rows


def _memory(name: str, seeds: int) -> list[Measure]:
    """One kind of query under a bound that suffices at the usual rate."""
    appends = name in _APPENDED
    text, bound = _APPENDED[name] if appends else _QUERIES[name]
    most, inside, after = 0, [], 0.0
    by = _BY.get(name, -1)
    for seed in range(seeds):
        exact_db, db = _database(), _database(memory=bound)
        exact = exact_db.subscribe(text, emit="append" if appends else "snapshot")
        bounded = db.subscribe(text, emit="append" if appends else None)
        draw = np.random.Generator(np.random.PCG64(seed))
        for step in range(_STEPS):
            n = _USUAL * (_TIMES if step in _BURST else 1)
            for stream in "sr":
                rows = _rows(draw, _STEP * step, _STEP, n, seed)
                for each in (exact_db, db):
                    each.push(stream, rows)
                most = max(most, bounded.memory + bounded.unread_bytes)
            bounded.poll()
            if step % 7 == 6:
                for each in (exact_db, db):
                    each.advance(_STEP * (step + 1) - 1e-6)
                bounded.poll()
                if bounded.approximate:
                    inside += _inside(_truth(exact, by), _worth(bounded, by), by)
            if step >= _BURST.stop and bounded.approximate:
                after = max(after, _STEP * (step + 1 - _BURST.stop))
        exact_db.close()
        db.close()
    held = Measure(f"burst, {name}: memory of its bound", most / bound, "times", 1.0, most=True,
                   about="" if inside else "it holds too little to be ever sampled")  # fmt: skip
    if not inside:
        return [held]
    return [
        held,
        Measure(f"burst, {name}: intervals that hold the truth", float(np.mean(inside)), "share", COVERAGE_BAR,
                about=f"{len(inside):,} numbers"),
        Measure(f"burst, {name}: exact again after", after, "s", AFTER_BAR, most=True),
    ]  # fmt: skip


def _exactly(draw: np.random.Generator, number: int) -> float:
    """CPU seconds of a push to each stream where nothing is sampled, windows full and kernels compiled."""
    took = 0.0
    with _database() as db:
        standing = [db.subscribe(text) for text, _ in _QUERIES.values()]
        for step in range(30):
            begun = time.thread_time()
            for stream in "sr":
                db.push(stream, _rows(draw, step * 0.25, 0.2, number, 0))
            took += time.thread_time() - begun if step >= 15 else 0.0
            for each in standing:
                each.poll()
    return took / 15


def _cpu(share: float, seconds: float) -> list[Measure]:
    """All kinds at once on the clock of the wall, at ten times a rate that takes a fifth of the share."""
    draw = np.random.Generator(np.random.PCG64(9))
    number = 400
    pace = _exactly(draw, number) / (share / 5.0)
    db = _database(cpu=share)
    standing = {name: db.subscribe(text) for name, (text, _) in _QUERIES.items()}
    spent: dict[str, float] = {"before": 0.0, "burst": 0.0, "after": 0.0}
    begun, at, back = time.monotonic(), 0.0, 0.0
    last = 0.0
    pushed: list[list[dict[str, Any]]] = []
    told: list[dict[str, Any]] = []
    while at < 5.0 * seconds:
        part = "before" if at < seconds else "burst" if at < 2.0 * seconds else "after"
        n = number * (_TIMES if part == "burst" else 1)
        pushed.append([_rows(draw, last, max(at - last, 1e-3) * 0.9, n, 0) for _ in "sr"])
        last = max(at, last + 1e-3)  # after the rows of this push
        used = time.thread_time()
        for stream, rows in zip("sr", pushed[-1], strict=True):
            db.push(stream, rows)
        if at > 0.2 * seconds:
            spent[part] += time.thread_time() - used
        told.append({})
        for name, each in standing.items():
            each.poll()
            if each.approximate:
                told[-1][name] = _worth(each, _BY.get(name, -1))
        if part == "after" and told[-1]:
            back = at - 2.0 * seconds
        time.sleep(max(0.0, pace - (time.monotonic() - begun - at)))
        at = time.monotonic() - begun
    db.close()
    used = spent["burst"] / seconds
    inside = _held(pushed, told)
    return [
        Measure("burst, six queries: CPU of its bound", used / (share * (1.0 + 1.0 / seconds)), "times", 1.0, most=True,
                about=f"{used:.3f} of a core, {share} asked and a second's share saved up before; "
                      f"{spent['before'] / (0.8 * seconds):.3f} before the burst; pushes every {pace:.2f} s"),
        Measure("burst, six queries: exact again after", back, "s", AFTER_BAR, most=True),
        *(
            Measure(f"burst on the CPU, {name}: intervals that hold the truth", float(np.mean(found)), "share",
                    COVERAGE_BAR, about=f"{len(found):,} numbers")
            for name, found in inside.items() if found
        ),
    ]  # fmt: skip


def _held(pushed: list[list[dict[str, Any]]], told: list[dict[str, Any]]) -> dict[str, list[bool]]:
    """Of each query whether what was told after each push holds the truth, worked out exactly from the same pushes."""
    found: dict[str, list[bool]] = {name: [] for name in _QUERIES}
    with _database() as db:
        exact = {
            name: db.subscribe(text, emit=None if name == "selection" else "snapshot")
            for name, (text, _) in _QUERIES.items()
        }
        for rows, said in zip(pushed, told, strict=True):
            for stream, each in zip("sr", rows, strict=True):
                db.push(stream, each)
            exact["selection"].poll()
            for name, worth in said.items():
                found[name] += _inside(_truth(exact[name], _BY.get(name, -1)), worth, _BY.get(name, -1))
    return found


def through_bursts(seeds: int, share: float = 0.25, seconds: float = 5.0) -> list[Measure]:
    """Bounds on memory by kind of query, on the clock of the data, and on CPU time, on the clock of the wall."""
    names = [*(name for name in _QUERIES if name != "selection"), *_APPENDED]
    measures = [each for name in names for each in _memory(name, seeds)]
    return measures + _cpu(share, seconds)
