"""Memory that equal parts leave unused: who is given it, what that is worth, and when it comes back."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.envelopes import packed
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.means.compressed import Narrow
from nile.execution.live.means.dealing import deal
from nile.execution.live.means.given import LEAST, SAFE, Given, Point
from nile.experiments.benchmarks.dealt import Mix, Run, errors

SECOND = 10**9


class _Made:
    window = SECOND
    grouped = False


class Plan(Given):
    """One whose streams bring 1,000 tuples a second each, of which a sample of 2**-level is held."""

    weight = 1.0

    def __init__(self, level: int, size: int, *, each: float = 0.0) -> None:
        super().__init__()
        self.made = _Made()  # type: ignore[assignment]
        self.level, self.bytes, self.now, self.each = level, size, 0, each or size
        self.short, self.tables = level > 0, 1_000 >> level
        self.made_new = 0
        self.compact = self._made

    def _made(self) -> None:
        self.made_new += 1

    def made_anew(self) -> None:
        self.bytes = int(self.each * self.held() / 1_000)

    @property
    def at(self) -> int:
        return self.now

    @property
    def rate(self) -> float:
        return 1_000 / SECOND

    @property
    def last_level(self) -> int:
        return self.level

    @property
    def came(self) -> dict[str, int]:
        return {"s": self.now}

    def held(self, at: int | None = None) -> int:
        del at
        return 1_000 >> self.level


def _doubled(plan: Plan, tuples: float, safe: float = 1.0) -> tuple[float, float]:
    """Twice the tuples in twice the bytes, four times in four times: as of tables that are full."""
    for times in (0, 1, 2, 3):
        if safe * plan.tables * 2**times >= tuples:
            return float(plan.bytes * (2**times - 1)), plan.tables * 2.0**times
    return math.inf, 0.0


def _settled(plans: list[Plan], spare: float) -> None:
    """Let a window and more pass in which nothing changes."""
    for _ in range(3):
        for each in plans:
            each.now += 6 * SECOND // 10
        deal(plans, spare, _doubled, 0.0)  # type: ignore[arg-type]


def test_who_errs_least_for_its_bytes_is_given_them_once_nothing_changes() -> None:
    plans = [Plan(2, 1_000), Plan(3, 100), Plan(1, 5_000)]
    for _ in range(2):
        for each in plans:
            each.now += 4 * SECOND // 10
        deal(plans, 10_000.0, _doubled, 0.0)  # type: ignore[arg-type]
        assert [each.goal for each in plans] == [0, 0, 0]  # no window has passed
    _settled(plans, 1_600.0)  # of which the others might still need 25 % of what they hold
    assert [each.extra for each in plans] == [0.0, 100.0, 0.0]
    assert plans[1].goal == 250
    assert plans[1].down == 2
    assert [(each.goal, each.down) for each in (plans[0], plans[2])] == [(250, 2), (500, 1)]  # as they are
    assert plans[0].limited(10.0) == 250


def test_what_one_that_is_let_in_whole_needs_to_double_is_left_for_it() -> None:
    whole, sampled = Plan(0, 3_000), Plan(2, 500)
    _settled([whole, sampled], 3_400.0)
    assert sampled.extra == 500.0  # of 3,400 the other could take no more than 1,700 in equal parts
    assert whole.kept == 1_700.0
    other = Plan(2, 1_800)
    _settled([Plan(0, 3_000), other], 3_400.0)
    assert other.extra == 0.0


def test_weights_count() -> None:
    light, heavy = Plan(2, 1_000), Plan(2, 1_500)
    heavy.weight = 4.0
    _settled([light, heavy], 2_000.0)
    assert [light.extra, heavy.extra] == [0.0, 1_500.0]


def test_all_comes_back_when_one_needs_what_equal_parts_would_give_it() -> None:
    small, large = Plan(1, 800), Plan(3, 1_000)
    small.level, small.short = 0, False
    _settled([small, large], 2_400.0)
    assert large.extra == 1_000.0
    large.level, large.bytes, large.tables = 2, 2_000, 250
    small.level, small.short, small.tables = 1, True, 800  # more comes
    deal([small, large], 1_400.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert (large.goal, large.lean) == (0, True)
    assert large.limited(250.0) == 125
    assert large.made_new == 0  # it holds 250 still
    large.level = 3
    deal([small, large], 1_400.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert (large.made_new, large.lean, large.tables) == (1, False, 125)


def test_what_takes_more_than_was_foretold_is_given_back() -> None:
    plan = Plan(2, 1_000)
    plan.take(Point(1_000.0, 0.5, 1, 500.0))
    plan.bytes = 2_100
    assert plan.limited(300.0) == 500
    plan.bytes = 2_300
    deal([plan], 100.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert (plan.allowed, plan.lean) == (2_300.0, False)  # it was there
    plan.bytes = 2_600
    deal([plan, Plan(0, 1_000)], 400.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert (plan.goal, plan.made_new) == (0, 1)  # it was not, for the other may need it


def test_too_little_memory_takes_all_back() -> None:
    plans = [Plan(2, 1_000), Plan(3, 400)]
    _settled(plans, 2_000.0)
    assert sum(each.extra for each in plans) > 0
    deal(plans, -1.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert [each.extra for each in plans] == [0.0, 0.0]
    assert SAFE < 1.0


class Flat(Plan):
    """One that errs as little with half of what it has."""

    def curve(self, cost: Any) -> list[Point]:
        del cost
        return [Point(0.0, 0.0), Point(-400.0, 0.0005, -1)] if self.bytes == 800 else [Point(0.0, 0.0)]

    def first(self, points: Any, to: Point) -> Point:
        del points
        return to

    def take(self, to: Point) -> None:
        self.bytes += int(to.bytes)


def test_who_errs_as_little_with_less_makes_room_for_who_errs_less_by_it() -> None:
    flat, sampled = Flat(1, 800), Plan(2, 1_000)
    _settled([flat, sampled], 300.0)
    assert (flat.bytes, sampled.extra) == (800, 0.0)  # it would not be enough
    deal([flat, sampled], 900.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert (flat.bytes, sampled.extra) == (400, 0.0)  # not there yet
    deal([flat, sampled], 1_300.0, _doubled, 0.0)  # type: ignore[arg-type]
    assert (flat.bytes, sampled.extra) == (400, 1_000.0)


MIX = Mix((("values", 200, 4_000), ("union", 60, 1_500), ("values", 40, 2_000)), 0.6, 5)


def test_queries_err_less_in_all_and_none_errs_more_than_in_equal_parts() -> None:
    true = Run(MIX)
    bound = MIX.bound(true)
    equal, dealt = (Run(MIX, bound, deals=deals) for deals in (False, True))
    assert max(dealt.held) <= bound
    one, other = (errors(MIX, true, each) for each in (equal, dealt))
    assert sum(other) < 0.9 * sum(one)
    assert all(mine <= theirs + 0.01 for mine, theirs in zip(other, one, strict=True))


def test_when_rates_change_it_goes_to_who_needs_it_as_in_equal_parts() -> None:
    """The third brings ten times as much after 3.5 s, when the first has been given what is left."""
    bound = MIX.bound(Run(MIX))

    def rate(number: int, usual: int, step: int) -> int:
        return 10 * usual if number == 2 and step >= 35 else usual

    true = Run(MIX, rate=rate)
    equal, dealt = (Run(MIX, bound, deals=deals, rate=rate) for deals in (False, True))
    assert dealt.levels[34][0] < equal.levels[34][0]
    assert dealt.levels[-1][2] <= equal.levels[-1][2]
    assert max(dealt.held) <= bound
    one, other = (errors(MIX, true, each) for each in (equal, dealt))
    assert all(mine <= theirs + 0.01 for mine, theirs in zip(other, one, strict=True))


def test_a_filter_lends_half_of_its_cells_and_has_them_again(tmp_path: Path) -> None:
    """As equal parts would have it, it counts as if it had them, and after a restart, too; when it may have twice as
    much, it is twice as large; and when all fits it goes."""
    with nile.connect(tmp_path / "store", state=400_000) as db:
        db.stream("s", [("t", pa.float64()), ("k", pa.int64())], time="t", keep=1)
        standing = db.subscribe("SELECT DISTINCT k FROM s WINDOW 2", emit="append", name="d")
        gate, draw = _gate(standing), np.random.default_rng(2)

        def push(step: int, many: int) -> None:
            at = np.sort(step + draw.random(many)) / 10
            db.push("s", {"t": at, "k": draw.integers(0, 20_000, many)})
            standing.poll()

        for step in range(30):
            push(step, 600)
        cells = gate.cells
        assert standing.approximate
        assert gate.lent == 0
        now, *others = gate.curve(_doubled)
        assert [each.steps for each in others][-3:] == [1, 2, 3]
        assert all(each.error <= now.error + LEAST and each.bytes == cells * (2.0**each.steps - 1) for each in others)
        gate.take(Point(-cells / 2, 0.0, -1))
        push(30, 600)
        half = gate.cells
        assert half == pytest.approx(cells / 2, rel=1e-3)
        assert (gate.lent, gate.extra, gate.reserved) == (-half, -half, 0.0)
        gate.give_back()  # what others were given: it has lent, and goes on
        push(31, 600)
        assert gate.cells == half
        twin = gate.twin()
        assert isinstance(twin, Narrow)
        assert (twin._doubled, twin.doublings) == (-1, -1)
    with nile.connect(tmp_path / "store", state=400_000) as db:
        standing = db.subscription("d")
        gate = _gate(standing)
        assert (gate.cells, gate.lent) == (half, -half)
        gate.take(Point(cells / 2, 0.0, 1))
        push(32, 600)
        assert (gate.cells, gate.lent) == (cells, 0)
        gate.take(Point(-cells / 2, 0.0, -1))
        for step in range(33, 90):
            push(step, 20)
        assert not standing.approximate
        assert gate.doublings == gate._doubled == 0


def _gate(standing: Any) -> Narrow:
    assert isinstance(standing.gate, Narrow)
    return standing.gate


@pytest.mark.parametrize("query", ["SELECT a.k, b.t FROM a, b WHERE a.k = b.k", "SELECT DISTINCT k FROM a"])
def test_tables_made_anew_hold_the_same_in_less(query: str) -> None:
    """Of a burst; what is told afterwards, and held, is what it would be."""
    told: list[Any] = []
    for anew in (False, True):
        with nile.connect(memory="64MB") as db:
            for name in "ab":
                db.stream(name, [("t", pa.float64()), ("k", pa.int64())], time="t", keep=1)
            standing = db.subscribe(f"{query} WINDOW 1", emit="changes")
            assert isinstance(standing, BoundedSubscription)
            draw = np.random.default_rng(3)
            out: list[Any] = []
            for step in range(40):
                for name in "ab":
                    many = 2_000 if step < 10 else 20
                    at = np.sort(step + draw.random(many)) / 10
                    db.push(name, {"t": at, "k": draw.integers(0, 20_000, many)})
                out += [batch.to_pylist() for batch in standing.poll()]
                if step == 30 and anew:
                    before = standing.memory
                    standing.plan.compact()
                    assert standing.memory < before / 2
            told.append((out, packed("query", standing.plan.pipeline.capture())))
    assert told[0] == told[1]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "number"), [(11, 21)])
def test_once_a_burst_is_over_no_query_errs_more_than_in_equal_parts(seed: int, number: int) -> None:
    """One that gave back what it had goes on at its equal part's level."""
    draw, of_burst = random.Random(seed), random.Random(seed + 1)
    for _ in range(number + 1):
        mix = Mix.drawn(draw)
        which = of_burst.randrange(len(mix.queries))

    def rate(query: int, usual: int, step: int) -> int:
        return 10 * usual if query == which and 30 <= step < 50 else usual

    bound, true = mix.bound(Run(mix)), Run(mix, rate=rate)
    equal, dealt = (Run(mix, bound, deals=deals, rate=rate) for deals in (False, True))
    assert max(dealt.held) <= bound
    one, other = (errors(mix, true, each) for each in (equal, dealt))
    assert all(mine <= theirs + 0.01 for mine, theirs in zip(other, one, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.long) for k in (5, 10, 15, 20, 25))])
