"""Pairs of two streams by how many there are times what their tuples are worth: counted and weighed, few are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.exact.join.chain import ExactJoin
from nile.expressions.conditions import Value
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Loaded
from nile.operators.join.chain_join import Joined
from nile.operators.strategies.counted import CountedJoin
from nile.operators.strategies.ranked import RankedJoin
from nile.summaries.errors import BudgetError, ConfigError, KeyTypeError
from nile.summaries.heavy import pa, pc

__all__ = ["WorthJoin", "Worths", "check_worth", "worth_of"]

Array = np.ndarray[Any, Any]
_LOOKING = 0.8
"""The share of a small budget that looks at tuples; the rest makes pairs."""
Worths = Sequence[Array | None]
"""What each tuple of either stream is worth, float64 [n], 0 or more; None: 1."""


def check_worth(plan: JoinPlan, *, is_pair: bool) -> None:
    """Raises ConfigError, BudgetError for a plan by which counts times what tuples are worth cannot be told."""
    came = ""
    if not is_pair:
        came = "more streams, or a condition on the pair"
    elif plan.preference == "weighted":
        came = "weighted, whose sample is to be faithful to all pairs alike"
    elif plan.method != "nile" or plan.strategy not in ("", "auto", "counts") or plan.output != "pairs":
        came = f"method {plan.method!r}, strategy {plan.strategy!r}, output {plan.output!r}"
    elif plan.fade.factor != 1.0 or plan.pace.is_replay or plan.spec.forgetting:
        came = "a fade factor, a replay or forgetting"
    if came:
        raise ConfigError(
            "WITH PREFERENCE, a count times what tuples are worth: needed pairs of two streams by desc or asc, by "
            f"method nile; got {came}; leave the factor out"
        )
    if plan.budget.unit not in ("fraction", "outputs"):
        raise BudgetError(
            "WITH PREFERENCE, a count times what tuples are worth: needed a budget as a fraction or in outputs, by "
            f"which tuples are counted before any pair is made; got {plan.budget}; say BUDGET 30 %"
        )


class WorthJoin(RankedJoin):
    """One run of a JoinPlan whose pairs are preferred by the number of matches times what tuples are worth.

    A pair is as promising as the tuple that completes it: desc by (pairs that it completes) * (its own worth) * (the
    mean worth of the other stream's tuples of its key); asc by (tuples of the key in both windows) * the same, least
    first, of outliers alone.  Of equals the tuple that came first, and of one tuple its newest partner first.
    Cost: of every tuple that of inserting and looking it up, and an update of its key's mean where it has a worth; the
    rest of the budget makes pairs.  A budget that does not pay for all tuples takes in those of some keys, drawn by the
    seed, with four fifths of it.
    Source: promising tuples, section 4.3, there for sums.
    """

    def __init__(self, plan: JoinPlan, joined: Joined, worths: Worths) -> None:
        super().__init__(plan, joined)
        self._worths = worths
        exact = joined.exact
        self._keys = np.ones(exact.keys, bool)
        most = [each for each in (plan.first, plan.budget.outputs) if each is not None]
        if plan.budget.unit == "fraction" and plan.fraction < 1.0:
            granted = plan.fraction * float(joined.costs(plan.costs, ranges=False).sum())
            looks = self._looking()
            if looks > _LOOKING * granted:
                self._keys = self._drawn(_LOOKING * granted)
                looks = self._looking()
            most.append(int((granted - looks) / plan.costs.emit))
        self.plan = replace(plan, first=None if not most else max(1, min(most)))

    def _drawn(self, limit: float) -> Array:
        """Keys drawn at random, of whose tuples a look may cost so much: bool [keys]."""
        cost = np.zeros(self._keys.shape[0])
        for own, codes in self._sides:
            cost += self._look(own) * np.bincount(codes[codes >= 0], minlength=cost.shape[0])
        order = np.random.Generator(np.random.PCG64(self.plan.seed)).permutation(cost.shape[0])
        drawn = np.zeros(cost.shape[0], bool)
        drawn[order[np.cumsum(cost[order]) <= limit]] = True
        return drawn

    @property
    def _sides(self) -> list[tuple[Array | None, Array]]:
        """Of either stream what its tuples are worth, and their keys."""
        exact = self._joined.exact
        return list(zip(self._worths, (exact.left_code, exact.right_code), strict=True))

    def _taken(self, codes: Array) -> Array:
        """Which tuples are taken in: all with a key, or those of the keys drawn."""
        return (codes >= 0) & self._keys[np.maximum(codes, 0)] if self._keys.shape[0] else codes >= 0

    def _look(self, own: Array | None) -> float:
        """What a look at a tuple costs."""
        costs = self.plan.costs
        return costs.insert + costs.lookup + (0.0 if own is None else costs.update)

    def _looking(self) -> float:
        """What a look at all tuples that are taken in costs."""
        return sum(self._look(own) * float(np.count_nonzero(self._taken(codes))) for own, codes in self._sides)

    @cached_property
    def _counted(self) -> CountedJoin:
        exact = self._joined.exact
        if self._keys.all():
            return CountedJoin(exact)
        left, right = (
            np.where(self._taken(codes), codes, -1).astype(codes.dtype) for codes in (exact.left_code, exact.right_code)
        )
        return CountedJoin(ExactJoin(exact.left_ts, exact.right_ts, left, right, exact.keys, exact.window))

    @cached_property
    def _promise(self) -> Array:
        """Of each arrival, by what its pairs are preferred, the more the better: float64 [n]."""
        counted, exact = self._counted, self._joined.exact
        worth = np.ones(counted.side.shape[0])
        for side, (own, codes) in enumerate(zip(self._worths, (exact.left_code, exact.right_code), strict=True)):
            if own is None:
                continue
            known = codes >= 0
            often = np.bincount(codes[known], minlength=counted.keys)
            mean = np.bincount(codes[known], weights=own[known], minlength=counted.keys) / np.maximum(often, 1)
            worth[counted.side == side] *= own
            others = np.flatnonzero(counted.side != side)
            key = counted.key[others]
            worth[others] *= np.where(key >= 0, mean[np.maximum(key, 0)], 0.0)
        return -worth * counted.standing if self._is_asc else worth * counted.matches

    @cached_property
    def _arrivals(self) -> Array:
        counted, first = self._counted, self.plan.first
        promising = counted.matches > 0
        if self._is_asc:
            promising &= counted.standing <= self.plan.outlier_cap
        at = np.flatnonzero(promising)
        at = at[np.argsort(-self._promise[at], kind="stable")]
        if first is not None:
            at = at[: int(np.searchsorted(np.cumsum(counted.matches[at]), first)) + 1]
        return at

    @property
    def whole(self) -> int:
        """How many pairs the exact answer has, also of keys that are not taken in."""
        if self._keys.all():
            return super().whole
        every = CountedJoin(self._joined.exact)
        return int(every.matches[every.standing <= self.plan.outlier_cap].sum() if self._is_asc else every.pairs)

    @property
    def _is_asc(self) -> bool:
        return self.plan.preference == "asc"

    @property
    def shed(self) -> tuple[int, int]:
        """Tuples of keys that are not taken in, of left and right."""
        left, right = (int(np.count_nonzero((codes >= 0) & ~self._taken(codes))) for _, codes in self._sides)
        return left, right

    @property
    def figures(self) -> JoinFigures:
        """As of a ranked join, of the tuples taken in, and what weighing took."""
        told, costs, gone = super().figures, self.plan.costs, sum(self.shed)
        weighed = sum(int(np.count_nonzero(self._taken(codes))) for own, codes in self._sides if own is not None)
        inserted = told.spent_insert - costs.insert * gone + costs.update * weighed
        hit = told.spent_hit - costs.lookup * gone
        whole = float(self._joined.costs(costs, ranges=False).sum())
        return replace(
            told, admitted=told.admitted - gone, spent=inserted + hit, spent_insert=inserted, spent_hit=hit,
            exact_cost=whole, granted=self.plan.fraction * whole,
        )  # fmt: skip


def worth_of(worth: Value | None, stream: Loaded) -> Array | None:
    """What each tuple is worth, by size: float64 [n]; 0 where that is null or no number.  Raises KeyTypeError."""
    if worth is None:
        return None
    if not len(stream) or stream.carried is None:
        return np.zeros(len(stream))
    of = worth.of(stream.carried, where=f"stream '{stream.name}', preference")
    if not (pa.types.is_integer(of.type) or pa.types.is_floating(of.type)):
        raise KeyTypeError(
            f"preference over stream '{stream.name}': needed a number that a count is multiplied by; got {of.type} of "
            f"{worth.text}; name a numeric expression"
        )
    numbers: Array = pc.fill_null(nearest(of, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    sizes: Array = np.abs(np.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0))
    return sizes
