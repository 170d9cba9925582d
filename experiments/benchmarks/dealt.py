"""Standing queries that share a bound on memory, as it is dealt out to them and in equal parts: what they err by."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.experiments.benchmarks.harness import Measure
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import nile
else:
    nile = lazy("nile")

__all__ = ["Mix", "Run", "dealt_out", "errors"]

_QUERIES = {
    "distinct": "SELECT DISTINCT k FROM {0}",
    "union": "SELECT k FROM {0} UNION SELECT k FROM {1}",
    "except": "SELECT k FROM {0} EXCEPT SELECT k FROM {1}",
    "intersect": "SELECT k FROM {0} INTERSECT SELECT k FROM {1}",
    "join": "SELECT a.k, b.t FROM {0} a, {1} b WHERE a.k = b.k",
    "groups": "SELECT k % 20 AS g, count(*) AS n FROM {0} GROUP BY k % 20",
    "values": "SELECT DISTINCT k FROM {0}",
    "join and groups": "SELECT a.k % 8 AS g, count(*) AS n FROM {0} a, {1} b WHERE a.k = b.k GROUP BY a.k % 8",
}
_CHANGES = ("groups", "values", "join and groups")
"""Told as they stand; the others append."""
_NONE = 1e-3
"""Beside which errors are none."""
_FROM, _STEPS = 60, 80
"""Steps of 0.1 s, with windows of 1 s: errors are of those from which on all has been dealt out, or nearly all."""


_BURST = range(30, 50)
Rate = Callable[[int, int, int], int]
"""Tuples in a step: of a query by number, its usual rate, the step."""


@dataclass(frozen=True)
class Mix:
    """Standing queries, each of two streams of its own: (kind, tuples of each in a step, different values)."""

    queries: tuple[tuple[str, int, int], ...]
    share: float
    seed: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Mix:
        """2 to 5 queries, within .15 to .6 of what they would hold."""
        queries = []
        for _ in range(draw.randint(2, 5)):
            rate = int(10 ** draw.uniform(1.7, 3.0))
            queries.append((draw.choice(list(_QUERIES)), rate, max(20, int(rate * 10 ** draw.uniform(0.3, 1.6)))))
        return cls(tuple(queries), draw.choice([0.15, 0.3, 0.45, 0.6]), draw.randrange(1 << 30))

    def bound(self, true: Run) -> int:
        """Bytes: a share of what they hold exactly."""
        return max(100_000, int(self.share * max(true.held[_FROM:])))


class Run:
    """What queries told of a mix: rows that were appended, or their rows every fourth step; and what they held."""

    def __init__(self, mix: Mix, memory: int | None = None, *, deals: bool = True, rate: Rate | None = None) -> None:
        """deals: whether what equal parts leave unused is dealt out.

        held: bytes, at most, by step; levels: of each query's newest tuples, by step.
        """
        self.bound = memory
        self.appended: list[Counter[Any]] = [Counter() for _ in mix.queries]
        self.stood: list[list[dict[Any, Any]]] = [[] for _ in mix.queries]
        self.held: list[int] = []
        self.levels: list[list[int]] = []
        draw = np.random.default_rng(mix.seed)
        with nile.connect(memory=memory) as db:
            if db._live.means is not None:
                db._live.means.deals = deals
            queries = []
            for number, (kind, _, _) in enumerate(mix.queries):
                names = [f"{side}{number}" for side in "ab"]
                for name in names:
                    db.stream(name, [("t", pa.float64()), ("k", pa.int64())], time="t", keep=1)
                emit = "changes" if kind in _CHANGES else "append"
                queries.append(db.subscribe(f"{_QUERIES[kind].format(*names)} WINDOW 1", emit=emit))
            for step in range(_STEPS):
                most = 0
                for number, (_, usual, values) in enumerate(mix.queries):
                    many = usual if rate is None else rate(number, usual, step)
                    for side in "ab":
                        at = np.sort(step + draw.random(many)) / 10
                        db.push(f"{side}{number}", {"t": at, "k": draw.integers(0, values, many)})
                    most = max(most, sum(each.memory for each in queries))
                db.advance((step + 1) / 10 - 1e-6)
                self.held.append(most)
                self._read(mix, queries, step)

    def _read(self, mix: Mix, queries: Sequence[Any], step: int) -> None:
        if self.bound:
            self.levels.append([each.gate.last_level for each in queries])
        for number, (standing, (kind, _, _)) in enumerate(zip(queries, mix.queries, strict=True)):
            batches = standing.poll()
            if step < _FROM:
                continue
            if kind not in _CHANGES:
                rows = [value for batch in batches for value in batch.column(0).to_pylist()]
                self.appended[number].update(rows if kind != "join" else [()] * len(rows))
            elif step % 4 == 3:
                self.stood[number].append(_standing(standing))


def _standing(query: Any) -> dict[Any, Any]:
    """The rows of a query as they stand: keys, and what is counted of them."""
    found: dict[Any, Any] = {}
    for batch in query.plan.pipeline.snapshot().combine_chunks().to_batches():
        rows = query._tail.contents(batch)  # what is below counts a sample as it is
        columns = [rows.column(name).to_pylist() for name in ("g", "n") if name in rows.schema.names]
        found |= zip(*(columns or [rows.column(0).to_pylist()] * 2), strict=True)
    return found


def errors(mix: Mix, true: Run, got: Run) -> list[float]:
    """Of each query: FP + FN of what it appends; of rows that stand those missed; of groups their relative error."""
    out = []
    for number, (kind, _, _) in enumerate(mix.queries):
        if kind not in _CHANGES:
            one, other = true.appended[number], got.appended[number]
            right = (one & other).total()
            out.append((1 - right / other.total() if other else 0.0) + (1 - right / one.total() if one else 0.0))
            continue
        found = []
        for one_, other_ in zip(true.stood[number], got.stood[number], strict=True):
            if kind == "values":
                found.append(len(set(one_) ^ set(other_)) / max(1, len(one_)))
            else:
                off = [min(1.0, abs(other_.get(g, 0) - n) / max(n, 1)) for g, n in one_.items()]
                found.append(float(np.mean(off)) if off else 0.0)
        out.append(float(np.mean(found)))
    return out


def dealt_out(mixes: int, seed: int = 7) -> list[Measure]:
    """Total errors beside those of equal parts, and bytes held of the bound, over random mixes, as they are and while
    one of the queries has ten times the rate for two windows."""
    draw, of_burst, most = random.Random(seed), random.Random(seed + 1), 0.0
    ratios: list[float] = []
    totals = np.zeros((2, 2))
    for _ in range(mixes):
        mix = Mix.drawn(draw)
        which = of_burst.randrange(len(mix.queries))

        def rate(query: int, usual: int, step: int, which: int = which) -> int:
            return 10 * usual if query == which and step in _BURST else usual

        bound = 0
        for of, pace in enumerate((None, rate)):
            true = Run(mix, rate=pace)
            bound = bound or mix.bound(true)
            equal, dealt = (Run(mix, bound, deals=deals, rate=pace) for deals in (False, True))
            both = [sum(errors(mix, true, each)) for each in (equal, dealt)]
            totals[of] += both
            most = max(most, max(dealt.held) / bound)
            if pace is None:
                ratios.append((both[1] + _NONE) / (both[0] + _NONE))
    fair = sum(each <= 0.7 for each in ratios)
    return [
        Measure("queries in a bound: most error beside equal parts", max(ratios), "times", 1.01, most=True,
                about=f"{mixes} mixes of 2 to 5; median {median(ratios):.2f}, {fair} at .7 or less"),
        Measure("queries in a bound, one in a burst: all errors beside equal parts", float(totals[1, 1] / totals[1, 0]),
                "times", 1.0, most=True, about=f"{totals[0, 1] / totals[0, 0]:.2f} without bursts"),
        Measure("queries in a bound: memory of it", most, "times", 1.0, most=True),
    ]  # fmt: skip
