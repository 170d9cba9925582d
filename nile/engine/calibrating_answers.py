"""What whole answers take beside joining two streams: several streams, aggregates of a join and of one stream."""

from __future__ import annotations

from functools import partial

import numpy as np

from nile.engine import trials
from nile.engine.trials import asked, column, cpu_of, database
from nile.operators.aggregate.exact import aggregated
from nile.operators.aggregate.numbers import numbers_of
from nile.operators.aggregate.run import AggregateRun
from nile.operators.common.rows import numbered
from nile.operators.strategies.several import KeyCombinations
from nile.preferences.budget import Budget
from nile.sql.columns import AggregateItem, Field
from nile.summaries.heavy import pa

__all__ = ["calibrated_answers"]

_COLLECTED = 2.0
"""Times that numbers of groups take as long where garbage is collected, which is told without."""
_PAIRS = 1 << 16
"""Asked at once, as they are found."""


def calibrated_answers() -> dict[str, float]:
    """Prices by name: ns of CPU."""
    return _several() | _asked() | _aggregated() | _by_columns() | _estimated()


def _several() -> dict[str, float]:
    """What a tuple and a member of a combination of three streams cost, in the time there is."""
    keys, ample = 1 << 12, Budget(seconds=3600.0)
    ts = tuple(np.arange(trials.MANY >> 1) * trials.GAP for _ in range(3))
    codes = tuple(column(trials.MANY >> 1, trials.MANY >> 5, seed, text=False).to_numpy() for seed in range(3))
    listed = cpu_of(lambda: KeyCombinations(ts, codes, trials.GAP << 10), 3, cold=True)
    db = database(trials.TUPLES >> 1, keys, streams="abc")
    few, all_ = (
        db.join(*"abc", on="k", window=window).prefer("desc").using(costs="machine")
        for window in (1e-9, 4e-9 * keys * trials.GAP)
    )
    rows = max(1, asked(all_, ample) - asked(few, ample))
    member = (cpu_of(lambda: asked(all_, ample), 3) - cpu_of(lambda: asked(few, ample), 3)) / (len(ts) * rows)
    return {"clique": listed / sum(map(len, ts)), "member": max(trials.LEAST, member)}


def _asked() -> dict[str, float]:
    """What pairs cost that are asked a condition, each column, function and comparison of it."""
    db, at = database(trials.TUPLES >> 4, 1 << 8, others=True), np.random.Generator(np.random.PCG64(5))
    query = db.join("a", "b", on="k", window=1.0, where="a.v + 1 < b.w * 2").prefer("desc").using(costs="engine")
    joined = query.run(1.0).joined
    assert joined.condition is not None
    places = [np.sort(at.integers(0, len(joined.streams[0]), _PAIRS)), at.integers(0, len(joined.streams[1]), _PAIRS)]
    return {"asked": cpu_of(lambda: joined.test_members(places)) / (_PAIRS * joined.condition.parts)}


def _aggregated() -> dict[str, float]:
    """What outputs of a join cost that are aggregated, once they were found."""
    keys, ample = 1 << 8, Budget(seconds=3600.0)
    db = database(trials.TUPLES >> 2, keys)
    query = db.join("a", "b", on="k", window=8e-9 * keys * trials.GAP).prefer("weighted").using(costs="machine")
    found = query.run(ample)

    def made(aggregates: dict[str, str], by: str | None = None) -> float:
        return cpu_of(lambda: found.aggregate(aggregates, by=by), 3) / max(1, sum(map(len, found.outputs())))

    one, two = made({"n": "count(*)"}), made({"n": "count(*)", "m": "count(*)"})
    column, groups = made({"n": "sum(b.k)"}), made({"n": "count(*)"}, "b.k")
    few = (
        database(trials.TUPLES >> 3, trials.TUPLES >> 3)
        .join("a", "b", on="k")
        .prefer("weighted")
        .using(costs="machine")
        .run(ample)
    )
    each = sum(map(len, few.outputs()))
    alone, in_groups = (cpu_of(lambda by=by: few.aggregate({"n": "count(*)"}, by=by), 3) for by in (None, "a.k"))  # type: ignore[misc]
    many = len(few.aggregate({"n": "count(*)"}, by="a.k").to_arrow())
    summed, gathered = max(trials.LEAST, two - one), max(trials.LEAST, column - one)
    by = max(trials.LEAST, groups - one - gathered)
    return {
        "summed": summed, "made": max(trials.LEAST, one - summed), "gathered": gathered, "grouped": by,
        "group": max(trials.LEAST, _COLLECTED * (in_groups - alone - each * (gathered + by)) / max(1, many)),
    }  # fmt: skip


def _by_columns() -> dict[str, float]:
    """What a tuple of one stream costs in exact aggregates, in groups that no near cache holds."""
    n = trials.MANY
    draw = np.random.Generator(np.random.PCG64(7))
    codes, doubles, whole = draw.integers(0, 1 << 10, n), pa.array(draw.random(n)), pa.array(draw.integers(0, 9, n))
    alone = np.zeros(n, np.int64)

    def made(function: str, values: pa.Array, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        item = AggregateItem(Field("x", pa.float64()), function, None)
        return cpu_of(lambda: aggregated(item, values, at, int(at.max()) + 1), 3, cold=True) / n

    return {
        "arranged": cpu_of(lambda: numbered(codes), 3, cold=True) / n,
        "tallied": made("sum", whole, codes),
        "added": made("sum", doubles, alone),
        "sorted": made("median", doubles, codes),
    }


def _estimated() -> dict[str, float]:
    """What a sample of one stream costs, from which aggregates are told."""
    db = database(trials.MANY, 1 << 10)
    told: dict[str, float] = {}
    for name, aggregate in (("estimated", "sum(k)"), ("ordered", "median(k)")):
        bound = db.aggregate("a", {"n": aggregate}).bound
        given, plan = bound.load(db._names, timed=True)[0], bound.plan(Budget(seconds=3600.0))
        begun = partial(AggregateRun, plan, given.data, lambda: 0.0)
        told["shuffled"] = cpu_of(begun, cold=True) / trials.MANY
        run = begun()
        run.grow(0, trials.MANY >> 1)
        told[name] = cpu_of(partial(numbers_of, run, 0, given.labels, 0.95), cold=True) / (trials.MANY >> 1)
    return told
