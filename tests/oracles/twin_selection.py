"""The kernels of standing selections again, in plain Python with lists and dicts."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nile.operators.common.predicate_index import EDGE, FULL, NONE
from nile.operators.selection.arrays import kept
from nile.operators.selection.data import SelectionInput, naive_costs, value_buckets
from nile.operators.selection.plan import SelectionPlan
from nile.preferences.clock import grants
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS, odd_multipliers

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
        self.grant = [2.0**40] * len(data.ts)
        if plan.budget is not None:
            self.grant = list(grants(costs, plan.budget.fraction, plan.pace, data.ts))
        self.queries = data.says.shape[0]
        self.outputs: list[Output] = []
        self.credit, self.spent, self.shed, self.changes = 0.0, 0.0, 0, 0
        self.waiting: deque[int] = deque()
        self.seen: set[int] = set()
        self.said = [[q for q in range(self.queries) if data.says[q, k] == FULL] for k in range(data.says.shape[1])]
        self.open = [[q for q in range(self.queries) if data.says[q, k] == EDGE] for k in range(data.says.shape[1])]
        if plan.method == "nile":
            self.admission = AdmissionTwin(self)
            self.zone = ZoneTwin(self)
        methods = {"nile": self.nile, "paper": self.paper, "naive": self.naive}
        methods.get(plan.method, self.indexed)()
        self.shed += len(self.waiting)

    def can(self, *names: str) -> bool:
        return self.credit >= sum(self.price[name] for name in names)

    def pay(self, *names: str) -> None:
        self.pay_units(sum(self.price[name] for name in names))

    def pay_units(self, cost: float) -> None:
        self.credit -= cost
        self.spent += cost

    def passes(self, query: int, ordinal: int) -> bool:
        said = self.data.says[query, self.data.code[ordinal]]
        return bool(self.data.verdict[self.data.rows[query], ordinal] if said == EDGE else said == FULL)

    def arrivals(self, take: Callable[[int], bool], idle: Callable[[], bool]) -> Iterator[int]:
        """Each arrival, after it and those waiting have been taken as far as `take` says."""
        room = self.plan.waiting if self.plan.pace.is_replay else 0
        for i, grant in enumerate(self.grant):
            if self.plan.pace.is_replay and not self.waiting and idle():
                self.credit = min(self.credit, 0.0)
            self.credit += grant
            self.waiting.append(i)
            self.now = i
            while self.waiting:
                if self.data.ts[self.waiting[0]] < self.oldest():
                    self.shed += 1
                elif not take(self.waiting[0]):
                    if len(self.waiting) <= room:
                        break
                    self.shed += 1
                self.waiting.popleft()
            yield i

    def oldest(self) -> int:
        return int(self.data.ts[self.now]) - (2**63 if self.plan.window is None else self.plan.window)

    def emit(self, query: int, ordinal: int) -> None:
        self.pay("emit")
        self.outputs.append((query, ordinal, self.now + 1))

    def naive(self) -> None:
        turn = 0

        def take(i: int) -> bool:
            nonlocal turn
            if not self.can("insert"):
                return False
            self.pay("insert")
            fed = 0
            while fed < self.queries and self.can("scan", "emit"):
                self.pay("scan")
                if self.passes(turn, i):
                    self.emit(turn, i)
                turn = (turn + 1) % self.queries
                fed += 1
            self.shed += fed == 0
            return True

        for _ in self.arrivals(take, lambda: True):
            pass

    def finding(self, i: int) -> int:
        """What finding the cell of a tuple costs."""
        code = int(self.data.code[i])
        learned = 0 if code in self.seen else self.data.learned
        others = self.queries - len(self.open[code])
        return min(self.price["lookup"] + learned * self.price["scan"], others * self.price["scan"])

    def indexed(self) -> None:
        keep = kept(self.plan, self.data, float(np.sum(self.grant)))

        def take(i: int) -> bool:
            if len(keep) and not keep[i]:
                self.shed += 1
                return True
            price = self.price["insert"] + self.finding(i)
            if self.credit < price:
                return False
            self.pay_units(price)
            code = int(self.data.code[i])
            self.seen.add(code)
            found = [(q, False) for q in self.said[code]] + [(q, True) for q in self.open[code]]
            for k in range(len(found)):
                q, is_open = found[(i + k) % len(found)]
                if not self.can("emit", *["scan"] * is_open):
                    break
                if is_open:
                    self.pay("scan")
                if self.passes(q, i):
                    self.emit(q, i)
            return True

        for _ in self.arrivals(take, lambda: True):
            pass

    def paper(self) -> None:
        plan, data = self.plan, self.data
        buckets = 1 if plan.structure in ("T1", "T2") else plan.buckets
        self.buckets = buckets
        self.bucket = value_buckets(data, buckets, plan.sample)
        self.cells: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.zone_starts = [0]
        self.known = 0
        self.evaluated = [0] * self.queries
        self.start = [0] * self.queries
        self.keys: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(self.queries)]
        self.turn = 0
        detector = DetectorTwin(self) if plan.structure == "T4" else None
        self.length = 2**62 if plan.structure == "T1" else plan.zone
        room = plan.waiting if plan.pace.is_replay else 0
        for i, grant in enumerate(self.grant):
            self.credit += grant
            self.now = i
            self.waiting.append(i)
            while self.waiting:
                first = self.waiting[0]
                price = {"T1": ["insert"], "T2": ["insert", "update"]}.get(
                    plan.structure, ["insert", "lookup", "update", *["lookup"] * (first < plan.sample)]
                ) + ["update"] * 3 * (plan.structure == "T4")
                if data.ts[first] >= self.oldest() and self.can(*price):
                    self.pay(*price)
                    code = int(data.code[first])
                    self.cells[len(self.zone_starts) - 1, int(self.bucket[code])].append(first)
                    self.known = max(self.known, code + 1)
                    if detector is not None:
                        detector.tuples.append(code)
                elif len(self.waiting) > room or data.ts[first] < self.oldest():
                    self.shed += 1
                else:
                    break
                self.waiting.popleft()
                self.applied = first + 1
                ends = first + 1 - self.zone_starts[-1] >= self.length
                if detector is not None:
                    ends = (first + 1) % 256 == 0 and (detector.changed() or ends)
                    if ends:
                        detector.reference = []
                if ends:
                    self.zone_starts.append(first + 1)
                if (first + 1) % plan.every == 0 or first + 1 == len(self.grant):
                    self.dispatch(first + 1 == len(self.grant))

    def dispatch(self, last: bool) -> None:
        least = 0.0 if last else self.credit / 2
        for done in range(self.queries):
            if self.credit < least or not self.round(self.turn):
                break
            self.turn = (self.turn + 1) % self.queries
            if done == self.queries - 1 and self.plan.pace.is_replay and not self.waiting:
                self.credit = min(self.credit, 0.0)

    def round(self, q: int) -> bool:
        plan = self.plan
        while plan.structure != "T1" and self.evaluated[q] < self.known:
            keys = self.keys[q][int(self.bucket[self.evaluated[q]])]
            if not self.is_sampled(keys):
                if not self.can("scan"):
                    return False
                self.pay("scan")
                keys.append(self.evaluated[q])
            self.evaluated[q] += 1
        marking = self.price["add"] * self.buckets
        if self.credit < marking:
            return False
        self.pay_units(marking)
        end, oldest = self.now + 1, self.oldest()
        regions = self.regions(q, oldest)
        if plan.preference == "weighted":
            self.visit_weighted(q, end, oldest, regions)
        else:
            regions.sort(key=lambda region: region[0] if plan.preference == "asc" else -region[0])
            self.visit(q, end, oldest, regions)
        self.start[q] = self.applied
        return True

    def is_sampled(self, keys: list[int]) -> bool:
        return len(keys) >= 24 and not self.plan.is_exact

    def regions(self, q: int, oldest: int) -> list[tuple[float, float, list[int]]]:
        """(priority, share, tuples) of the cells of [start, end) that promise something."""
        plan, data = self.plan, self.data
        unguided = plan.structure == "T1"
        price = [] if unguided else ["estimate"] + ["push"] * (plan.preference != "weighted")
        floor = self.credit / 2
        found = []
        begin = max(z for z, start in enumerate(self.zone_starts) if start <= self.start[q])
        ends = [*self.zone_starts[1:], self.applied]
        for zone in range(len(ends) - 1, begin - 1, -1):
            if self.zone_starts[zone] == self.applied:
                continue
            if data.ts[ends[zone] - 1] < oldest:
                break
            for bucket in range(self.buckets):
                keys = self.keys[q][bucket]
                passing = [code for code in keys if data.says[q, code] != NONE]
                if not passing and not unguided:
                    continue
                if self.credit - sum(self.price[name] for name in price) < floor:
                    return found
                self.pay(*price)
                tuples = [i for i in self.cells[zone, bucket] if i >= self.start[q]]
                if tuples:
                    share = 1.0 if unguided else len(passing) / len(keys)
                    weight = 0.0
                    for code in passing:
                        weight += float(data.magnitude[code])
                    by_value = plan.promise == "value" and not unguided
                    found.append((len(tuples) * (weight / len(keys)) if by_value else share, share, tuples))
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

    def nile(self) -> None:
        """A tuple is answered in full before another is let in; see the kernel for the rest."""
        self.active: list[tuple[int, int, bool]] = []
        self.slice = 0
        end = len(self.grant)

        def free() -> bool:
            while self.active:
                q, i, is_open = self.active[0]
                if self.data.ts[i] < self.oldest():
                    self.active = []
                    break
                if not self.can("emit", *["scan"] * is_open):
                    return False
                self.active.pop(0)
                self.give(q, i, is_open)
            return not self.admission.fitting or self.admission.refit()

        def drain() -> None:
            room = self.plan.waiting if self.plan.pace.is_replay else 0
            while True:
                if self.zone.is_full():
                    self.zone.flush()
                    continue
                is_free = free()
                if not self.waiting:
                    self.is_free = is_free
                    return
                first = self.waiting[0]
                if is_free and self.data.ts[first] < self.oldest():
                    self.shed += 1
                elif not (is_free and self.let_in(first)):
                    if len(self.waiting) <= room:
                        self.is_free = is_free
                        return
                    self.shed += 1
                self.waiting.popleft()
                self.applied = first + 1
                if (
                    self.applied % 256 == 0
                    and self.applied // 256 == self.admission.explore_at + 1
                    and not self.plan.is_exact
                ):
                    self.admission.fitting = True

        self.applied, self.is_free = 0, True
        for i, grant in enumerate(self.grant):
            while self.zone.held and self.zone.is_late(i):
                self.zone.flush()
                drain()
            idle = self.is_free and not self.waiting and not self.zone.held and not self.zone.left
            if self.plan.pace.is_replay and idle:
                self.credit = min(self.credit, 0.0)
            self.credit += grant
            if self.zone.held:
                self.zone.grant += grant
            self.now = i
            self.waiting.append(i)
            drain()
        while self.zone.held and end:
            self.zone.flush()
            drain()

    def give(self, q: int, i: int, is_open: bool) -> None:
        if is_open:
            self.pay("scan")
            self.admission.tries += 1
            self.admission.hits += self.passes(q, i)
        if self.passes(q, i):
            self.emit(q, i)

    def let_in(self, i: int) -> bool:
        """False when it has to wait."""
        code = int(self.data.code[i])
        admission = self.admission
        said, opened = self.said[code], self.open[code]
        learning = not self.plan.is_exact and self.applied // 256 == admission.explore_at
        find = self.finding(i)
        price = self.price["insert"] + find
        asking = 0.0
        if admission.wanted is not None and not learning and (self.data.learned == 0 or code in self.seen):
            asking = admission.asking
            if asking >= self.price["lookup"]:
                price -= min(find, self.price["lookup"])
        counting = self.price["update"] * (learning or self.plan.output == "ranges")
        if self.credit - self.zone.reserved() < asking + price + counting:
            return False
        cell = admission.cell_of[code]
        if asking > 0.0:
            self.pay_units(asking)
            if admission.wanted is not None and cell not in admission.wanted:
                self.shed += bool(said or opened)
                return True
        holding = self.plan.output == "ranges" and bool(said)
        if self.plan.is_exact and self.plan.budget is not None:
            others = (self.queries - len(opened)) * self.price["scan"]
            holding = holding and find + self.price["update"] <= others
        if holding or learning:
            price += self.price["update"]
        self.pay_units(price)
        self.seen.add(code)
        if learning:
            admission.counts[cell] += 1.0
            admission.weight[cell] += float(self.data.magnitude[code])
        if holding:
            self.zone.take(i, price + asking)
        self.active = [(q, i, False) for q in said if not holding] + [(q, i, True) for q in opened]
        return True


class DetectorTwin:
    """The two-window or variance detector over the codes of tuples, in floats."""

    def __init__(self, run: Twin) -> None:
        self.run = run
        self.reference: list[int] = []
        self.tuples: list[int] = []
        self.multipliers = [int(m) for m in odd_multipliers(DETECTOR_ROWS, run.plan.seed, 2)]

    def sketch(self, codes: list[int], row: int) -> np.ndarray[Any, Any]:
        out = np.zeros(DETECTOR_COLUMNS, np.int64)
        shift = 64 - (2 * DETECTOR_COLUMNS).bit_length() + 1
        for code in codes:
            cell = (self.multipliers[row] * int(self.run.data.hashes[code]) % 2**64) >> shift
            out[cell % DETECTOR_COLUMNS] += 1 if cell < DETECTOR_COLUMNS else -1
        return out

    def changed(self) -> bool:
        price = self.run.price["add"] * 6 * DETECTOR_COLUMNS
        if not self.tuples or self.run.credit < price:
            return False
        self.run.pay_units(price)
        n, m = len(self.reference), len(self.tuples)
        rows = [(self.sketch(self.reference, r), self.sketch(self.tuples, r)) for r in range(DETECTOR_ROWS)]
        self.reference += self.tuples
        self.tuples = []
        if n < 2 or m < 2:
            return False
        repeats = [((int(a @ a) - n) / (n * (n - 1)), (int(b @ b) - m) / (m * (m - 1))) for a, b in rows]
        if self.run.plan.confidence == "variance":
            p = max(sorted(rate for rate, _ in repeats)[1], 1.0 / (n * n))
            q = max(sorted(rate for _, rate in repeats)[1], 1.0 / (m * m))
            confidence = min(p, q) / max(p, q)
        else:
            distance = sorted(p + q - 2.0 * int(a @ b) / (n * m) for (p, q), (a, b) in zip(repeats, rows, strict=True))[
                1
            ]
            if distance <= 0.0:
                return False
            mass = max(sorted(rate for rate, _ in repeats)[1], 0.0)
            z = distance / ((1 / n + 1 / m) * math.sqrt(2.0 * (mass + 1.0 / DETECTOR_COLUMNS)))
            confidence = 1.0 / (1.0 + z * z)
        changed = confidence < self.run.plan.threshold
        self.run.changes += changed
        return changed


class AdmissionTwin:
    """Which cells per tuple must have; a cell is the set of keys of which all predicates say the same."""

    def __init__(self, run: Twin) -> None:
        self.run = run
        data = run.data
        by_rank = sorted(range(data.says.shape[1]), key=lambda k: int(data.rank[k]))
        columns = [tuple(int(s) for s in data.says[:, k]) for k in by_rank]
        self.intervals: list[int] = []
        cells: dict[tuple[int, ...], int] = {}
        self.cell_of: dict[int, int] = {}
        for at, (k, column) in enumerate(zip(by_rank, columns, strict=True)):
            cell = cells.setdefault(column, len(cells))
            self.cell_of[k] = cell
            if at == 0 or columns[at - 1] != column:
                self.intervals.append(cell)
        self.full = [[q for q, said in enumerate(column) if said == FULL] for column in cells]
        self.open = [[q for q, said in enumerate(column) if said == EDGE] for column in cells]
        self.counts = [0.0] * len(cells)
        self.weight = [0.0] * len(cells)
        self.wanted: set[int] | None = None
        self.asking = 0.0
        self.fitting = False
        self.explore_at, self.gap = 0, 16 * max(1, -(-len(cells) // 1024))
        self.refit_every = self.gap
        self.hits, self.tries = 0, 0
        self.granted_before, self.arrived_before = 0.0, 0

    def hit_rate(self) -> float:
        return (self.hits + 1.0) / (self.tries + 2.0)

    def expected(self, cell: int) -> tuple[float, float]:
        price, plan = self.run.price, self.run.plan
        edges = len(self.open[cell])
        found = len(self.full[cell]) + self.hit_rate() * edges
        cost = price["insert"] + price["lookup"] + edges * price["scan"]
        if plan.output == "ranges":
            return found, cost + (bool(self.full[cell]) * price["update"] + self.hit_rate() * edges * price["emit"])
        return found, cost + found * price["emit"]

    def price_of(self, runs: int) -> float:
        price = self.run.price
        if self.run.data.learned:
            return price["lookup"]
        return min(price["scan"] * (1 + math.ceil(math.log2(runs))), price["lookup"])

    def refit(self) -> bool:
        run = self.run
        cells = len(self.counts)
        sorting = run.plan.preference == "asc" or run.plan.promise == "value"
        cost = 4.0 * cells * run.price["add"]
        if sorting:
            cost += cells * run.price["heap_pop"] * math.ceil(math.log2(max(2, cells)))
        granted = 0.0
        for grant in run.grant[: run.now + 1]:
            granted += grant
        grant = (granted - self.granted_before) / (run.now + 1 - self.arrived_before)
        dear = 16.0 * cost > grant * 256 * self.refit_every
        if not dear and run.credit < cost:
            return False
        self.granted_before, self.arrived_before = granted, run.now + 1
        if not dear:
            run.pay_units(cost)
            self.decide(grant)
        self.fitting = False
        self.gap = self.refit_every if self.wanted is not None else min(2 * self.gap, 8 * self.refit_every)
        self.explore_at += self.gap
        return True

    def decide(self, grant: float) -> None:
        plan = self.run.plan
        self.wanted = None
        total = sum(self.counts)
        if total == 0.0:
            return
        cells = range(len(self.counts))
        prior, mean = 1.0 / len(self.counts), sum(self.weight)
        mean = prior * mean / total
        self.counts = [count + prior for count in self.counts]
        self.weight = [weight + mean for weight in self.weight]
        total += 1.0
        value = self.weight if plan.promise == "value" else self.counts
        if plan.preference == "asc":
            order = sorted(cells, key=lambda c: value[c] * self.expected(c)[0])
        elif plan.promise == "value":
            order = sorted(cells, key=lambda c: -self.expected(c)[0] * self.weight[c] / self.counts[c])
        else:
            order = sorted(cells, key=lambda c: -(len(self.full[c]) + 0.5 * len(self.open[c])))
        outputs = work = 0.0
        for c in cells:
            found, cost = self.expected(c)
            outputs += value[c] / total * found
            work += self.counts[c] / total * cost
        best = 1.05 * outputs * min(1.0, grant / work)
        if grant < work:
            inside: list[int] = []
            outputs = work = 0.0
            for c in order:
                found, cost = self.expected(c)
                if found == 0.0:
                    continue
                inside.append(c)
                outputs += value[c] / total * found
                work += self.counts[c] / total * cost
                wanted = [cell in inside for cell in self.intervals]
                asking = self.price_of(sum(now and not before for before, now in itertools.pairwise([False, *wanted])))
                affordable = min(1.0, grant / (asking + work))
                better = outputs * affordable > best and plan.preference == "desc"
                if plan.preference == "asc":
                    better = affordable == 1.0 or self.wanted is None
                if plan.preference == "weighted":
                    better = len(inside) == sum(self.expected(c)[0] > 0 for c in cells) and outputs * affordable > best
                if better:
                    best, self.wanted, self.asking = outputs * affordable, set(inside), asking
        self.counts = [0.5 * (count - prior) for count in self.counts]
        self.weight = [0.5 * (weight - mean) for weight in self.weight]


class ZoneTwin:
    """The open zone of `ranges`, and the regions that earlier ones left."""

    def __init__(self, run: Twin) -> None:
        self.run = run
        self.held: list[int] = []
        self.grant, self.owed = 0.0, 0.0
        self.last = run.plan.zone
        self.turn = 0
        self.left: list[tuple[tuple[int, list[int]], int]] = []
        self.runs: list[list[list[int]]] = []
        for q in range(run.queries):
            told = [q in full for full in run.admission.full]
            grouped = itertools.groupby(enumerate(told), key=lambda pair: pair[1])
            self.runs.append([[c for c, _ in group] for is_full, group in grouped if is_full])
        self.all_runs = sum(len(mine) for mine in self.runs)

    def take(self, i: int, cost: float) -> None:
        run = self.run
        code = int(run.data.code[i])
        if not self.held:
            self.grant = run.credit + cost
        self.held.append(i)
        self.owed += len(run.said[code]) * run.price["emit"]

    def reserved(self) -> float:
        run = self.run
        if run.plan.is_exact or not self.held:
            return 0.0
        price = run.price
        runs = self.all_runs * (price["estimate"] + price["emit"]) + price["add"] * len(run.admission.counts)
        come = min(1.0, (run.applied + 1 - self.held[0]) / self.last)
        return min(min(runs * come, self.owed), 0.5 * self.grant)

    def is_full(self) -> bool:
        return bool(self.held) and self.run.applied - self.held[0] >= self.run.plan.zone

    def is_late(self, arriving: int) -> bool:
        window = self.run.plan.window
        ts = self.run.data.ts
        return window is not None and int(ts[arriving]) - int(ts[self.held[0]]) > window // 4

    def flush(self) -> None:
        run, price = self.run, self.run.price
        laying = price["add"] * len(run.admission.counts)
        most = laying + self.all_runs * (price["estimate"] + price["emit"])
        left = len(self.left)
        if self.owed <= most or run.credit < laying:
            for i in self.held:
                code = int(run.data.code[i])
                for q in run.said[code]:
                    if run.can("emit"):
                        run.emit(q, i)
        else:
            run.pay_units(laying)
            self.report()
        if len(self.left) == left:
            while self.left:
                region, first = self.left[-1]
                if first >= run.oldest() and not self.give(region):
                    break
                self.left.pop()
        self.last = max(1, run.applied - self.held[0])
        self.held, self.owed = [], 0.0
        if run.plan.pace.is_replay and run.plan.budget is not None and not self.left and not run.waiting:
            run.credit = min(run.credit, 0.0)

    def report(self) -> None:
        run, price, plan = self.run, self.run.price, self.run.plan
        regions = []
        order = [(self.turn + k) % run.queries for k in range(run.queries)]
        for q, cells in [(query, mine) for query in order for mine in self.runs[query]]:
            if not run.can("estimate"):
                break
            run.pay("estimate")
            tuples = sorted(
                (i for i in self.held if run.admission.cell_of[int(run.data.code[i])] in cells),
                key=lambda i: (run.admission.cell_of[int(run.data.code[i])], i),
            )
            if not tuples:
                continue
            promise: float = len(tuples)
            if plan.promise == "value":
                weights = [0.0] * (len(run.admission.counts) + 1)
                for i in self.held:
                    weights[run.admission.cell_of[int(run.data.code[i])] + 1] += float(
                        run.data.magnitude[run.data.code[i]]
                    )
                sums = list(itertools.accumulate(weights))
                promise = sums[cells[-1] + 1] - sums[cells[0]]
            regions.append((promise if plan.preference == "asc" else -promise, (q, tuples)))
        pop = 0
        short = len(regions) * price["emit"] > run.credit and not plan.is_exact
        if short and plan.preference != "weighted" and len(regions) > 1:
            regions.sort(key=lambda region: region[0])
            pop = price["heap_pop"] * math.ceil(math.log2(len(regions)))
        done = 0
        while done < len(regions) and run.credit >= pop:
            run.pay_units(pop)
            if not self.give(regions[done][1]):
                break
            done += 1
        self.turn = (self.turn + 1) % run.queries
        for _, region in regions[done:]:
            if len(self.left) < 4 * self.all_runs and run.can("push"):
                run.pay("push")
                self.left.append((region, int(run.data.ts[self.held[0]])))

    def give(self, region: tuple[int, list[int]]) -> bool:
        run = self.run
        if not run.can("emit"):
            return False
        run.pay("emit")
        run.outputs += [(region[0], i, run.now + 1) for i in region[1]]
        return True
