"""Which way a join is answered: what may be spent, what every contestant is expected to do with it, and the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.after import NOTHING, After
from nile.operators.strategies.forecast import Forecast, Work, choose, forecasts
from nile.operators.strategies.least import INSTEAD, too_little
from nile.operators.strategies.looking import Look, span_of
from nile.operators.strategies.machine_prices import machine_prices

__all__ = ["USUAL", "WHOLE", "Choice", "Reach", "pace_of", "reaches"]

WHOLE = 1e30
"""ns that pay for anything."""
USUAL = 8.0
"""Matches of a tuple, where nothing was looked at."""
_PARTS, _CLEARLY = ("counts", "keys", "prefix"), 1.1
"""Strategies that may look less far back than the window, and by how much what they find has to be worth more then."""
_SOME, _MUCH = 0.02, 1 / 3
"""Of the exact cost beside a pass what a part takes at the least, and of all what a pass takes that leaves no part."""
_MOST_PACE, _TOLD, _SAFE = 5.0, 5e6, 0.92
"""How far a clock may move the table's prices, after how many ns, and what of the rest may be planned."""


def pace_of(clock: Clock, behind: float) -> float:
    """How many times dearer than by the table work is by the clock.  behind: ns at the table's of what was done."""
    dear = clock.worked / behind if behind > _TOLD else 1.0
    return clock.crowded * min(_MOST_PACE, max(1.0 / _MOST_PACE, dear))


@dataclass(frozen=True, slots=True)
class Reach:
    """window: ns, None for all time; worth: what a pair within it counts for on average, 1 in the first granularity;
    why: in words, nothing for the window of the plan."""

    window: int | None
    worth: float
    why: str = ""


def reaches(plan: JoinPlan, span: int) -> list[Reach]:
    """The plan's window, and under a fade factor besides each of its granularities with all that are younger.

    span: ns that all tuples lie within.  Ages are taken to be even within the window.
    Source: promising tuples, section 4.1.1: priority = fade ** (granularity - 1) * expected matches.
    """
    if plan.fade.factor == 1.0 or plan.preference != "desc":
        return [Reach(plan.window, 1.0)]
    far = max(1, span if plan.window is None else plan.window)
    powers = plan.fade.powers(plan.spec.depth)
    found, border, worth = [], 0, 0.0
    for g in range(plan.spec.depth):
        begin = border
        border = far if g + 1 == plan.spec.depth else min(far, border + plan.spec.span(g + 1))
        worth += float(powers[g]) * (border - begin)
        if border == far:
            break
        found.append(Reach(border, worth / border, f"of the youngest {border / far:.0%} of the window "))
    return [Reach(plan.window, worth / far), *found]


