"""`method="paper"` once more, in pure Python and without haste: what its kernels must equal.

The grid (zones, sketches, COLLAPSE) is asked of the summary manager, one tuple at a time; its own twins are
elsewhere.  Visiting zones, the queue, cells, prices, debts and time-outs are all written out here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.join.join import JoinInput
from nile.preferences.clock import grants
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid import grid_kernels
from nile.pyramid.grid.granularity import turn
from nile.pyramid.grid.index import PyramidIndex
from nile.pyramid.grid.store import TupleStore
from nile.summaries.costs import CostTable

DETECTOR_ROWS = 3
TURN = 16


@dataclass
class Entry:
    side: int
    ordinal: int
    low: int
    high: int
    ts: int
    arrival: int
    cut: bool
    priority: float
    turns: int = 0
    seen: int = 0


def log2(n: int) -> float:
    whole = n.bit_length() - 1
    return whole + (n - 2**whole) / 2**whole


class Grid:
    """One stream's summary, and the tuples of each value bucket in arrival order."""

    def __init__(self, plan: JoinPlan, data: JoinInput, side: int) -> None:
        self.spec = plan.spec
        self.sketched = plan.spec.structure != "T1"
        self.store = TupleStore(plan.spec)
        self.store.reserve_keys(data.keys)
        self.ts = (data.left_ts, data.right_ts)[side]
        keys = (data.left, data.right)[side]
        self.codes, self.hashes = keys.codes, keys.hashes
        self.seen = 0
        self.cells: dict[int, list[int]] = {}

    def bucket(self, h: int) -> int:
        if self.spec.structure in ("T1", "T2"):
            return 0
        return (int(h) >> 1) >> (63 - int(math.log2(self.spec.buckets)))

    def reach(self, taken: bool) -> int:
        """The next tuple of the stream, with its key if it is taken in; returns the counters to be paid for."""
        at = self.seen
        self.seen += 1
        if taken:
            self.cells.setdefault(self.bucket(self.hashes[at]), []).append(at)
        if not self.sketched:
            return 0
        code = self.codes[at : at + 1] if taken else np.array([-1], np.int32)
        h = self.hashes[at : at + 1] if taken else np.zeros(1, np.uint64)
        self.store.extend(self.ts[at : at + 1], code, h, 1)
        zone = self.store.side.zone
        before = int(zone[ga.ADDS])
        grid_kernels.advance(self.store.side, at, at + 1)
        grid_kernels.count(self.store.side, at, at + 1, h, np.zeros(1, np.int32), np.ones(1, np.int64), 1)
        if zone[ga.TURNING]:
            turn(self.store.side)
        return int(zone[ga.ADDS]) - before


@dataclass
class Query:
    """A standing query: what it asks for, what it has queued, what it found and was charged for it."""

    plan: JoinPlan
    window: int
    fades: Any
    own: list[Entry] = field(default_factory=list)
    backlog: list[Entry] = field(default_factory=list)
    outputs: int = 0
    charged: float = 0.0
    expired: int = 0

    @property
    def queued(self) -> int:
        return len(self.own) + len(self.backlog)