def test_no_mix_of_queries_errs_more_than_in_equal_parts(begin: int) -> None:
    draw = random.Random(7)
    mixes = [Mix.drawn(draw) for _ in range(begin + 5)][begin:]
    for mix in mixes:
        true = Run(mix)
        bound = mix.bound(true)
        equal, dealt = (Run(mix, bound, deals=deals) for deals in (False, True))
        assert max(dealt.held) <= bound
        assert sum(errors(mix, true, dealt)) <= 1.01 * sum(errors(mix, true, equal)) + 0.001, mix


@pytest.mark.slow
@pytest.mark.parametrize(("number", "times"), [(6, 8.0), (8, 8.0), (9, 0.2), (10, 0.2)])
def test_no_mix_errs_more_when_the_rate_of_one_changes(
    monkeypatch: pytest.MonkeyPatch, number: int, times: float
) -> None:
    """From 4.5 s on, when memory has been dealt out; two of the four take it back then."""
    draw = random.Random(11)
    for _ in range(number + 1):
        mix = Mix.drawn(draw)
        which = draw.randrange(len(mix.queries))
    back: list[float] = []
    give_back = Given.give_back

    def noted(self: Given) -> None:
        back.append(self.extra)
        give_back(self)

    monkeypatch.setattr(Given, "give_back", noted)

    def rate(query: int, usual: int, step: int) -> int:
        return max(1, int(times * usual)) if query == which and step >= 45 else usual

    bound, true = mix.bound(Run(mix)), Run(mix, rate=rate)
    equal, dealt = (Run(mix, bound, deals=deals, rate=rate) for deals in (False, True))
    assert (max(back, default=0.0) > 0.0) == (number in (6, 10))
    assert max(dealt.held) <= bound
    assert sum(errors(mix, true, dealt)) <= 1.01 * sum(errors(mix, true, equal)) + 0.001
