"""The combinations of n streams within a budget: all are counted key by key, then those wanted written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.join.clique import refuse_uncountable
from nile.exact.join.shared import in_all
from nile.exact.state.lent import roomy, taken
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.multiway.outputs import Combinations, MultiwayFigures
from nile.operators.strategies.after import NOTHING, After, Owing
from nile.operators.strategies.by_key import best_first
from nile.operators.strategies.choice import pace_of
from nile.operators.strategies.drawing import drawn_in_parts
from nile.operators.strategies.forecast import reading
from nile.operators.strategies.least import too_little
from nile.operators.strategies.machine_prices import machine_prices
from nile.operators.strategies.tested import asking
from nile.preferences.key_sample import KeySample
from nile.pyramid.grid.manager import Memory
from nile.summaries.key_types import is_hashed
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import several_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.several_kernels")

__all__ = ["KeyCombinations", "TimedCombinations"]

Array = np.ndarray[Any, Any]
_ROOM = 65_536
"""Combinations a batch, at the most."""
_FIRST = 4_096
"""Of the first batch: what one takes is not known before."""
_LEAST = 0.1
"""Of what counting all takes, what writing may take where a fraction does not even pay for that."""


class KeyCombinations:
    """n streams listed by key, whose combinations are counted before any is written.

    by_key: of each key, int64 [keys].  Cost: two passes over the tuples.  Memory: 16 bytes a tuple and 8 (n + 1) a key.
    """

    def __init__(self, ts: tuple[Array, ...], codes: tuple[Array, ...], window: int | None, cap: int = 0) -> None:
        """ts, codes: of each stream, as of `ExactClique`; cap: of outliers, which alone count, or 0.

        Raises MemoryRefused where there are more than can be counted.
        """
        self._window, self._cap = -1 if window is None else window, cap
        keys = 1 + max(int(each.max(initial=-1)) for each in codes)
        places = in_all(codes, keys)
        told = tuple(np.arange(each.shape[0]) for each in codes) if places is None else places
        kept = codes if places is None else tuple(taken(each, at) for each, at in zip(codes, places, strict=True))
        tuples = sum(each.shape[0] for each in kept)
        self._begin = np.zeros((len(ts), keys + 1), np.int64)
        self._listed, self._times = roomy(tuples), roomy(tuples)
        end = 0
        for own, code, at, begin in zip(ts, kept, told, self._begin, strict=True):
            begin[0] = end
            kernels.list_stream(code.astype(np.int64, copy=False), at, own, begin, self._listed, self._times)
            end = int(begin[-1])
        self._tuples = end
        self.by_key = np.zeros(keys, np.int64)
        at, low = np.zeros((2, len(ts)), np.int64)
        most, whole = kernels.combinations_by_key(
            self._begin, self._times, self._window, cap, at, low, self.by_key
        )  # fmt: skip
        refuse_uncountable(most, whole, len(ts))
        self.combinations = int(self.by_key.sum())

    def __len__(self) -> int:
        return self._tuples

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._begin.nbytes + self._listed.nbytes + self._times.nbytes + self.by_key.nbytes

    @cached_property
    def _sizes(self) -> Array:
        """Tuples of each key: int64 [keys]."""
        sizes: Array = np.diff(self._begin, axis=1).sum(axis=0)
        return sizes

    def written(self) -> Iterator[Combinations]:
        """All, those of the keys with most per tuple first; of outliers those of the rarest keys."""
        if self._cap:
            found = np.flatnonzero(self.by_key)
            order = found[np.argsort(self._sizes[found], kind="stable")]
        else:
            order = best_first(self.by_key, self._sizes)
        yield from self._batches(order, 1.0, 0.0, 1.0)

    def drawn(self, which: Array, rate: Array, stands: Array, phase: float) -> Iterator[Combinations]:  # noqa: ARG002
        """A systematic sample, key after key, as of `KeyPairs`; all keys are one stratum.

        rate: float64 [1], the probability of each; stands: float64 [1], its weight; phase: in [0, 1).
        """
        step = 1.0 / float(rate[0])
        yield from self._batches(np.flatnonzero(self.by_key), step, phase * step, float(stands[0]))

    def _batches(self, order: Array, step: float, phase: float, weight: float) -> Iterator[Combinations]:
        streams = self._begin.shape[0]
        progress, (at, low) = np.zeros(4, np.int64), np.zeros((2, streams), np.int64)
        size = _FIRST
        while progress[kernels.AT] < order.shape[0]:
            out = roomy(streams * size).reshape(streams, size)
            n = kernels.write_combinations(
                order, self._begin, self.by_key, self._listed, self._times, self._window, self._cap, step, phase,
                progress, at, low, out,
            )  # fmt: skip
            if n:
                yield Combinations(weight=np.full(n, weight), places=out[:, :n].T)
            size = _ROOM


class TimedCombinations:
    """One run of a plan over n streams whose budget is one of time, or a fraction of the exact answer's forecast cost.

    desc: the combinations of the keys with most per tuple first; asc: outliers, the rarest keys' first; weighted:
    drawn evenly from all.  A condition is asked of what is found, and what is the best key and an outlier is told with
    it left aside.  What is not written when time is over is not found; of a fraction what is spent is counted, not
    timed, and a tenth of what counting takes may always be written.  Memory: as of `KeyCombinations`.
    """

    coverage = 1.0
    """Nothing is forgotten."""

    def __init__(
        self, plan: JoinPlan, joined: MultiwayJoinable, clock: Clock | None, *, after: After = NOTHING
    ) -> None:
        """clock: of the question, under a budget of time; after: what is done with combinations then.

        Raises BudgetError where time is over before all is counted.
        """
        self.plan = plan
        self._joined = joined
        self._clock = Clock(plan.budget) if clock is None and plan.budget.is_timed else clock
        self._prices = prices = machine_prices()
        self._tuples = sum(map(len, joined.streams))
        texts = sum(len(one) for one in joined.streams if is_hashed(one.key.type))
        keys, hashed = 0.25 * self._tuples, texts / max(1, self._tuples)
        self._read = reading(joined.streams, prices)
        self._counting = self._tuples * (prices.coding(keys, hashed, sparse=True) + prices.clique)
        told = prices if self._clock is None else None
        self._asking, self._share = (0.0, 1.0) if joined.passes is None else asking(joined, plan.seed, told)
        self._after = after
        self._found: KeyCombinations | None = None
        self._outputs = self._candidates = 0
        self._written = 0.0
        self._each = len(joined.streams) * prices.member + self._asking + self._share * after.handed
        if self._clock is None:
            return
        pace = pace_of(self._clock, self._read)
        if self._clock.elapsed + pace * self._counting > self._grant:
            loading = self._clock.loading
            least = self._clock.elapsed - loading + pace * self._counting
            raise too_little(least, self._tuples, plan.budget, loading=loading)

    @property
    def _exact_cost(self) -> float:
        """ns of all combinations, counted and written."""
        whole = self._candidates if self._found is None else self._found.combinations
        return self._read + self._counting + self._each * whole

    @property
    def _grant(self) -> float:
        """ns that may be spent: of a fraction, once all are counted."""
        budget = self.plan.budget
        if budget.fraction is None:
            return budget.nanoseconds(self._tuples)
        return self._prices.start + budget.fraction * self._exact_cost

    @property
    def _left(self) -> float:
        """ns at the table's prices that writing may take."""
        if self._clock is not None:
            pace = pace_of(self._clock, self._read + self._counting)
            return max(0.0, self._grant - self._clock.elapsed) / pace
        return max(_LEAST * self._counting, self._grant - self._read - self._counting)

    def run(self) -> Iterator[Combinations]:
        """Combinations, in batches of up to 65,536."""
        exact, plan, clock = self._joined.exact, self.plan, self._clock
        cap = plan.outlier_cap if plan.preference == "asc" else 0
        self._found = found = KeyCombinations(exact.ts, exact.codes, exact.window, cap)
        owing = Owing(self._after, clock)
        owing.among(0, lambda _: float(np.count_nonzero(found.by_key)))
        parts = found.written()
        if plan.preference == "weighted":
            rest = self._left
            drawn = self._after.paid(rest, self._each + self._share * self._after.each, found.by_key)
            rate = np.array([min(1.0, max(1.0, drawn) / max(1, found.combinations))])
            rng = np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 4]))
            none = np.zeros(0, np.uint8)
            passing = len(found) * self._prices.clique
            parts = drawn_in_parts(found, none, rate, np.ones(1), rng, clock, self._grant, rest, passing)
        elif clock is None:
            parts = _first(parts, int(self._left / self._each))
        passes = self._joined.passes
        for part in parts:
            self._candidates += len(part)
            self._written += len(part) * self._each
            kept = part
            if passes is not None:
                assert part.places is not None
                passing_ones = self._joined.test_places(part.places)
                kept = Combinations(weight=part.weight[passing_ones], places=part.places[passing_ones])
            self._outputs += len(kept)
            owing.found(self._outputs)
            if len(kept):
                yield kept
            if clock is not None and plan.preference != "weighted" and clock.elapsed >= self._grant:
                return

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know of a fraction that does not even pay for counting."""
        fraction, before = self.plan.budget.fraction, self._read + self._counting
        if fraction is None or self._found is None or self._grant >= before:
            return ()
        return (
            f"budget: needed {before / self._exact_cost:.2g} of the exact answer's CPU to count all combinations; got "
            f"{fraction:g}; all were counted, and as many written as take a tenth of that; allow more",
        )

    @property
    def whole(self) -> int | None:
        """How many outputs the exact answer has; None before all are counted, and where a condition leaves some."""
        return None if self._found is None or self._joined.passes is not None else self._found.combinations

    def explain(self) -> list[str]:
        """What runs, in words."""
        what = {
            "asc": "outliers alone, the rarest keys' first",
            "desc": "the combinations of the keys with most per tuple",
            "weighted": "combinations drawn evenly from all",
        }[self.plan.preference]
        return [
            f"  * counts: {(self._read + self._counting) / 1e6:,.1f} ms: all counted key by key, then {what} written"
        ]

    def sample(self, parts: list[Combinations]) -> KeySample:
        """The sample of keys that the outputs of a weighted run are."""
        weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
        first = np.concatenate([np.zeros(0, np.int64), *(part.ordinals[0] for part in parts)])
        return KeySample(weight, np.ones(weight.shape[0]), self._joined.exact.codes[0][first].astype(np.int64))

    def expand(self, outputs: Combinations) -> Combinations:
        """The combinations as they are."""
        return outputs

    @property
    def shed(self) -> tuple[int, ...]:
        """No tuple is turned away."""
        return (0,) * len(self._joined.streams)

    @property
    def memory(self) -> Memory:
        """Bytes of the lists by key."""
        return Memory(sketches=0, directory=0, tuples=0 if self._found is None else self._found.nbytes)

    @property
    def figures(self) -> MultiwayFigures:
        """What has been done so far; costs are nanoseconds, by the prices."""
        nulls = sum(one.key.null_count for one in self._joined.streams)
        before = self._read + self._counting
        return MultiwayFigures(
            arrivals=self._tuples, nulls=nulls, admitted=self._tuples - nulls, shed=self.shed, outputs=self._outputs,
            candidates=self._candidates, regions=0, pruned=0, expired=0, evicted=0, granted=self._grant,
            spent=before + self._written, spent_insert=before, spent_hit=self._written,
            exact_cost=self._exact_cost, coverage=1.0, forgotten=0, admission=1.0, sampling_rate=1.0,
        )  # fmt: skip


def _first(parts: Iterator[Combinations], room: int) -> Iterator[Combinations]:
    """The first so many combinations."""
    for part in parts:
        if room <= 0:
            return
        yield part.first(room)
        room -= len(part)