@dataclass
class Twin:
    """plans: one per query; they share everything but window, preference and fade."""

    plans: list[JoinPlan]
    data: JoinInput
    credit: float = 0.0
    granted: float = 0.0
    spent_insert: float = 0.0
    spent_hit: float = 0.0
    debt_insert: float = 0.0
    debt_hit: float = 0.0
    found: list[tuple[int, int, int]] = field(default_factory=list)
    shed: list[int] = field(default_factory=lambda: [0, 0])
    admitted: int = 0
    turn: int = 0
    under_way: int | None = None

    def run(self) -> Twin:
        plan, data = self.plans[0], self.data
        self.prices = CostTable("hundredths", *(round(100 * price) for price in plan.costs.prices()))
        self.queries = [
            Query(p, p.window if p.window is not None else (1 << 63) - 1, p.fade.powers(p.spec.depth))
            for p in self.plans
        ]
        self.grids = (Grid(plan, data, 0), Grid(plan, data, 1))
        patience = plan.patience
        waiting: list[tuple[int, int]] = []
        for arrival, grant in enumerate(grants(np.rint(100 * data.costs), plan.fraction, plan.pace, data.times())):
            if plan.pace.is_replay and not self.debt and not waiting and not any(q.queued for q in self.queries):
                self.credit = 0.0
            self.credit += grant
            self.granted += grant
            waiting.append((arrival, int(data.order[arrival])))
            if self.under_way is not None:  # the time-out ended its turn
                self.turn = (self.under_way + 1) % len(self.queries)
                self.under_way = None
            while True:
                self.pay()
                if not waiting or (self.debt and len(waiting) <= patience):
                    break
                self.handle(*waiting.pop(0))
            if not self.debt:
                self.round_robin()
        self.shed = [self.shed[side] + sum(1 for _, s in waiting if s == side) for side in (0, 1)]
        return self

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(left, right) for _, left, right in self.found]

    @property
    def expired(self) -> int:
        return sum(query.expired for query in self.queries)

    @property
    def debt(self) -> bool:
        return self.debt_insert > 0 or self.debt_hit > 0

    def pay(self) -> None:
        amount = min(self.credit, self.debt_insert)
        self.debt_insert -= amount
        self.credit -= amount
        self.spent_insert += amount
        amount = min(self.credit, self.debt_hit)
        self.debt_hit -= amount
        self.credit -= amount
        self.spent_hit += amount

    def spend(self, query: Query, amount: float) -> None:
        self.credit -= amount
        self.spent_hit += amount
        query.charged += amount

    # --- Figure 7 ---------------------------------------------------------------------------------------

    def handle(self, arrival: int, side: int) -> None:
        own, other = self.grids[side], self.grids[1 - side]
        for query in self.queries:  # time-out
            query.backlog += query.own
            query.own = []
        ordinal = own.seen
        self.now = int(own.ts[ordinal])
        null = own.codes[ordinal] < 0
        taken = not null and not self.debt
        if self.debt:
            self.shed[side] += 1
        elif taken:
            self.admitted += 1
            self.debt_insert += self.prices.insert
            if own.sketched:
                rows = own.spec.rows + (DETECTOR_ROWS if own.spec.structure == "T4" else 0)
                self.debt_insert += self.prices.update * rows
            for query in self.queries:
                reads = self.visit(query, own, other, side, ordinal, arrival)
                cost = self.prices.estimate * (own.spec.rows * reads) + self.prices.push * len(query.own)
                self.debt_hit += cost
                query.charged += cost
        self.debt_insert += self.prices.add * own.reach(taken)

    def visit(self, query: Query, own: Grid, other: Grid, side: int, ordinal: int, arrival: int) -> int:
        ts = int(own.ts[ordinal])
        since = ts - query.window
        h = own.hashes[ordinal : ordinal + 1]

        def enter(low: int, high: int, first: int, priority: float) -> None:
            query.own.append(Entry(side, ordinal, low, high, ts, arrival, first < since, priority))

        if not other.sketched:
            inside = [o for o in other.cells.get(0, []) if other.ts[o] >= since]
            if inside:
                enter(inside[0], other.seen, since, 1.0)
            return 0
        store = other.store.side
        reads = 0
        for g in range(other.spec.depth):
            index = PyramidIndex(other.store, g + 1)
            cells = index.cells(h)[0]
            root = store.node[index.slot(1)]
            if root[ga.COUNT] == 0:
                continue
            if root[ga.LAST] < since:
                break
            _, bound = estimate(index.counters(1), cells)
            reads += 1
            if bound == 0:
                continue
            read = []
            if g == 0 and store.zone[ga.ZONE_COUNT] > 0:
                read = [node for node in index.children(1) if index.count(node)]
                reads += len(read)
                closed = sum((index.counters(node) for node in read), np.zeros_like(index.counters(1)))
                value, upper = estimate(index.counters(1) - closed, cells)
                if upper > 0:
                    enter(
                        int(store.zone[ga.ZONE_START]), int(store.zone[ga.NEXT]), int(store.zone[ga.ZONE_FIRST]), value
                    )
            below = list(index.children(1))
            while below:
                node = below.pop()
                row = store.node[index.slot(node)]
                if row[ga.COUNT] == 0 or row[ga.LAST] < since:
                    continue
                value, bound = estimate(index.counters(node), cells)
                reads += node not in read
                if bound == 0:
                    continue
                if index.children(node):
                    below += index.children(node)
                else:
                    enter(int(row[ga.START]), int(row[ga.END]), int(row[ga.FIRST]), query.fades[g] * value)
        return reads

    def order(self, query: Query, entry: Entry) -> tuple[float, int, int]:
        if query.plan.preference == "desc":
            key = -entry.priority
        elif query.plan.preference == "asc":
            key = entry.priority
        else:
            key = (entry.turns + 1) / entry.priority if entry.priority else math.inf
        return key, entry.arrival, -entry.high

    def round_robin(self) -> None:
        while True:
            n = len(self.queries)
            turns = [(self.turn + step) % n for step in range(n)]
            asked = [t for t in turns if self.queries[t].queued]
            if self.plans[0].queue == "own":
                asked = [t for t in turns if self.queries[t].own] or asked
            if not asked:
                return
            self.under_way = asked[0]
            if not self.probe(asked[0]):
                return
            self.turn = (asked[0] + 1) % n
            self.under_way = None

    def probe(self, number: int) -> bool:
        query = self.queries[number]
        queue = query.own or query.backlog
        if query.plan.queue == "one":
            queue = query.own + query.backlog
        entry = min(queue, key=lambda entry: self.order(query, entry))
        pop = math.floor(0.5 + self.prices.heap_pop * log2(query.queued))
        gone = entry.ts < self.now - query.window
        if not gone and not self.scan(number, entry):
            return False
        if self.credit < pop:
            return False
        self.spend(query, pop)
        if gone or entry.low >= entry.high:
            (query.own if entry in query.own else query.backlog).remove(entry)
            query.expired += gone
        else:
            entry.turns += 1
            entry.seen = 0
        return True

    def scan(self, number: int, entry: Entry) -> bool:
        query = self.queries[number]
        own, other = self.grids[entry.side], self.grids[1 - entry.side]
        cell = other.cells.get(other.bucket(own.hashes[entry.ordinal]), [])
        kept_from = int(other.store.side.zone[ga.KEPT_FROM])
        if entry.cut:
            if self.credit < self.prices.lookup:
                return False
            self.spend(query, self.prices.lookup)
            entry.cut = False
            inside = [o for o in cell if o < entry.high and other.ts[o] >= entry.ts - query.window]
            entry.low = inside[0] if inside else entry.high
        todo = [o for o in cell if max(entry.low, kept_from) <= o < entry.high]
        for ordinal in todo:
            entry.low = ordinal
            if query.plan.preference == "weighted" and entry.seen == TURN:
                return True
            match = other.codes[ordinal] == own.codes[entry.ordinal]
            if self.credit < self.prices.scan + (self.prices.emit if match else 0):
                return False
            if match:
                self.spend(query, self.prices.emit)
                query.outputs += 1
                pair = (entry.ordinal, ordinal) if entry.side == 0 else (ordinal, entry.ordinal)
                self.found.append((number, *pair))
            self.spend(query, self.prices.scan)
            entry.seen += 1
        entry.low = entry.high
        return True


def estimate(counters: Any, cells: Any) -> tuple[float, int]:
    """(estimate, upper bound) of the key with these cells, one per row."""
    mine = [int(counters[r, c]) for r, c in enumerate(cells)]
    other = [int(counters[r, c ^ 1]) for r, c in enumerate(cells)]
    bound = min(mine)
    value = float(np.median([a - b for a, b in zip(mine, other, strict=True)]))
    return max(0.0, min(value, float(bound))), bound
