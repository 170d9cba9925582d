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

__all__ = ["on_the_clock_of_the_data", "on_the_data", "through_bursts"]

COVERAGE_BAR = 0.93
AFTER_BAR = 5.0
_SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("x", pa.float64())]
_STEP = 0.1
_BURST = range(25, 45)
_STEPS, _USUAL, _TIMES = 95, 100, 10
_SHARE, _TUPLE = 0.5, (1.1e-5, 4e-5)
"""Of a core; seconds that a tuple is said to take a plan, by turns: at the usual rate all six plans together take
a fifth of the share, or two thirds."""
_TRIES, _MEASURED, _PAUSE = 4, 15, 0.03
"""Paces tried on the clock of the wall, pushes of which the cost is measured, and seconds between them: what else runs
meanwhile empties the caches, as it does later."""
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


def _pace(draw: np.random.Generator, number: int, share: float) -> float:
    """Seconds between pushes of `number` tuples to each stream at which they take that share of a core, none sampled.

    The faster they come, the more windows hold and the more pairs a tuple finds: tried at a pace, that gives the next.
    """
    pace = 0.1
    for _ in range(_TRIES):
        took, full = 0.0, int(2.0 / pace) + 1
        with _database(cpu=1.0) as db:
            standing = [db.subscribe(text) for text, _ in _QUERIES.values()]
            for step in range(full + _MEASURED):
                begun = time.thread_time()
                for stream in "sr":
                    db.push(stream, _rows(draw, step * pace, 0.9 * pace, number, 0))
                took += time.thread_time() - begun if step >= full else 0.0
                for each in standing:
                    each.poll()
                time.sleep(_PAUSE)
        pace = took / _MEASURED / share
    return pace


def _on_the_wall(share: float, seconds: float) -> list[Measure]:
    """All kinds at once on the clock of the wall, at ten times a rate that takes a fifth of the share."""
    draw = np.random.Generator(np.random.PCG64(9))
    number = 400
    pace = _pace(draw, number, share / 5.0)
    db = _database(cpu=share)
    standing = [db.subscribe(text) for text, _ in _QUERIES.values()]
    spent: dict[str, float] = {"before": 0.0, "burst": 0.0, "after": 0.0}
    begun, at, back = time.monotonic(), 0.0, 0.0
    last = 0.0
    while at < 5.0 * seconds:
        part = "before" if at < seconds else "burst" if at < 2.0 * seconds else "after"
        n = number * (_TIMES if part == "burst" else 1)
        pushed = [_rows(draw, last, max(at - last, 1e-3) * 0.9, n, 0) for _ in "sr"]
        last = max(at, last + 1e-3)  # after the rows of this push
        used = time.thread_time()
        for stream, rows in zip("sr", pushed, strict=True):
            db.push(stream, rows)
        if at > 0.2 * seconds:
            spent[part] += time.thread_time() - used
        for each in standing:
            each.poll()
        if part == "after" and any(each.approximate for each in standing):
            back = at - 2.0 * seconds
        time.sleep(max(0.0, pace - (time.monotonic() - begun - at)))
        at = time.monotonic() - begun
    db.close()
    used = spent["burst"] / seconds
    return [
        Measure("burst, six queries: CPU of its bound", used / (share * (1.0 + 1.0 / seconds)), "times", 1.0, most=True,
                about=f"{used:.3f} of a core, {share} asked and a second's share saved up before; "
                      f"{spent['before'] / (0.8 * seconds):.3f} before the burst; pushes every {pace:.2f} s"),
        Measure("burst, six queries: exact again after", back, "s", AFTER_BAR, most=True,
                about=f"{spent['after'] / (3.0 * seconds):.3f} of a core then, with what was in the windows"),
    ]  # fmt: skip


