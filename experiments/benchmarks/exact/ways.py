"""One exact join asked three ways, db.join, db.sql and db.query, which run one operator and take the same CPU time."""

from __future__ import annotations

import resource
import time
from itertools import combinations
from statistics import median

import numpy as np

from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Contestant, Measure, Result, Timing, benchmark, race
from nile.summaries.heavy import pa

__all__ = ["ways"]

TITLE = "one exact join asked through db.join, db.sql and db.query"
APART = 1.05
SHAPES = (("Zipf 1.23", 300_000, 20_000, 1.23, 0.5), ("Zipf 0.8", 1_000_000, 100_000, 0.8, 3.0))
"""Name, tuples per stream (1 ms apart), keys, exponent, window in seconds."""


@benchmark("ways", TITLE)
def ways() -> Result:
    """Both shapes, the whole answer as an Arrow table, of the same five columns in every way.

    Eighteen rounds of each, in which every way comes after each other one as often.
    """
    found = [_race(*shape) for shape in SHAPES]
    own = [_race(*shape, own=True) for shape in SHAPES]
    return Result(
        name="ways",
        title=TITLE,
        unit="tuples",
        work=sum(one.work for one in found),
        timings=tuple(each for one in found for each in one.timings),
        measures=tuple(
            measure
            for clock, bar, races in (("process CPU", APART, found), ("outside of the system", None, own))
            for one in races
            for pair in combinations(one.timings, 2)
            for measure in _compared(*pair, clock, bar)
        ),
        notes=(
            "SQL and the builder select a column of places for the ordinals that db.join gives by itself",
            "process CPU holds what the system spends on clearing pages, which falls on whoever comes after one that "
            "gave its memory back; the ratios without it are reported beside, without a bar",
        ),
    )


def _compared(one: Timing, other: Timing, clock: str, bar: float | None) -> tuple[Measure, Measure]:
    """By how much two ways differ, whichever takes longer; and their ratio, which says which one."""
    name = f"{other.contestant}, against {one.contestant}, {clock}"
    rounds = [theirs / ours for ours, theirs in zip(one.seconds, other.seconds, strict=True)]
    middle = median(rounds)
    return (
        Measure(f"{name}: apart", max(middle, 1.0 / middle), "times", bar, most=True),
        Measure.of(name, rounds, "times the time", None),
    )


def _race(shape: str, tuples: int, keys: int, exponent: float, window: float, *, own: bool = False) -> Result:
    db = Database()
    for seed, name in enumerate(("a", "b")):
        db.register(name, _stream(tuples, keys, exponent, seed), time="ts")
    chosen = ("a.n AS left_ordinal", "b.n AS right_ordinal", "a.k", "a.ts AS left_ts", "b.ts AS right_ts")
    text = f"SELECT {', '.join(chosen)} FROM a, b WHERE a.k = b.k WINDOW {window}"
    built = db.query("a").join("b", on="k").window(window).select(*chosen)
    asked = (
        Contestant(f"db.join, {shape}", lambda: db.join("a", "b", on="k", window=window).run().to_arrow()),
        Contestant(f"db.sql, {shape}", lambda: db.sql(text).to_arrow()),
        Contestant(f"db.query, {shape}", lambda: built.run().to_arrow()),
    )
    clock = _own_ns if own else time.process_time_ns
    return race("ways", TITLE, asked, work=2 * tuples, unit="tuples", rounds=18, clock=clock)


def _own_ns() -> int:
    """CPU time of the process outside of the system."""
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_utime * 1e9)


def _stream(tuples: int, keys: int, exponent: float, seed: int) -> pa.Table:
    shares = np.arange(1, keys + 1) ** -exponent
    drawn = np.random.default_rng(seed).choice(keys, tuples, p=shares / shares.sum())
    places = np.arange(tuples)
    return pa.table({"ts": pa.array(places * 1_000_000).view(pa.timestamp("ns")), "k": drawn, "n": places})
