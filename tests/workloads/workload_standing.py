"""Standing queries for tests: joins over shared streams as one operator, and selections over one stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import workload_join
from workload_join import random_stream

from nile.operators.common.plan import JoinPlan
from nile.operators.drive.standing import StandingRun
from nile.operators.drive.standing_input import StandingJoin, StreamInput
from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.join.join import Outputs
from nile.operators.selection.data import SelectionInput
from nile.summaries.hashing import KeyTable

PAIRS = ((0, 1), (0, 2))
"""The streams that each query joins; the second query's window is half of the first's, and its weight twice."""


def streams(seed: int, *, n: int, keys: int) -> tuple[Loaded, ...]:
    """Three streams."""
    rng = np.random.default_rng(seed)
    return tuple(random_stream(name, rng, n, keys) for name in "ABC")


def _window(window: int | None, query: int) -> int | None:
    return None if window is None else window // (1 + query)


def truth(loaded: tuple[Loaded, ...], window: int | None) -> set[tuple[int, ...]]:
    """(query, left, right) of every query's exact answer."""
    return {
        (query, *pair)
        for query, (left, right) in enumerate(PAIRS)
        for pair in workload_join.brute_force(Joinable(loaded[left], loaded[right], _window(window, query)))
    }


@dataclass(frozen=True)
class Part:
    """What one query found at a dispatch."""

    query: int
    found: list[Outputs]


@dataclass(frozen=True)
class SharedFigures:
    """Of all queries together, and of each."""

    arrivals: int
    granted: float
    spent: float
    spent_insert: float
    spent_hit: float
    coverage: float
    each: tuple[Any, ...]


class Shared:
    """Standing joins as an operator: its run and its figures."""

    def __init__(self, plan: JoinPlan, loaded: tuple[Loaded, ...], batch_rows: int) -> None:
        table = KeyTable()
        encoded = [table.encode(it.key) for it in loaded]
        queries = []
        for query, (left, right) in enumerate(PAIRS):
            asked = replace(plan, window=_window(plan.window, query))
            joined = Joinable(loaded[left], loaded[right], asked.window, encoded=(table, encoded[left], encoded[right]))
            data = joined.input(asked.costs, ranges=asked.output == "ranges")
            probing = replace(data, costs=data.costs - asked.costs.insert)
            queries.append(StandingJoin(asked, probing, left, right, 1.0 + query))
        self._run = StandingRun(
            [StreamInput(it.name, it.ts, keys, table.known) for it, keys in zip(loaded, encoded, strict=True)], queries
        )
        self._batch = batch_rows
        self.joins = self._run.joins
        self.arrivals = self._run.arrivals

    def run(self) -> Iterator[Part]:
        """All outputs."""
        for end in [*range(self._batch, self.arrivals, self._batch), self.arrivals]:
            yield from self.advance(end)

    def advance(self, end: int) -> Iterator[Part]:
        """Go on to arrival `end`."""
        for parts in self._run.advance(end):
            for query, found in enumerate(parts):
                if found:
                    yield Part(query, found)

    def finish(self) -> None:
        """There is no more."""

    @property
    def figures(self) -> SharedFigures:
        run = self._run
        each = tuple(join.figures for join in self.joins)
        return SharedFigures(
            run.arrivals, run.granted, run.spent, run.upkeep, run.spent - run.upkeep,
            min(one.coverage for one in each), each,
        )  # fmt: skip


def selected(seed: int, *, n: int) -> SelectionInput:
    """A stream of 60 values in skewed order, and 12 ranges of them."""
    rng = np.random.default_rng(seed)
    code = (60 * rng.random(n) ** 2).astype(np.int32)
    low, width = rng.integers(0, 50, 12), rng.integers(0, 20, 12)
    rank = rng.permutation(60).astype(np.int64)
    return SelectionInput(
        ts=np.cumsum(rng.integers(0, 3, n)), code=code, rank=rank,
        says=((rank >= low[:, None]) & (rank <= (low + width)[:, None])).astype(np.uint8),
        magnitude=rank.astype(np.float64),
    )  # fmt: skip