def on_the_clock_of_the_data(seed: int) -> tuple[dict[str, list[bool]], float, float]:
    """One burst under `cpu=`, each tuple that a plan takes in costing what is said, other keys with each seed.

    (of each query whether the interval of each approximate number holds the truth; seconds until all is exact again;
    what the burst was given, of the share and a second of it that was saved up).
    """
    now, many, after, spent = 0.0, 0, 0.0, 0.0
    kept: dict[str, list[dict[str, Any]]] = {"s": [], "r": []}
    found: dict[str, list[bool]] = {name: [] for name in _QUERIES}
    draw = np.random.Generator(np.random.PCG64(seed))
    with _database(cpu=_SHARE) as db:
        means = db._live.means
        assert means is not None
        means.clock = lambda: now
        means.meter = lambda: _TUPLE[seed % 2] * sum(sum(gate.took.values()) for gate in means.gates)
        standing = {name: db.subscribe(text) for name, (text, _) in _QUERIES.items()}
        for step in range(_BURST.start - 10, _STEPS):
            now, before = _STEP * (step + 1), means.meter()
            for stream, rows in kept.items():
                rows.append(_rows(draw, now - _STEP, _STEP, _USUAL * (_TIMES if step in _BURST else 1), seed))
                db.push(stream, rows[-1])
            many += int((kept["s"][-1]["x"] > 0.5).sum())
            spent += means.meter() - before if step in _BURST else 0.0
            looked = step % 7 == 6
            if looked:
                db.advance(now - 1e-6)
            truth = {**_exact_now(kept, now - 1e-6), "selection": many} if looked else {}
            for name, each in standing.items():
                each.poll()
                by = _BY.get(name, -1)
                if looked and (each.approximate or (name == "selection" and each.budget.spent < 1.0)):
                    found[name] += _inside(truth[name], _worth(each, by), by)
                if step >= _BURST.stop and each.approximate:
                    after = max(after, _STEP * (step + 1 - _BURST.stop))
    return found, after, spent / (_SHARE * (_STEP * len(_BURST) + 1.0))


def _exact_now(kept: dict[str, list[dict[str, Any]]], now: float) -> dict[str, Any]:
    """What each query but the selection tells of the last two seconds, worked out by hand."""
    parts = [[rows for rows in kept[stream] if rows["t"][-1] >= now - 2.0] for stream in "sr"]
    (k, x), (other, y) = (
        tuple(np.concatenate([rows[name][rows["t"] >= now - 2.0] for rows in part]) for name in ("k", "x"))
        for part in parts
    )
    keys = np.unique(np.concatenate([k, other]))
    (many, total), (others, sums) = (
        (np.bincount(at, minlength=keys.size), np.bincount(at, weights, keys.size))
        for at, weights in ((np.searchsorted(keys, k), x), (np.searchsorted(keys, other), y))
    )
    groups = k % 40
    told = zip(np.bincount(groups, minlength=40), np.bincount(groups, x, 40), strict=True)
    return {
        "aggregates": [{"g": g, "n": int(n), "y": float(y)} for g, (n, y) in enumerate(told)],
        "join and aggregates": [{"n": int((many * others).sum()), "y": float((total * sums).sum())}],
        "DISTINCT": int((many > 0).sum()),
        "EXCEPT": int(((many > 0) & (others == 0)).sum()),
        "INTERSECT": int(((many > 0) & (others > 0)).sum()),
    }


def on_the_data(seeds: int) -> list[Measure]:
    """Bursts under `cpu=`, of which each has its own keys and so its own sample."""
    found: dict[str, list[bool]] = {name: [] for name in _QUERIES}
    most, latest = 0.0, 0.0
    for seed in range(seeds):
        inside, after, spent = on_the_clock_of_the_data(seed)
        latest, most = max(latest, after), max(most, spent)
        for name, each in inside.items():
            found[name] += each
    return [
        Measure("bursts on the CPU: work of its bound", most, "times", 1.0, most=True, about=f"{seeds} bursts"),
        Measure("bursts on the CPU: exact again after", latest, "s", AFTER_BAR, most=True),
        *(
            Measure(f"bursts on the CPU, {name}: intervals that hold the truth", float(np.mean(each)), "share",
                    COVERAGE_BAR, about=f"{len(each):,} numbers")
            for name, each in found.items() if each
        ),
    ]  # fmt: skip


def through_bursts(seeds: int, share: float = 0.25, seconds: float = 5.0) -> list[Measure]:
    """Bounds on memory by kind of query, and on CPU time, on the clock of the data; and this on that of the wall."""
    names = [*(name for name in _QUERIES if name != "selection"), *_APPENDED]
    measures = [each for name in names for each in _memory(name, seeds)]
    return measures + on_the_data(4 * seeds) + _on_the_wall(share, seconds)