class Choice:
    """The strategy of one run over two streams, chosen when it is first asked for.

    known: how many pairs there are, once that was counted; rechosen: of a plan that was re-chosen while it ran, from
    what, when, why and for what; clock: of the question, under a budget of time; asking: ns
    that each pair takes besides to be asked a condition, 0 where there is none; telling: ns of each pair besides that
    the exact answer, which is made in another way then, does without; after: what is done with pairs then.
    """

    def __init__(
        self,
        plan: JoinPlan,
        joined: Joinable,
        clock: Clock | None = None,
        *,
        asking: float = 0.0,
        telling: float = 0.0,
        after: After = NOTHING,
    ) -> None:
        self.plan = plan
        self._asking, self._telling, self._after = asking, telling, after
        self.clock = clock
        self.prices = machine_prices()
        self.known: int | None = None
        self.rechosen = ""
        self._joined = joined
        self._tuples = sum(map(len, joined.streams))

    @cached_property
    def look(self) -> Look:
        """The look at both streams that forecasts are made from."""
        return Look(self._joined, self.plan.seed, fine=self.plan.preference == "asc")

    @property
    def has_looked(self) -> bool:
        """Whether there was one."""
        return "look" in self.__dict__

    @cached_property
    def work(self) -> Work:
        """What steps cost for these streams."""
        return Work(self.look, self.prices, self._besides)

    @property
    def _besides(self) -> float:
        return self._asking + self._telling + self._after.priced(self.look.pairs, self.keys)

    @property
    def keys(self) -> float:
        """About how many keys have pairs."""
        return self.look.distinct * self.look.paired if self.has_looked else 0.25 * self._tuples

    @property
    def exact_cost(self) -> float:
        """ns of the exact answer: aggregates of all pairs are told by counting these, but for their groups."""
        pairs = self.look.pairs if self.known is None else float(self.known)
        return self.work.exact(pairs) - pairs * (self._telling + self._after.each)

    @cached_property
    def grant(self) -> float:
        """ns that may be spent, reading included."""
        budget = self.plan.budget
        if budget.fraction is not None:
            if self.plan.is_exact:
                return WHOLE
            granted = self.prices.start + budget.fraction * self.exact_cost
            return granted if self._takes_all else max(granted, self._floor)
        if budget.outputs is not None:
            return WHOLE
        return budget.nanoseconds(self._tuples)

    @cached_property
    def _floor(self) -> float:
        """ns of a fraction that are spent at the least: those of a pass, and enough to find some after it; 0 where what
        is granted beside every fraction pays for that."""
        least = self._least
        if self.plan.preference == "desc":  # whose first part needs no pass over the rest
            least = self.work.reading + self.work.looking
        floor = least + _SOME * max(0.0, self.exact_cost - least)
        return floor if floor > self.prices.start else 0.0

    @property
    def _takes_all(self) -> bool:
        """Whether a pass costs so much of the whole answer that this is given whatever the fraction: were it given for
        small ones alone, more budget would find less."""
        return self._floor > _MUCH * self.exact_cost

    @property
    def is_named(self) -> bool:
        """Whether nothing has to be looked at before it runs: all was asked for, or so many outputs."""
        return self.plan.is_exact or self.plan.budget.unit == "outputs"

    @property
    def _behind(self) -> float:
        """ns at the table's prices of what comes before any strategy."""
        return self.work.reading + self.work.looking

    @cached_property
    def pace(self) -> float:
        """How many times dearer than by the table work is by the clock, as far as that is told: 1 without one."""
        if self.clock is None or not self.has_looked:
            return 1.0
        return pace_of(self.clock, self._behind)

    @cached_property
    def planned(self) -> float:
        """ns at the table's prices that candidates may cost: under a clock what is left on it, and what is behind."""
        if self.clock is None or self.is_named:
            return self.grant
        return self._behind + _SAFE * (self.grant - self.clock.elapsed) / self.pace

    @cached_property
    def candidates(self) -> list[Forecast]:
        """Every contestant's forecast: under a fade factor that of the reach by which it finds most."""
        first, *younger = reaches(self.plan, span_of(self._joined))
        found = self._forecasts(self.look, self.planned)
        best = {each.strategy: replace(each, within=first.window) for each in found}
        if self.clock is not None and self.plan.preference != "asc":  # the look is behind, whatever comes
            best["exact"] = replace(best["exact"], cost=best["exact"].cost + self.work.looking)
        for reach in younger:
            look = self.look.within(reach.window)
            scale = look.pairs * reach.worth / max(1e-30, self.look.pairs * first.worth)
            for each in self._forecasts(look, self.planned):
                quality = min(1.0, each.quality * scale)
                if each.strategy in _PARTS and quality > _CLEARLY * best[each.strategy].quality:
                    why = reach.why + each.why
                    best[each.strategy] = replace(each, quality=quality, why=why, within=reach.window)
        return list(best.values())

    def _forecasts(self, look: Look, grant: float) -> list[Forecast]:
        work = self.work if look is self.look else Work(look, self.prices, self._besides)
        return forecasts(look, work, self.plan.preference, self.plan.outlier_cap, min(grant, 1e18))

    @cached_property
    def near(self) -> Look:
        """The look within the reach of the strategy that runs."""
        return self.look.within(self.forecast.within)

    @cached_property
    def near_work(self) -> Work:
        """What steps cost there."""
        return self.work if self.near is self.look else Work(self.near, self.prices, self._besides)

    @property
    def close_work(self) -> Work:
        """What steps cost for the outputs that are looked for."""
        return self.work if self.is_named else self.near_work

    def output(self, drawn: float) -> float:
        """ns that an output costs.  drawn: one of a sample."""
        exact, prices, preference = self.way == "exact" and not self.rechosen, self.prices, self.plan.preference
        if not self.has_looked:
            handed = self._after.handed
            pair, keyed = handed + prices.pairing(USUAL), handed + prices.keying(USUAL)
            outlier = handed + prices.of_outlier()
        else:
            work = self.close_work
            pair, keyed, outlier = work.pair + work.far, work.keyed, work.outlier
        if preference == "weighted":
            return pair if exact else drawn
        return outlier if preference == "asc" else pair if exact else keyed

    @cached_property
    def way(self) -> str:
        """The strategy that runs.  Raises BudgetError where time finds nothing."""
        if self.plan.strategy != "auto":
            return self.plan.strategy
        if self.is_named:  # the exact join tells outliers from other pairs only by counting
            return "exact" if self.plan.is_exact and self.plan.preference != "asc" else "counts"
        if self.plan.budget.fraction is not None and self._takes_all:
            return "exact"
        beside = 0.0 if self.clock is not None else self.prices.start
        chosen = choose(self.candidates, self.planned, beside, lambda grant: self._forecasts(self.look, grant))
        if self.clock is not None and chosen.cost > self.planned:
            loading = self.clock.loading
            least = self._least + max(0.0, self.grant - self.planned - loading)
            raise too_little(least, self._tuples, self.plan.budget, "" if self._asking else INSTEAD, loading=loading)
        return chosen.strategy

    @property
    def forecast(self) -> Forecast:
        """That of the strategy that runs."""
        return next(each for each in self.candidates if each.strategy == self.way)

    @property
    def _least(self) -> float:
        """ns of a pass over the input in which anything may be found."""
        weighted = self.plan.preference == "weighted"
        passing = self.work.passing + weighted * (self.work.tossing + self.prices.solve)
        return self.work.reading + self.work.looking + self.work.hashing + passing

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know of the way that ran: that the budget did not pay for a pass over the input."""
        fraction = self.plan.budget.fraction
        if self.plan.strategy != "auto" or self.is_named or fraction is None:
            return ()
        if self.way != "exact":
            if self._floor <= self.prices.start + fraction * self.exact_cost:
                return ()
            return (
                f"budget: needed {self._floor / self.exact_cost:.2g} of the exact answer's CPU for a pass over the "
                f"input and what it finds at the least; got {fraction:g}; as much was spent; allow more",
            )
        exact = next(each for each in self.candidates if each.strategy == "exact")
        if exact.cost <= self.grant + self.prices.start:
            return ()
        return (
            f"budget: needed {self._least / self.exact_cost:.2g} of the exact answer's CPU for a pass over the input "
            f"that finds anything; got {fraction:g}; the whole answer came back instead; allow more",
        )

    def explain(self) -> list[str]:
        """The contestants, one line each; the one that runs is marked; and how it was re-chosen, if it was."""
        lines = [each.line(each.strategy == self.way, self.exact_cost) for each in self.candidates]
        return [*lines, f"  re-chosen: {self.rechosen}"] if self.rechosen else lines
