"""The promising join of n streams in plain Python: desc, guided by the directory, without fade or replay.

It must equal the kernel output for output and unit for unit.  Money is counted in hundredths of the table's unit.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from twin_hash import mixed

from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.multiway import MultiwayJoinable

_CONTROL = 256


class Twin:
    """One run; `found` are the combinations in order (arrivals of each stream), `spent` what they cost."""

    def __init__(self, plan: JoinPlan, joined: MultiwayJoinable, salt: int) -> None:
        self.n = len(joined.streams)
        self.data = joined.input(plan.costs, ranges=False, whole=False)
        self.window = plan.window or 0
        self.granularity = float(plan.spec.granularity)
        self.salt = salt
        table = plan.costs
        self.insert, self.lookup, self.emit, self.push, self.pop, self.scan = (
            round(100 * price) for price in (table.insert, table.lookup, table.emit, table.push, table.pop, table.scan)
        )
        self.entrance = self.insert + (self.n - 1) * self.lookup + self.push
        self.lists: dict[tuple[int, int], list[int]] = {}
        self.queue: dict[int, list[Any]] = {}
        self.active: Any = None
        self.credit = self.spent = self.taking = self.granted = 0.0
        self.admission = self.admission_before = 1.0
        self.admission_since = -math.inf
        self.share, self.per_arrival, self.granted_before = 0.5, 0.0, 0.0
        self.controls = self.admitted = self.expired = self.now = 0
        self.shed = [0] * self.n
        self.found: list[tuple[int, ...]] = []
        assert self.data.costs is not None
        for arrival, cost in enumerate(self.data.costs):
            self.drain()
            self.credit += plan.fraction * round(100 * cost)
            self.granted += plan.fraction * round(100 * cost)
            self.drain()
            self.take(arrival)
            self.now = int(self.data.ts[arrival])
            if (arrival + 1) % _CONTROL == 0:
                self.control()
                self.sweep()
        self.drain()

    def pay(self, price: float) -> None:
        self.credit -= price
        self.spent += price

    def has_passed(self, entry: Any) -> bool:
        return bool(entry["ts"] < self.now - self.window)

    def top(self) -> int:
        return max((klass for klass, waiting in self.queue.items() if waiting), default=-1)

    def drain(self) -> None:
        least = (self.n - 1) * self.lookup + self.emit
        while True:
            if self.active is None:
                if self.top() < 0 or self.credit - self.pop - least < self.entrance:
                    return
                self.pay(self.pop)
                entry = self.queue[self.top()].pop()
                if self.has_passed(entry):
                    self.expired += 1
                    continue
                self.active = entry
            rest = self.active["rest"]
            while rest:
                if self.credit - self.emit < self.entrance:
                    return
                self.pay(self.emit)
                self.found.append(rest.pop(0))
            self.active = None

    def take(self, a: int) -> None:
        key, own, ts = int(self.data.key[a]), int(self.data.stream[a]), int(self.data.ts[a])
        if key < 0:
            return
        level = (mixed(int(self.data.hashes[key]), self.salt) >> 11) / 2.0**53
        idle = self.active is None and self.top() < 0 and self.credit >= 2 * self.entrance
        if (level >= self.admission and not idle) or self.credit < self.entrance:
            self.shed[own] += 1
            return
        before = self.spent
        self.admitted += 1
        self.lists.setdefault((key, own), []).append(a)
        self.pay(self.insert)
        ranges = []
        for k in range(self.n):
            if k == own:
                ranges.append([a])
                continue
            self.pay(self.lookup)
            ranges.append([m for m in self.lists.get((key, k), []) if self.data.ts[m] >= ts - self.window])
            if not ranges[-1]:
                break
        else:
            oldest = min(int(self.data.ts[part[0]]) for part in ranges)
            span = self.granularity
            density = math.prod(map(len, ranges)) * span / max(1e-3 * span, float(ts - oldest))
            mantissa, exponent = math.frexp(density)
            quarter = sum(mantissa >= 2.0**-part for part in (0.75, 0.5, 0.25))
            klass = max(1, min(127, 4 * (exponent + 8) + quarter))
            entry = {"ts": ts, "rest": list(itertools.product(*ranges))}
            if self.active is None and klass > self.top():
                self.active = entry
            else:
                self.pay(self.push)
                self.queue.setdefault(klass, []).append(entry)
        self.taking += self.spent - before

    def effective_admission(self, ts: int) -> float:
        return (
            min(self.admission, self.admission_before) if ts - self.window <= self.admission_since else self.admission
        )

    def control(self) -> None:
        self.controls += 1
        recent = (self.granted - self.granted_before) / _CONTROL
        self.granted_before = self.granted
        self.per_arrival += (recent - self.per_arrival) / min(self.controls, 4)
        if self.admitted == 0:
            return
        waits = self.top() >= 0
        if not waits and self.active is None and self.credit > 4 * self.entrance:
            self.share = min(1.0, 1.1 * self.share)
        elif waits or self.active is not None:
            self.share = max(0.2, 0.95 * self.share)
        target = min(1.0, self.share * self.per_arrival / (self.taking / self.admitted))
        if target < 0.95 * self.admission:
            self.admission = target
        elif (target == 1.0 and self.admission < 1.0) or (
            target > 1.25 * self.admission and self.admission_since < self.now - self.window
        ):
            self.admission_before, self.admission_since = self.effective_admission(self.now), self.now
            self.admission = target

    def sweep(self) -> None:
        if self.active is not None and self.has_passed(self.active):
            self.expired += 1
            self.active = None
        for klass in sorted(self.queue):
            waiting = self.queue[klass]
            while waiting and self.credit >= self.scan and self.has_passed(waiting[0]):
                self.pay(self.scan)
                self.expired += 1
                waiting.pop(0)
