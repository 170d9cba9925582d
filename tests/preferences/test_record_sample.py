"""Weighted range records: the kernel equals its twin, lets in what was expected, and reaches the end of its input."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
import pytest
from twin_hash import mixed

from nile.experiments.benchmarks.truth.family import made
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import PromisingJoin
from nile.preferences import state as st
from nile.preferences.budget import Budget
from nile.summaries.costs import ENGINE

Record = tuple[int, int, int, float]


def _joining(joined: Joinable, budget: float, seed: int, rows: int = 10_000) -> PromisingJoin:
    plan = JoinPlan(
        window=joined.window, budget=Budget(budget), preference="weighted", seed=seed, guide="directory",
        spec=default_spec(joined.window, seed=seed), output="ranges",
    )  # fmt: skip
    return PromisingJoin(plan, joined.input(ENGINE, ranges=True), batch_rows=rows)


def _unit(value: int, seed: int) -> float:
    return float((mixed(value, seed) >> 11) / 2**53)


class _Twin:
    """The kernel under ranges, tuple by tuple, where credit is never short: all of the grant is there at once."""

    def __init__(self, join: PromisingJoin) -> None:
        assert join.sampler is not None
        self.p, self.data, self.salt = join.sampler.sampling, join.data, int(join.state.setting[st.SALT])
        self.window = int(join.state.window[0])
        self.emit, self.entrance = (
            float(join.state.prices[st.P_EMIT]),
            float(join.state.prices[st.P_INSERT]) + float(join.state.real[st.BOUNDS]),
        )
        self.unspent = float(self.p.real[2])
        self.step, self.anew = 1.0, 0.0
        self.foreseen = self.paid = self.made = 0.0
        self.records = self.lately = 1.0
        self.made_before = 0.0
        self.lines = [[1.0, True], [1.0, True]]
        self.changes: list[tuple[int, int]] = []
        self.seen = [0, 0]
        self.found: list[Record] = []
        self.came: list[dict[int, tuple[float, float]]] = [{}, {}]
        self.lists: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})

    def _to_come(self, arrival: int) -> float:
        parts, n = self.p.to_come.shape[0] - 1, self.data.order.shape[0]
        at = arrival * parts / n
        part = min(int(at), parts - 1)
        return float(self.p.to_come[part] + (at - part) * (self.p.to_come[part + 1] - self.p.to_come[part]))

    def _move(self, arrival: int, moved: bool) -> None:
        n, step = self.data.order.shape[0], self.step
        anew = arrival >= self.anew
        if anew:
            self.lines = [[1.0, True], [1.0, True]]
            self.foreseen = self.paid = 0.0
            self.records = max(1.0, self.lately)
            few = self._to_come(arrival) < 16.0 * (self.entrance + self.records * self.emit)
            self.anew = n if few else arrival + (n - arrival + 1) // 2
        price = self.entrance + self.records * self.emit
        planned = price / (price + (1.0 - self.records) * self.emit) * self._to_come(arrival)
        back = 2.0 * price
        left = self.unspent + self.paid - self.foreseen - back
        planned += back
        wanted, most = left / (planned + math.sqrt(planned * price)), left / planned
        if anew and not (step <= most and wanted <= 1.4 * step):
            step = max(1 / 1024, min(4.0, wanted))
            self.records += 0.5
        while most < 0.5 * step and step > 1 / 1024:
            step *= 0.5
        while wanted > 3.0 * step and step < 4.0:
            step *= 2.0
        if moved or step != self.step:
            self.changes.append((self.seen[0], self.seen[1]))
            self.step = step

    def _comes(self, kept: float, side: int, ordinal: int) -> bool:
        """By a unit's one tuple, or where a tuple lies across two units, by that of either."""
        room, due = self.lines[side]
        u = _unit(2 * ordinal + side, self.salt + 4)
        across = kept > room
        came = (due or u < (kept - room) / (1.0 - room)) if across else (due and u < kept / room)
        self.lines[side] = [1.0 - (kept - room), due or not came] if across else [room - kept, due and not came]
        return bool(came)

    def _pay(self, cost: float) -> None:
        self.unspent -= cost
        self.paid += cost

    def run(self) -> list[Record]:
        """All records, in order."""
        p, data, segment = self.p, self.data, 0
        streams = [(data.left_ts, data.left), (data.right_ts, data.right)]
        for arrival in range(data.order.shape[0]):
            moved = arrival >= p.ends[segment]
            segment += int(moved)
            self._move(arrival, moved)
            side = int(data.order[arrival])
            ordinal = self.seen[side]
            self.seen[side] += 1
            ts, keys = streams[side]
            code, h = int(keys.codes[ordinal]), int(keys.hashes[ordinal])
            every = int(p.every[segment])
            if code < 0:
                continue
            looked = arrival % every == (mixed(arrival // every, self.salt + 2) >> 1) % every
            due = float(p.price[segment]) if looked else 0.0
            stratum = int(p.slot[segment, mixed(h, self.salt + 1) >> 52])
            level = float(p.level[segment, stratum])
            if _unit(h, self.salt) < level:
                kept = min(1.0, self.step * float((p.right if side else p.left)[segment, stratum]))
                price = self.entrance + self.records * self.emit
                if self._comes(kept, side, ordinal):
                    self._take(side, ordinal, code, ts, level, kept)
                self.foreseen += kept * price
            self.unspent -= due
        return self.found

    def _take(self, side: int, ordinal: int, code: int, ts: np.ndarray, level: float, kept: float) -> None:
        self.lately += (self.made - self.made_before - self.lately) / 8.0
        self.made_before = self.made
        self.lists[side].setdefault(code, []).append(ordinal)
        self.came[side][ordinal] = (level, kept)
        self._pay(self.entrance)
        theirs = self.lists[1 - side].get(code, [])
        times = (self.data.left_ts if side else self.data.right_ts)[theirs]
        low = bisect_left(times.tolist(), int(ts[ordinal]) - self.window)
        while low < len(theirs):
            after = next((at for at in (change[1 - side] for change in self.changes) if at > theirs[low]), None)
            high = len(theirs) if after is None else bisect_left(theirs, after)
            other_level, other_kept = self.came[1 - side][theirs[low]]
            weight = 1.0 / (min(level, other_level) * kept * other_kept)
            self.found.append((2 * ordinal + side, low, high, weight))
            self.made += 1.0
            self._pay(self.emit)
            low = high


@pytest.mark.parametrize("budget", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("name", ["few keys", "zipf 1", "null keys", "blow-up"])
def test_the_kernel_equals_its_twin(name: str, budget: float) -> None:
    joined = made(name, 800)
    twin = _Twin(_joining(joined, budget, 3)).run()
    join = _joining(joined, budget, 3, rows=97)
    found = [
        row
        for part in join.run()
        if part.side is not None and part.low is not None and part.high is not None
        for row in zip(
            (2 * part.left + part.side).tolist(), part.low.tolist(), part.high.tolist(), part.weight.tolist(),
            strict=True,
        )
    ]  # fmt: skip
    assert [row[:3] for row in found] == [row[:3] for row in twin]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in twin], rel=1e-9)
    assert join.figures.spent <= join.figures.granted


@pytest.mark.parametrize("name", ["few keys", "zipf 1", "drifting", "one key is half"])
def test_a_run_reaches_the_end_of_its_input(name: str) -> None:
    """What is cut off there makes totals too small: it was up to a fiftieth of them."""
    joined = made(name, 1_000)
    for seed in range(10):
        join = _joining(joined, 0.1, seed)
        list(join.run())
        assert int(join.state.whole[st.APPLIED]) == join.arrivals
        assert join.figures.spent <= join.figures.granted
