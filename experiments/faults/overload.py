"""Bursts, readers that stand still, streams that fall silent, streams without tuples: counted, and memory flat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, expect, generator
from nile.summaries.errors import Overloaded

__all__ = ["BURST", "EMPTY", "SILENT", "STUCK"]

_SECOND = 10**9
_COUNT = "SELECT k, count(*) AS n FROM a [RANGE '5 s'] GROUP BY k"
_JOIN = "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '5 s' BUDGET 0.3"
_BUDGET_TOLERANCE = 0.05


class _Run:
    """A database on a simulated clock, with two streams that keep half a minute, and how many rows each was sent."""

    def __init__(self, seed: int, name: str, **options: Any) -> None:
        self.rng = generator(name, seed)
        self.db = Database()
        self.now = 0
        self.db._live.idleness.clock = lambda: self.now * _SECOND
        self.sent = dict.fromkeys("ab", 0)
        for stream in "ab":
            schema = [("t", "float64"), ("k", "int64"), ("n", "int64")]
            self.db.stream(stream, schema, time="t", lateness="1 s", keep="30 s", **options)

    def second(self, stream: str, rate: int) -> None:
        """Rows of one second, out of order within the lateness."""
        at = self.now + self.rng.random(rate)
        first = self.sent[stream]
        self.db.push(stream, {"t": at, "k": self.rng.integers(0, 50, rate), "n": np.arange(first, first + rate)})
        self.sent[stream] += rate

    def check(self, lost: int = 0) -> None:
        """Every row that was sent is accounted for.  lost: rows that were sent and never came, for a control."""
        for stream, sent in self.sent.items():
            told = self.db.accounting(stream)
            told.check()
            waiting = len(self.db._live.get(stream)._order.position()[1] or ())  # type: ignore[arg-type]
            expect(told.tuples_in + waiting == sent + lost, f"{stream}: {sent + lost} sent, {told}, {waiting} wait")


def _flat(before: int, after: int, what: str) -> None:
    expect(after <= 1.5 * before + 65_536, f"{what} grew from {before:,} to {after:,}")


def _burst(seed: int, lost: int = 0) -> None:
    """Ten times the rate for ten seconds; window, budget and accounting as before."""
    run = _Run(seed, "burst")
    counted, joined = run.db.subscribe(_COUNT), run.db.subscribe(_JOIN)
    rate = int(run.rng.integers(20, 60))
    held: dict[str, tuple[int, int]] = {}
    for now in range(60):
        run.now = now
        for stream in "ab":
            run.second(stream, rate * (10 if 20 <= now < 30 else 1))
        counted.poll()
        joined.poll()
        if now in (19, 59):
            held["before" if now == 19 else "after"] = (counted.memory, run.db._live.get("a").rows)
    run.check(lost)
    for one, other, what in zip(held["before"], held["after"], ("the window's state", "the rows kept"), strict=True):
        _flat(one, other, what)
    for told in joined.accounting.values():
        told.check()
        expect(told.tuples_in == told.applied + told.shed + told.late, f"the join's accounting: {told}")
    spent = joined.budget
    expect(spent.spent <= spent.asked * (1 + _BUDGET_TOLERANCE), f"spent {spent.spent} of {spent.asked}")


def _stuck(seed: int, lost: int = 0) -> None:
    """Nobody reads one query: what it may hold is bounded, others get every row, refused rows are not taken."""
    run = _Run(seed, "stuck")
    limit = int(run.rng.integers(50, 200))
    run.db.subscribe("SELECT n FROM a", unread=limit, when_full="refuse")
    dropping = run.db.subscribe("SELECT n FROM b", unread=limit, when_full="drop")
    brisk = run.db.subscribe("SELECT n FROM b")
    rate, refused, found = int(run.rng.integers(20, 60)), 0, 0
    for now in range(40):
        run.now = now
        try:
            run.second("a", rate)
        except Overloaded:
            refused += 1
        run.second("b", rate)
        found += sum(map(len, brisk.poll()))
        expect(dropping.unread <= limit, f"{dropping.unread} rows wait, at most {limit} may")
    expect(refused > 0, "a full query refused nothing")
    run.check(lost)
    expect(found == brisk.outputs == dropping.outputs, f"{found} rows read of {brisk.outputs}")
    expect(dropping.dropped + dropping.unread == dropping.outputs, "dropped and unread rows are not all there were")


def _silent(seed: int, lost: int = 0) -> None:
    """One of two joined streams falls silent: its window ends, the other is not held up, and it is told."""
    run = _Run(seed, "silent", idle="5 s")
    alone = run.db.subscribe("SELECT count(*) AS n FROM a [RANGE '5 s']")
    joined = run.db.subscribe("SELECT a.n FROM a, b WHERE a.k = b.k WINDOW '5 s'")
    rate, since = int(run.rng.integers(5, 30)), int(run.rng.integers(10, 20))
    standing: list[int] = []
    held = 0
    for now in range(60):
        run.now = now
        if now < since:
            run.second("a", rate)
        run.second("b", rate)
        joined.poll()
        standing += [row["n"] for batch in alone.poll() for row in batch.to_pylist() if row["_sign"] > 0]
        expect(("a" in joined.partial) == (now >= since + 4), f"at {now} silent: {joined.partial}, since {since}")
        held = joined.memory if now == since else held
    expect(standing[-1] == 0, f"{standing[-1]} tuples stand in the window of a stream that is silent")
    _flat(held, joined.memory, "the join's state")
    run.check(lost)


def _empty(seed: int, lost: int = 0) -> None:
    """Streams without a tuple, empty batches: nothing is told but what is known, and an idle one holds nobody up."""
    run = _Run(seed, "empty", idle="5 s")
    counted = run.db.subscribe("SELECT count(*) AS n FROM a [RANGE '5 s']")
    joined = run.db.subscribe("SELECT a.n FROM a, b WHERE a.k = b.k WINDOW '5 s'")
    filled = int(run.rng.integers(0, 2)) * int(run.rng.integers(1, 30))
    for now in range(30):
        run.now = now
        run.second("b", filled)
        if now % 3 == 0 and now < 5:
            run.second("a", 0)
        expect(not joined.poll(), "pairs with a stream that has no tuple")
    expect(sum(row["n"] for batch in counted.poll() for row in batch.to_pylist()) == 0, "tuples of an empty stream")
    expect(run.db.sql("SELECT count(*) AS n FROM a").fetchall() == [(0,)], "rows of an empty stream")
    expect("a" in joined.partial, "a stream that nothing came of is not told to be silent")
    run.check(lost)


def _fault(name: str, title: str, body: Callable[..., None]) -> Fault:
    return Fault(name, title, "accounting exact, memory flat", body, lambda seed: body(seed, lost=1), full=100, small=2)


BURST = _fault("burst", "ten times the input, on a simulated clock", _burst)
STUCK = _fault("stuck-consumer", "a reader that stands still", _stuck)
SILENT = _fault("silent-stream", "a stream that falls silent: its window still ends", _silent)
EMPTY = _fault("empty-streams", "streams and batches without a tuple", _empty)
