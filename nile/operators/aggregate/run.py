"""Aggregates under a budget: how the plan is chosen, what it spends, and what it finds.

Four ways.  `naive`: every tuple to every query; the base of all budgets.  `sample`: a random sample of the
stream, the same tuples for all queries that reach them.  `countsketch`: how often single keys came, where
that is all that is asked.  `grid`: moments in a value x time grid (see
aggregate_grid), whole cells exact, tuples sampled where a query cuts through a cell.  Which one: whatever is
exact within the budget at the least cost, else the one with the smaller expected variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from nile.aggregates.asked import DISTRIBUTION, SETS
from nile.operators.aggregate.drawn import strata_of
from nile.operators.aggregate.evidence import Evidence
from nile.operators.aggregate.figures import AggregateFigures
from nile.operators.aggregate.grid import EDGE, FULL, Grid, Sketch, borders_of, edge_tuples
from nile.operators.aggregate.input import (
    AggregateInput,
    accumulate_cost,
    counters,
    in_random_order,
    is_tame,
    large_tuples,
    least_summary,
    marks_of,
    matches_of,
    naive_cost,
    unit_hash,
)
from nile.operators.aggregate.plan import AggregatePlan
from nile.operators.aggregate.reader import (
    Prices,
    Reader,
    complete_reader,
    drawn_reader,
    grid_reader,
    part_of,
    stream_reader,
)
from nile.operators.aggregate.scope import Scope
from nile.operators.aggregate.sets import ROWS, CellSets, KeyCounts
from nile.operators.common.ruling import ASKED_SHARE, ruled_out
from nile.summaries.errors import ConfigError

__all__ = ["AggregateRun"]

Array = np.ndarray[Any, Any]
_WATCH_SHARE = 0.2
_TARGET_WATCH_SHARE = 0.6
"""Of what may be spent, at most this goes into finding the large tuples of the stream: without an interval that
can be certified no error target is met, and then everything is read."""


class AggregateRun:
    """One run of an AggregatePlan over one AggregateInput; it reads as it is made, `grow` reads more.

    readers: one per query; note: what about the choice a user should know, else "".  Same plan and input, same
    result, however the input was cut into batches.
    """

    def __init__(
        self, plan: AggregatePlan, data: AggregateInput, left: Callable[[], float] | None = None, each: float = 0.0
    ) -> None:
        """left: the seconds that a plan with a limit still has; each: of them, that numbers take for a tuple found."""
        self._left, self._each = left, each
        self.plan = plan
        self.data = data
        self._is_drawn = data.drawn is not None and data.drawn.at is not None
        costs = plan.costs
        take = accumulate_cost(data.aggregates, costs, grouped=data.grouped)
        self._prices = Prices(test=costs.scan, take=take)
        self.granted = math.inf if plan.budget is None else plan.budget * self.exact_cost
        self.spent_summary = 0.0
        self.kept = 0.0
        self.ruled_out = 0
        self.grid: Grid | None = None
        self.sets: CellSets | None = None
        self.counts: KeyCounts | None = None
        self.readers: list[Reader] = []
        self.method, self.borders = plan.method, ""
        self.note = ""
        self._begin()

    @cached_property
    def _matches(self) -> list[int]:
        return [self.data.n if self._is_drawn else matches_of(self.data, q) for q in range(len(self.data.scopes))]

    @cached_property
    def exact_cost(self) -> float:
        """What every tuple fed to every query costs: known to the judge, who looks at all of them."""
        told = naive_cost(self.data, self.plan.costs, self._matches)
        return told if self.data.drawn is None else told * self.data.drawn.times

    @property
    def spent(self) -> float:
        """Everything that was paid so far."""
        if self.method == "naive":
            return self.exact_cost
        return self.spent_summary + sum(reader.spent for reader in self.readers)

    def evidence(self, q: int) -> Evidence:
        """What is known of query q."""
        return self.readers[q].evidence()

    def grow(self, q: int, to: int) -> None:
        """Read query q's pool up to its `to`-th tuple."""
        self.readers[q].advance(to)

    def cut_if_cheaper(self, expected: float) -> bool:
        """Go over to a grid cut at the predicates, which is exact, if that costs less than `expected`."""
        cut = self._cut_grid() if self.plan.method == "auto" and self.plan.borders != "learned" else None
        if cut is None or cut.cost >= expected or self.spent + cut.cost > self.granted:
            return False
        wasted = self.spent
        self._use(cut, "predicates")
        self.spent_summary += wasted
        return True

    def finish_exactly(self) -> None:
        """Answer everything the plain way after all; what was spent so far stays spent."""
        wasted = self.spent
        self._naive()
        self.spent_summary = wasted
        self.method = "exact after all"

    @property
    def is_exact(self) -> bool:
        """Whether every number of every query is known."""
        return self.sets is None and all(reader.evidence().is_complete for reader in self.readers)

    @property
    def figures(self) -> AggregateFigures:
        """What has been done so far."""
        seen, drawn = np.zeros(self.data.n, bool), self.data.drawn
        for reader in self.readers:
            seen[reader.touched] = True
        rows, looked = (self.data.n, int(seen.sum())) if drawn is None else (drawn.rows, self.data.tested)
        return AggregateFigures(
            method=self.method,
            borders=self.borders,
            cells=0 if self.grid is None else self.grid.cells,
            kept=self.kept,
            read=self.data.tested if self._is_drawn else sum(reader.touched.shape[0] for reader in self.readers),
            shed=rows - looked if self.method == "sample" else 0,
            granted=self.granted,
            spent=self.spent,
            spent_summary=self.spent_summary,
            exact_cost=self.exact_cost,
            ruled_out=self.ruled_out,
        )

    def _begin(self) -> None:
        plan, data = self.plan, self.data
        if plan.method == "countsketch" and not KeyCounts.answer(data):
            raise ConfigError(
                "aggregate method: needed count(*) of single keys (item_id = 'A', no time range, no groups) for "
                "countsketch; got something else; use method='auto'"
            )
        if self._is_drawn:
            self._take_drawn()
            return
        timed = self._left is not None and data.n > 0
        poor = self.granted < least_summary(data.n, plan.costs, ROWS)
        whole = plan.method == "auto" and plan.target is None and self.granted >= self.exact_cost
        plain = plan.method == "naive" or data.drawn is not None
        if not timed and (plain or self.exact_cost == 0.0 or (whole and poor)):
            self._naive()
            return
        if timed or plan.method == "sample" or (plan.method == "auto" and (poor or plan.target is not None)):
            self._sample()
            return
        exact = self._cut_grid() if plan.borders in ("auto", "predicates") else None
        wanted = plan.method == "grid" and plan.borders == "predicates"
        if exact is not None and (wanted or self._cheap_enough(exact)):
            self._use(exact, "predicates")
        elif whole:
            self._naive()
        elif plan.method in ("auto", "countsketch") and KeyCounts.answer(data) and self._sketch_cost <= self.granted:
            self._count_keys()
        else:
            learned = self._learned_grid()
            affordable = learned.cost <= self.granted
            if plan.method == "grid" and not affordable:
                self.note = (
                    f"a grid would cost {learned.cost:,.0f}, more than the {self.granted:,.0f} granted; "
                    "a sample of the stream was taken instead"
                )
            if affordable and (plan.method == "grid" or learned.variance < self._sample_variance()):
                self._use(learned, "learned")
            else:
                self._sample()

    def _cheap_enough(self, exact: Sketch) -> bool:
        return exact.complete and exact.cost <= min(self.granted, self.exact_cost)

    def _naive(self) -> None:
        self.method = "naive"
        self.readers = [complete_reader(self.data, scope, self._prices) for scope in self.data.scopes]
        for reader in self.readers:
            reader.first()
            reader.advance(reader.pool.shape[0])

    def _take_drawn(self) -> None:
        """Take in what was drawn, and looked at; that is granted, since it was drawn for what is granted."""
        self.method = "sample"
        assert self.data.drawn is not None
        (scope,) = self.data.scopes
        self.readers = [drawn_reader(self.data, scope, self._prices, *strata_of(self.data.drawn))]
        self.granted = max(self.granted, self.spent)

    def _sample(self) -> None:
        self.method = "sample"
        data = self.data
        zones = np.append(np.arange(0, data.n, self.plan.zone), data.n)
        large, marks = None, None
        if self._left is None and self._watches():
            marks = marks_of(data)
            large = large_tuples(data, marks)
            self.spent_summary = self.plan.costs.scan * data.n * len(data.measures)
        order = in_random_order(data.n, self.plan.seed, self._most(large))
        self.readers = [
            stream_reader(data, scope, self._prices, order, zones, large, marks, self._ruled_out(scope))
            for scope in data.scopes
        ]
        for n, reader in enumerate(self.readers):
            reader.first()
            if self._left is not None:
                reader.read_while(part_of(self._left, len(self.readers) - n), self._each)
        if self.plan.target is None and self._left is None:
            self._share_out(self.granted - self.spent)

    def _most(self, large: Array | None) -> int | None:
        """How many tuples of the stream are drawn at the most; None where that is not known before."""
        whole = all((scope.first, scope.last) == (0, self.data.n) for scope in self.data.scopes)
        known = whole and all(each is None for each in (large, self.data.summary, self.plan.target, self._left))
        return int(self.granted / max(1e-9, min(self._prices.test, self._prices.take))) + 1 if known else None

    def _ruled_out(self, scope: Scope) -> Array | None:
        """Where the shared summary tells a query not to look; what was asked of it is paid."""
        data = self.data
        if data.summary is None or scope.passes is None or scope.empty or self._left is not None:
            return None
        most = ASKED_SHARE * min(self.granted, self.exact_cost) / len(data.scopes)
        runs, cost = ruled_out(data.summary, data.key_hashes(scope), self.plan.costs, most)
        self.spent_summary += cost
        self.ruled_out += 0 if runs is None else int((runs[:, 1] - runs[:, 0]).sum())
        return runs

    @property
    def _sketch_cost(self) -> float:
        """What a count sketch of the grid's column costs: rows updates per tuple, rows reads a query."""
        costs = self.plan.costs
        return self.data.n * costs.update_sketch(ROWS) + len(self.data.scopes) * costs.estimate_sketch(ROWS)

    def _count_keys(self) -> None:
        self.method = "countsketch"
        self.counts = KeyCounts(self.data)
        zones = np.array([0, self.data.n])
        order = np.arange(self.data.n)
        self.readers = [stream_reader(self.data, scope, self._prices, order, zones) for scope in self.data.scopes]
        self.spent_summary = self._sketch_cost

    def _watches(self) -> bool:
        """Whether the sample can afford to look at every tuple once, for all queries, and take the large ones apart."""
        if all(aggregate.value is None or aggregate.function in DISTRIBUTION for aggregate in self.data.aggregates):
            return False
        if all(is_tame(measure, self.data.n) for measure in self.data.measures):
            return False
        watching = self.plan.costs.scan * self.data.n * len(self.data.measures)
        share = _WATCH_SHARE if self.plan.target is None else _TARGET_WATCH_SHARE
        return watching <= share * min(self.granted, self.exact_cost)

    def _share_out(self, credit: float) -> None:
        """Spend `credit` on all readers: the same for each, what one does not need goes to the others."""
        worst = self._prices.test + self._prices.take
        needs = [(reader.pool.shape[0] * worst, q) for q, reader in enumerate(self.readers)]
        for turn in range(2):
            waiting = sorted(needs)
            for done, (_, q) in enumerate(waiting):
                left = len(waiting) - done
                credit -= self.readers[q].spend(max(0.0, credit / left))
            needs = [
                ((reader.pool.shape[0] - reader.read) * worst, q)
                for q, reader in enumerate(self.readers)
                if not reader.done
            ]
            if not needs or turn:
                break

    # --- the grid ---

    def _take_in(self, buckets: int) -> float:
        """What the grid spends on each tuple: find its bucket and group, update its moments."""
        costs = self.plan.costs
        kept = sum(len(some) for some in counters(self.data).values())
        found = costs.lookup * (int(buckets > 1) + int(self.data.grouped))
        if self._by_sets:
            found += CellSets.upkeep(self.data.aggregates, costs)
        return found + costs.update * kept

    def _reading(self, grid: Grid) -> float:
        """What it costs to put the conditions to the values there are, and to add up cells."""
        costs, data = self.plan.costs, self.data
        values = 0 if data.rank is None else len(data.rank)
        halvings = 2 * max(1, values.bit_length())  # two ends of a range among values in order
        tested = costs.scan * sum(
            min(values, halvings) if scope.ranged else values for scope in data.scopes if scope.passes is not None
        )
        kept = sum(len(some) for some in counters(data).values())
        cells, merged = grid.margins, 0.0
        for scope in data.scopes:
            full = np.flatnonzero(grid.state(scope) == FULL)
            cells += grid.reads(full, scope)
            if self._by_sets:
                merged += CellSets.merging(data.aggregates, grid, full, costs)
        return tested + costs.add * kept * cells + merged

    def _cut_grid(self) -> Sketch | None:
        """A grid cut where the predicates are: exact without a tuple, unless a condition needs tuples."""
        data = self.data
        if any(scope.residual is not None for scope in data.scopes) or not (self._by_moments or self._by_sets):
            return None
        grid = Grid(data, borders_of(data, "predicates", buckets=0, zone=0))
        if self._by_sets and not CellSets.fit(grid):
            return None
        cost = data.n * self._take_in(grid.borders.buckets) + self._reading(grid)
        return Sketch(grid, cost, 0.0, True, 0.0)

    @property
    def _by_moments(self) -> bool:
        return all(aggregate.function not in DISTRIBUTION for aggregate in self.data.aggregates)

    @property
    def _by_sets(self) -> bool:
        """Whether sketches answer what moments do not: distinct and frequent values, which need not be exact."""
        others = [aggregate for aggregate in self.data.aggregates if aggregate.function in DISTRIBUTION]
        approximate = not self.plan.is_exact and self.plan.target is None
        return approximate and bool(others) and all(each.function in SETS for each in others)

    def _learned_grid(self) -> Sketch:
        """A grid with learned borders, and the share of tuples it can afford to keep for the edges."""
        data, costs, plan = self.data, self.plan.costs, self.plan
        grid = Grid(data, borders_of(data, "learned", buckets=plan.buckets, zone=plan.zone))
        base = data.n * self._take_in(grid.borders.buckets) + self._reading(grid)
        base += costs.add * grid.cells  # how many ordinary tuples each cell has
        large = int(grid.large.sum())
        base += costs.scan * data.n + costs.insert * large  # is it large? keep it
        wanted = EDGE if self._by_moments else FULL
        edges = [edge_tuples(grid, grid.state(scope), wanted) for scope in data.scopes]
        each = self._prices.test + self._prices.take * 0.5
        base += sum(edge_large for _, edge_large in edges) * each
        ordinary = sum(edge for edge, _ in edges)
        credit = self.granted - base
        if credit <= 0.0:
            return Sketch(grid, base, 0.0, False, math.inf)
        kept = min(1.0, credit / max(costs.insert * (data.n - large) + ordinary * each, 1e-9))
        variance = sum(edge * (1.0 - kept) / kept for edge, _ in edges)
        return Sketch(grid, base + kept * costs.insert * (data.n - large), kept, kept >= 1.0, variance)

    def _sample_variance(self) -> float:
        """What the sample's variance comes to in the same measure: N (1 - p) / p of each query."""
        sizes = [scope.last - scope.first for scope in self.data.scopes]
        need = sum(
            size * self._prices.test + matches * self._prices.take
            for size, matches in zip(sizes, self._matches, strict=True)
        )
        rate = min(1.0, self.granted / max(need, 1e-9))
        return sum(matches * (1.0 - rate) / rate for matches in self._matches)

    def _use(self, sketch: Sketch, borders: str) -> None:
        self.method, self.borders, self.grid, self.kept = "grid", borders, sketch.grid, sketch.kept
        data = self.data
        self.sets = CellSets(data, sketch.grid) if borders == "predicates" and self._by_sets else None
        unit = unit_hash(data.n, self.plan.seed)
        moments = self._by_moments or self.sets is not None
        self.readers = [
            grid_reader(data, scope, self._prices, sketch.grid, unit, sketch.kept, moments=moments)
            for scope in data.scopes
        ]
        costs = self.plan.costs
        self.spent_summary = data.n * self._take_in(sketch.grid.borders.buckets) + self._reading(sketch.grid)
        if borders == "learned":
            kept = sketch.grid.large | (unit < sketch.kept)
            self.spent_summary += costs.add * sketch.grid.cells + costs.scan * data.n
            self.spent_summary += costs.insert * float(kept.sum())
        for reader in self.readers:
            reader.first()
        if self.plan.target is None:
            self._share_out(self.granted - self.spent)
