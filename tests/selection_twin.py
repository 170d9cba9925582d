"""The kernels of standing selections again, in plain Python with lists and dicts."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from nile.operators.selection import SelectionInput, naive_costs, value_buckets
from nile.operators.selection_plan import SelectionPlan

Output = tuple[int, int, int]
"""Query, ordinal, arrivals by then."""


class Twin:
    """One run of a plan: `outputs`, `credit`, `spent`, `shed`.  Prices in hundredths, as kernels have them."""

    def __init__(self, plan: SelectionPlan, data: SelectionInput) -> None:
        self.plan, self.data = plan, data
        table: Any = plan.costs
        self.price = {
            name: round(100 * getattr(table, name))
            for name in ("insert", "update", "estimate", "scan", "emit", "lookup", "push", "heap_pop", "add")
        }
        if plan.window is not None:
            self.price["emit"] += self.price["scan"]
        costs = np.rint(100 * naive_costs(data, plan.costs, windowed=plan.window is not None))
        self.grant = [2.0**40] * len(data.ts) if plan.budget is None else list(plan.budget.fraction * costs)
        self.queries = data.passes.shape[0]
        self.outputs: list[Output] = []
        self.credit, self.spent, self.shed = 0.0, 0.0, 0
        {"paper": self.paper, "naive": self.naive, "predicate-index": self.indexed}[plan.method]()

    def can(self, *names: str) -> bool:
        return self.credit >= sum(self.price[name] for name in names)

    def pay(self, *names: str) -> None:
        self.pay_units(sum(self.price[name] for name in names))

    def pay_units(self, cost: float) -> None:
        self.credit -= cost
        self.spent += cost

    def passes(self, query: int, ordinal: int) -> bool:
        return bool(self.data.passes[query, self.data.code[ordinal]])

    def naive(self) -> None:
        turn = 0
        for i, grant in enumerate(self.grant):
            self.credit += grant
            if not self.can("insert"):
                self.shed += 1
                continue
            self.pay("insert")
            fed = 0
            while fed < self.queries and self.can("scan", "emit"):
                self.pay("scan")
                if self.passes(turn, i):
                    self.pay("emit")
                    self.outputs.append((turn, i, i + 1))
                turn = (turn + 1) % self.queries
                fed += 1
            self.shed += fed == 0

    def indexed(self) -> None:
        for i, grant in enumerate(self.grant):
            self.credit += grant
            if not self.can("insert", "lookup"):
                self.shed += 1
                continue
            self.pay("insert", "lookup")
            found = [q for q in range(self.queries) if self.passes(q, i)]
            for k in range(len(found)):
                if not self.can("emit"):
                    break
                self.pay("emit")
                self.outputs.append((found[(i + k) % len(found)], i, i + 1))

    def paper(self) -> None:
        plan, data = self.plan, self.data
        self.bucket = value_buckets(data, plan.buckets, plan.sample)
        self.cells: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.known = 0
        self.evaluated = [0] * self.queries
        self.start = [0] * self.queries
        self.keys: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(self.queries)]
        turn = 0
        for i, grant in enumerate(self.grant):
            self.credit += grant
            price = ["insert", "lookup", "update"] + ["lookup"] * (i < plan.sample)
            if self.can(*price):
                self.pay(*price)
                code = int(data.code[i])
                self.cells[i // plan.zone, int(self.bucket[code])].append(i)
                self.known = max(self.known, code + 1)
            else:
                self.shed += 1
            if (i + 1) % plan.every == 0 or i + 1 == len(self.grant):
                least = self.credit / 2 if i + 1 < len(self.grant) else 0.0
                for _ in range(self.queries):
                    if self.credit < least or not self.round(turn, i + 1):
                        break
                    turn = (turn + 1) % self.queries

    def round(self, q: int, end: int) -> bool:
        plan, data = self.plan, self.data
        while self.evaluated[q] < self.known:
            if not self.can("scan"):
                return False
            self.pay("scan")
            self.keys[q][int(self.bucket[self.evaluated[q]])].append(self.evaluated[q])
            self.evaluated[q] += 1
        marking = self.price["add"] * plan.buckets
        if self.credit < marking:
            return False
        self.pay_units(marking)
        oldest = int(data.ts[end - 1]) - (2**63 if plan.window is None else plan.window)
        regions = self.regions(q, end, oldest)
        if plan.preference == "weighted":
            self.visit_weighted(q, end, oldest, regions)
        else:
            regions.sort(key=lambda region: region[0] if plan.preference == "asc" else -region[0])
            self.visit(q, end, oldest, regions)
        self.start[q] = end
        return True

    def regions(self, q: int, end: int, oldest: int) -> list[tuple[float, float, list[int]]]:
        """(priority, share, tuples) of the cells of [start, end) that promise something."""
        plan, data = self.plan, self.data
        price = ["estimate"] + ["push"] * (plan.preference != "weighted")
        floor = self.credit / 2
        found = []
        begin = max(0, self.start[q] - 1) // plan.zone
        for zone in range((end - 1) // plan.zone, begin - 1, -1):
            if data.ts[min((zone + 1) * plan.zone, end) - 1] < oldest:
                break
            for bucket in range(plan.buckets):
                keys = self.keys[q][bucket]
                passing = [code for code in keys if data.passes[q, code]]
                if not passing:
                    continue
                if self.credit - sum(self.price[name] for name in price) < floor:
                    return found
                self.pay(*price)
                tuples = [i for i in self.cells[zone, bucket] if i >= self.start[q]]
                if tuples:
                    share = len(passing) / len(keys)
                    weight = 0.0
                    for code in passing:
                        weight += float(data.magnitude[code])
                    by_value = len(tuples) * (weight / len(keys))
                    found.append((by_value if plan.promise == "value" else share, share, tuples))
        return found

    def visit(self, q: int, end: int, oldest: int, regions: list[tuple[float, float, list[int]]]) -> None:
        for _, _, tuples in regions:
            pop = self.price["heap_pop"] * math.ceil(math.log2(len(regions)))
            if self.credit < pop + self.price["scan"] + self.price["emit"]:
                return
            self.pay_units(pop)
            if not self.scan(q, end, oldest, tuples):
                return

    def visit_weighted(self, q: int, end: int, oldest: int, regions: list[tuple[float, float, list[int]]]) -> None:
        def expected(share: float, tuples: list[int]) -> float:
            return len(tuples) * (self.price["scan"] + share * self.price["emit"])

        needed = 0.0
        for _, share, tuples in regions:
            needed += expected(share, tuples)
        credit = self.credit
        rate = min(1.0, credit / needed) if needed else 1.0
        least = self.price["scan"] + self.price["emit"]
        due = 0.0
        for _, share, tuples in regions:
            due += rate * len(tuples) * (self.price["scan"] + share * self.price["emit"])
            for i in tuples:
                if self.credit - least < (credit - due if rate < 1.0 else 0.0) or self.credit < least:
                    break
                self.scan(q, end, oldest, [i])

    def scan(self, q: int, end: int, oldest: int, tuples: list[int]) -> bool:
        for i in tuples:
            if not self.can("scan", "emit"):
                return False
            self.pay("scan")
            if self.passes(q, i) and self.data.ts[i] >= oldest:
                self.pay("emit")
                self.outputs.append((q, i, end))
        return True
