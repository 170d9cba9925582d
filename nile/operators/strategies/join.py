"""The join of two streams within CPU time that users pay: forecasts first, then the best way the grant pays for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Joinable
from nile.operators.join.chain_join import CERTAIN, ChainJoin
from nile.operators.strategies.counted import CountedJoin
from nile.operators.strategies.forecast import (
    SPARE,
    Admission,
    Forecast,
    best_keys,
    choose,
    exact_cost,
    forecasts,
    looking_cost,
)
from nile.operators.strategies.looking import Look
from nile.operators.strategies.prices import PRICES, Prices
from nile.preferences.key_sample import KeySample, outputs_of_one_key
from nile.preferences.key_sample import counted as counted_estimate
from nile.pyramid.grid.manager import Memory
from nile.summaries.estimate import Estimate

__all__ = ["StrategyJoin", "is_planned"]

Array = np.ndarray[Any, Any]
_ROUNDS = 4
_WORTH_A_ROUND = 0.1
"""Of the grant, what has to be left for another round of keys."""
_WHOLE = 1e30
_CONFIDENCE, _TWICE = 0.95, 1.96


def is_planned(plan: JoinPlan) -> bool:
    """Whether a plan asks for the best way by forecast, or for a way by its name, other than promising regions."""
    return plan.strategy not in ("", "promise")


class StrategyJoin:
    """One run of a JoinPlan by a strategy (`nile.operators.strategies.forecast`).

    A fraction is one of the exact answer's forecast cost; what is spent is counted, not timed, so that the same seed
    gives the same answer, but under a budget in seconds, which ends the run when the thread has used them.  Costs of
    `figures` are nanoseconds by the prices.  desc and asc take in whole keys in rounds, the best first; each round's
    keys are others, so none has to be looked at again.
    """

    def __init__(self, plan: JoinPlan, joined: Joinable) -> None:
        self.plan = plan
        self._joined = joined
        self._tuples = tuple(map(len, joined.streams))
        self._nulls = tuple(one.key.null_count for one in joined.streams)
        self._outputs = self._bytes = 0
        self._spent = 0.0
        self._known: int | None = None
        self._sampled: tuple[CountedJoin, Array] | None = None
        self._came: list[list[Array]] = [[], []]
        self._admission: Admission | None = None
        self._partners: list[tuple[Array, Array]] = []
        self._chain: ChainJoin | None = None

    @cached_property
    def look(self) -> Look:
        """The look at both streams that forecasts are made from."""
        return Look(self._joined, self.plan.seed)

    @cached_property
    def prices(self) -> Prices:
        """What steps cost among as many keys as there are; where nothing is forecast, as they were measured."""
        return PRICES if self._is_named else PRICES.among(self.look.keys)

    @cached_property
    def grant(self) -> float:
        """ns that may be spent, reading included."""
        budget = self.plan.budget
        if budget.fraction is not None:
            return _WHOLE if self.plan.is_exact else self.prices.start + budget.fraction * self._exact_cost
        if budget.outputs is not None:
            return _WHOLE
        per = sum(self._tuples) if budget.unit == "seconds_per_tuple" else 1
        return 1e9 * budget.amount * per

    @property
    def _exact_cost(self) -> float:
        pairs = self.look.pairs if self._known is None else self._known
        return exact_cost(sum(self._tuples), pairs, self.prices)

    @cached_property
    def candidates(self) -> list[Forecast]:
        """Every contestant's forecast."""
        return forecasts(self.look, self.prices, self.plan.preference, self.plan.outlier_cap, min(self.grant, 1e18))

    @property
    def _is_named(self) -> bool:
        """Whether nothing has to be looked at before it runs: all was asked for, or so many outputs."""
        return self.plan.is_exact or self.plan.budget.unit == "outputs"

    @cached_property
    def way(self) -> str:
        """The strategy that runs."""
        if self.plan.strategy != "auto":
            return self.plan.strategy
        if self._is_named:  # the exact join tells outliers from other pairs only by counting
            return "exact" if self.plan.is_exact and self.plan.preference != "asc" else "counts"
        return choose(self.candidates, self.grant, self.prices.start).strategy

    @property
    def _forecast(self) -> Forecast:
        return next(each for each in self.candidates if each.strategy == self.way)

    @property
    def _most(self) -> int:
        outputs = self.plan.budget.outputs
        return 1 << 62 if outputs is None else outputs

    def run(self) -> Iterator[Outputs]:
        """Pairs, in batches of up to 65,536."""
        began = time.thread_time_ns()
        way = self.way
        n = sum(self._tuples)
        self._spent = self.prices.read * n
        if not self._is_named or way in ("keys", "summary"):
            self._spent += looking_cost(self.look, self.prices)
        found = {"exact": self._exact, "counts": self._counts, "keys": self._keys, "summary": self._nothing}[way]()
        seconds = self.plan.budget.unit in ("seconds", "seconds_per_tuple")
        for part in found:
            room = self._most - self._outputs
            kept = part if len(part) <= room else part.first(room)
            self._outputs += len(kept)
            self._spent += len(kept) * (self.prices.chain if way == "exact" else self.prices.emit)
            yield kept
            if self._outputs >= self._most or (seconds and time.thread_time_ns() - began > self.grant):
                return

    def _nothing(self) -> Iterator[Outputs]:
        yield from ()

    def _exact(self) -> Iterator[Outputs]:
        if self.plan.preference == "asc":
            yield from self._counts()
            return
        self._chain = ChainJoin(self.plan, self._joined)
        self._spent += sum(self._tuples) * (self.prices.encode + self.prices.probe)
        whole = True
        for part in self._chain.run():
            if (
                self._spent + len(part) * self.prices.chain > self.grant + self.prices.start
                and self.plan.strategy == "auto"
            ):
                whole = False  # more pairs than were forecast
                break
            yield part
        if whole:
            self._known = self._outputs

    def _counts(self) -> Iterator[Outputs]:
        counted = self._counted(self._joined)
        self._known = counted.pairs
        one = np.ones(1)
        strata = tuple(np.zeros(n, np.uint8) for n in self._tuples)
        whole = Admission(np.zeros(0, np.uint8), one, one, one, 0.0, 0.0)
        yield from self._found(counted, whole, (strata[0], strata[1]))

    def _keys(self) -> Iterator[Outputs]:
        self._spent += self.prices.look * sum(self._tuples)
        if self.plan.preference == "weighted":
            self._admission = self._forecast.admission
            assert self._admission is not None
            yield from self._round(self._admission)
            return
        done = np.zeros(self.look.slots, np.bool_)
        weighed = self.look.weighed(self.plan.outlier_cap if self.plan.preference == "asc" else 0)
        for k in range(_ROUNDS):
            looking = self.prices.look * sum(self._tuples) if k else 0.0
            room = SPARE * self.grant - self._spent - looking
            if k and room < _WORTH_A_ROUND * self.grant:
                return
            admission = best_keys(weighed, self.prices, room, done)
            if not admission.stratum.any():
                return
            done |= admission.stratum == 1
            self._spent += looking
            yield from self._round(admission)

    def _round(self, admission: Admission) -> Iterator[Outputs]:
        places, strata = [], []
        for side, coin in enumerate((admission.left, admission.right)):
            at, which = self.look.admitted(side, admission.stratum, admission.level, coin)
            places.append(at)
            strata.append(which)
            self._came[side].append(at)
        left, right = (self.look.taken(side, places[side]) for side in (0, 1))
        counted = self._counted(Joinable(left, right, self._joined.window), (places[0], places[1]))
        yield from self._found(counted, admission, (strata[0], strata[1]))

    def _counted(self, joined: Joinable, places: tuple[Array, Array] | None = None) -> CountedJoin:
        counted = CountedJoin(joined.exact, places)
        coding = self.prices.take if self.way == "keys" and self.plan.preference != "weighted" else self.prices.encode
        copying = 0.0 if places is None else self.prices.copy
        self._spent += (coding + copying + self.prices.rank) * sum(map(len, joined.streams))
        self._bytes = max(self._bytes, counted.nbytes)
        return counted

    def _found(self, counted: CountedJoin, admission: Admission, strata: tuple[Array, Array]) -> Iterator[Outputs]:
        """The pairs that are written of those counted, as many as the grant still pays for."""
        granted = _WHOLE if self.way == "exact" else self.grant
        room = int(min(float(self._most - self._outputs), max(0.0, granted - self._spent) / self.prices.emit))
        if self.plan.preference != "weighted":
            asc = self.plan.preference == "asc"
            arrivals = counted.outliers(self.plan.outlier_cap) if asc else counted.most()
            for left, right in counted.written(arrivals, room):
                yield Outputs(left=left, right=right, weight=CERTAIN[: left.shape[0]])
            return
        weight = 1.0 / (admission.level * admission.left * admission.right)
        which, pairs = counted.by_stratum(strata, weight.shape[0])
        if self.way == "keys":
            self._sampled = counted, which
        rate = drawing_rates(pairs, weight, float(room))
        phase = float(np.random.Generator(np.random.PCG64([self.plan.seed & 0xFFFFFFFF, 4])).random())
        for left, right, stands in counted.drawn(which, rate, weight / rate, phase):
            yield Outputs(left=left, right=right, weight=stands)

    def _told(self, counted: CountedJoin, which: Array) -> Estimate:
        """How many pairs there are, by all that the sampled keys have, drawn or not.

        The variance is that of keys that are in or out whole, and of tuples with coins of their own, whose pairs with
        later tuples are taken to be as many as those with earlier ones.
        """
        assert self._admission is not None
        admission = self._admission
        stands = counted.matches * (1.0 / (admission.level * admission.left * admission.right))[which]
        by_key = np.bincount(counted.key, stands, counted.keys)
        level = np.ones(counted.keys)
        level[counted.key] = admission.level[which]
        parts = [(1.0 - level) * by_key**2]
        for side, coin in enumerate((admission.left, admission.right)):
            mine = which[counted.side == side]
            parts.append((admission.level * (1.0 - coin))[mine] * (2.0 * stands[counted.side == side]) ** 2)
        variance, squares = (float(sum((part**power).sum() for part in parts)) for power in (1, 2))
        freedom = max(1.0, np.floor(variance**2 / squares)) if squares else np.inf
        streams = [
            (n - nulls, (admission.level * coin)[which[counted.side == side]])
            for side, (n, nulls, coin) in enumerate(
                zip(self._tuples, self._nulls, (admission.left, admission.right), strict=True)
            )
        ]
        unseen = outputs_of_one_key(streams, self._joined.window, _span(self._joined)) if level.min() < 1.0 else 0.0
        return counted_estimate(
            float(counted.pairs), float(stands.sum()), variance, float(freedom), unseen, _CONFIDENCE
        )

    def expand(self, outputs: Outputs) -> Outputs:
        """The pairs as they are."""
        return outputs

    @property
    def data(self) -> JoinInput:
        """Both streams, encoded, merged and priced; for those who measure the answer.  O(tuples)."""
        return self._joined.input(self.plan.costs, ranges=False)

    @property
    def shed(self) -> tuple[int, int]:
        """Tuples with a key that were refused."""
        if self.way not in ("keys", "summary"):
            return 0, 0
        left, right = (
            n - nulls - sum(part.shape[0] for part in parts)
            for n, nulls, parts in zip(self._tuples, self._nulls, self._came, strict=True)
        )
        return left, right

    @property
    def coverage(self) -> float:
        """Nothing is forgotten."""
        return 1.0

    @property
    def memory(self) -> Memory:
        """Bytes of the counts by slot, and of the operator's state at its fullest."""
        held = self._bytes + (0 if self._chain is None else self._chain.memory.total)
        looked = self.look.seen.nbytes if "look" in self.__dict__ else 0
        return Memory(sketches=looked, directory=0, tuples=held)

    @property
    def figures(self) -> JoinFigures:
        """What has been done so far; costs are nanoseconds, by the prices."""
        arrivals, nulls = sum(self._tuples), sum(self._nulls)
        shed = self.shed
        written = self._outputs * (self.prices.chain if self.way == "exact" else self.prices.emit)
        return JoinFigures(
            arrivals=arrivals, nulls=nulls, admitted=arrivals - nulls - sum(shed), shed=shed, outputs=self._outputs,
            regions=0, pruned=0, zones=0, changes=0, expired=0, evicted=0, granted=min(self.grant, _WHOLE),
            spent=self._spent, spent_insert=self._spent - written, spent_hit=written,
            exact_cost=self._exact_cost, coverage=1.0, forgotten=0,
            admission=1.0 - sum(shed) / max(1, arrivals - nulls), sampling_rate=1.0,
        )  # fmt: skip

    @property
    def total(self) -> Estimate:
        """How many pairs there are: counted, or told by the sample, or else by the look, of which none is certified."""
        if self._known is not None:
            return Estimate.exact(float(self._known))
        if self._sampled is not None:
            return self._told(*self._sampled)
        pairs, reach = self.look.pairs, _TWICE * self.look.error
        found = float(self._outputs)
        return Estimate(max(found, pairs), max(found, pairs - reach), max(found, pairs + reach), _CONFIDENCE, False)

    def codes(self, left: Array) -> Array:
        """A number of each key, of left tuples that are in an output: int64 [m]."""
        if self.way == "keys":
            return np.unique(self.look.words[0][left], return_inverse=True)[1].reshape(-1).astype(np.int64)
        return self._joined.exact.left_code[left]

    def sample(self, parts: list[Outputs]) -> KeySample:
        """The sample of keys that the outputs of a weighted run are.  O(outputs + tuples)."""
        none = np.zeros(0, np.int64)
        left, right = (np.concatenate([none, *each]) for each in ([p.left for p in parts], [p.right for p in parts]))
        weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
        key = self.codes(left)
        came = self._admission
        if came is None:
            return KeySample(weight, np.ones(weight.shape[0]), key)
        of = self.strata(left)
        streams = []
        for side, coin in enumerate((came.left, came.right)):
            inside = self._came[side][0] if self._came[side] else none
            which = self.strata(inside, side)
            streams.append((self._tuples[side] - self._nulls[side], (came.level * coin)[which]))
        span = _span(self._joined)
        unseen = outputs_of_one_key(streams, self._joined.window, span) if (came.level < 1.0).any() else 0.0
        coins = ((left, came.left[of]), (right, came.right[of]))
        return KeySample(weight, came.level[of], key, unseen, coins)

    def strata(self, places: Array, side: int = 0) -> Array:
        """The stratum of each of some tuples of a stream: uint8 [m]."""
        assert self._admission is not None
        return self._admission.stratum[self.look.slot_of(side, places)]

    def explain(self) -> list[str]:
        """The contestants, one line each: forecast cost, pairs, quality, why; the one that runs is marked."""
        whole = self._exact_cost
        lines = []
        for each in self.candidates:
            mark = "*" if each.strategy == self.way else " "
            lines.append(
                f"  {mark} {each.strategy}: {each.cost / 1e6:,.1f} ms ({each.cost / whole:.0%} of exact), about "
                f"{each.pairs:,.0f} pairs, quality {each.quality:.3g}: {each.why}"
            )
        return lines


def drawing_rates(pairs: Array, weight: Array, room: float) -> Array:
    """The probability of a pair of each stratum, so that weights are as even as they can be and `room` pairs come.

    pairs, weight: float64 [strata]: how many pairs came in, and for how many each stands.
    """
    if pairs.sum() <= room:
        return np.ones(weight.shape[0])
    low, high = 0.0, float((pairs * weight).sum()) / max(room, 1e-9)
    for _ in range(60):
        tick = 0.5 * (low + high)
        if float((pairs * np.minimum(1.0, weight / tick)).sum()) > room:
            low = tick
        else:
            high = tick
    return np.minimum(1.0, weight / high)


def _span(joined: Joinable) -> int:
    ends = [int(end) for one in joined.streams if len(one) for end in (one.ts[0], one.ts[-1])]
    return max(ends) - min(ends) if ends else 0
