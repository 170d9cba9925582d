"""The exact ranges of two whole streams: tuples are counted by key, those alone whose key both streams have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.exact.join.dense import dense_codes
from nile.exact.join.listed import Lists, Slice, cuts
from nile.exact.join.parts import BLOCK
from nile.exact.join.shared import in_all, kept_of
from nile.exact.join.threads import Ahead, useful
from nile.exact.state.lent import filled, roomy, taken
from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.join.chain_join import CERTAIN, Unsampled
from nile.pyramid.grid.manager import Memory
from nile.summaries.estimate import Estimate
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.exact.join import listed_kernels
    from nile.operators.join import range_join_kernels as kernels
else:
    listed_kernels = lazy("nile.exact.join.listed_kernels")
    kernels = lazy("nile.operators.join.range_join_kernels")

__all__ = ["DrawnRanges", "RangeJoin", "Ranges", "draws_ranges"]

Array = np.ndarray[Any, Any]
_SLICES = 4
"""Slices of a long input, whatever the threads: batches end where they do."""
_LONG = 1 << 18
_DENSE = 4
"""Codes a tuple up to which rows by code are small enough."""
_INT32 = (1 << 31) - 1
_AHEAD = 32  # batches of a thread that may wait for their turn
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Ranges(Outputs):
    """Range records of a whole run.  like, int64 [n]: an ordinal of the left stream whose tuple has the same key."""

    ts: Any = None
    like: Any = None


class _Counted(NamedTuple):
    """Both streams, and the counts that each thread begins with: whole [threads, keys, 4]."""

    streams: Any
    rows: Array
    slices: list[Slice]


class RangeJoin(Unsampled):
    """One run of an exact JoinPlan whose outputs are range records, in the order in which tuples arrive.

    A record's pairs are those that its tuple completes.  Neither a summary, nor a hash of a key, nor a price is made
    before.  Memory: 16 to 40 bytes per tuple whose key both streams have, and 20 per such key and thread.  Source:
    DESIGN section 3, range records.
    """

    _held = 0

    def run(self, make: Callable[[Outputs], Outputs] | None = None) -> Iterator[Outputs]:
        """All records, in batches of up to 65,528.  make: what each is given to, on the thread that found it."""
        counted = self._counted()
        threads = counted.rows.shape[0]
        ends = [k * len(counted.slices) // threads for k in range(threads + 1)]
        works = [
            self._worked(counted.streams, rows, counted.slices[begin:end], make)
            for rows, (begin, end) in zip(counted.rows, pairwise(ends), strict=True)
        ]
        ahead = [Ahead(work, _AHEAD) for work in works[1:]]
        try:
            Ahead.start(ahead)
            yield from (found for found in works[0] if found is not None)
            for one in ahead:
                while (found := one.next()) is not None:
                    yield found
        finally:
            Ahead.stop(ahead)

    def _counted(self) -> _Counted:
        joined = self._joined
        threads = joined.threads
        ts: tuple[Array, ...] = (joined.left.ts, joined.right.ts)
        codes: tuple[Array, ...] = joined.window_codes
        places: tuple[Array, ...] = (np.zeros(0, np.int64),) * 2
        above = 1 + max(int(each.max(initial=-1)) for each in codes)
        at = in_all(codes, above, threads=threads)
        if at is not None:
            codes, above = kept_of(codes, at, above)
        tuples = sum(each.shape[0] for each in codes)
        if above > _DENSE * tuples + BLOCK:
            codes, above = dense_codes(codes, shared=True, threads=threads, over=at is not None)
        if at is not None:  # only now that what coding took is given back
            ts, places = tuple(taken(each, kept) for each, kept in zip(ts, at, strict=True)), at
        slices = cuts(ts, self._window, _SLICES if tuples >= _LONG else 1)
        lanes = min(len(slices), useful(threads, tuples) if above <= tuples else 1)
        kind = np.int32 if len(joined.left.ts) + len(joined.right.ts) <= _INT32 else np.int64
        like, rows = roomy(above, kind), filled(lanes * above * 4, 0, kind).reshape(lanes, above, 4)
        kernels.like_keys(codes[0], places[0], like)
        self._held = 40 * tuples + rows.nbytes + like.nbytes
        streams = kernels.Streams(ts[0], ts[1], codes[0], codes[1], places[0], places[1], like)
        return _Counted(streams, rows, slices)

    def _worked(
        self, streams: Any, rows: Array, slices: list[Slice], make: Callable[[Outputs], Outputs] | None
    ) -> Iterator[Outputs | None]:
        """The records of slices that follow each other; then None."""
        progress = np.array([*slices[0].begin, *slices[0].gone])
        for k, code in enumerate((streams.left_code, streams.right_code)):
            listed_kernels.count_keys(code[: slices[0].begin[k]], k, rows)
            listed_kernels.pass_keys(code[: slices[0].gone[k]], _FIRST + k, rows)
        for one in slices:
            while (left := int(sum(one.end) - progress[:2].sum())) > 0:
                room = min(left, BLOCK)
                out = kernels.Records(roomy(room + 1, np.int8), *(roomy(room + 1) for _ in range(5)))
                written = kernels.write_ranges(streams, *one.end, self._window, rows, progress, out)
                if written:
                    side, ordinal, like, ts, low, high = (each[:written] for each in out)
                    weight = CERTAIN[:written]
                    found = Ranges(ordinal, ordinal, weight, side=side, low=low, high=high, ts=ts, like=like)
                    yield found if make is None else make(found)
        yield None

    @property
    def _window(self) -> int:
        return -1 if self._joined.window is None else self._joined.window

    def expand(self, outputs: Outputs) -> Outputs:
        """The pairs that records stand for, in their order.  O(pairs), and O(tuples) for the first."""
        if outputs.side is None or outputs.low is None or outputs.high is None:
            return outputs
        exact, (listed, first) = self._joined.exact, self._listed
        codes = (exact.left_code, exact.right_code)
        matches = outputs.high - outputs.low
        begin = np.empty(len(outputs), np.int64)
        for side in range(2):
            mine = outputs.side == side
            begin[mine] = first[codes[side][outputs.left[mine]], 1 - side] + outputs.low[mine]
        record = np.repeat(np.arange(len(outputs)), matches)
        place = np.arange(record.shape[0]) + np.repeat(begin - (np.cumsum(matches) - matches), matches)
        own, right = outputs.left[record], outputs.side[record] == 1
        pairs = own.copy(), own
        for mine, partners, other in zip(pairs, listed, (right, ~right), strict=True):
            mine[other] = partners[place[other]]
        return Outputs(left=pairs[0], right=pairs[1], weight=outputs.weight[record])

    @cached_property
    def _listed(self) -> tuple[tuple[Array, Array], Array]:
        """Of either stream the tuples by key, and where each key's begin: int32 [keys, 4]."""
        exact = self._joined.exact
        ts, codes = (exact.left_ts, exact.right_ts), (exact.left_code, exact.right_code)
        lists = Lists(ts, codes, -1, exact.keys, whole=True, threads=1)
        return lists.listed, lists.first_rows()

    @cached_property
    def data(self) -> JoinInput:
        """Both streams, encoded, merged and priced, as operators under a budget take them.  O(tuples)."""
        return self._joined.input(self.plan.costs, ranges=True)

    @property
    def memory(self) -> Memory:
        """Bytes of the operator's state."""
        return Memory(sketches=0, directory=0, tuples=self._held)

    @property
    def figures(self) -> JoinFigures:
        """What the whole run does, at the plan's prices.  O(tuples): what each arrival completes is counted for it."""
        matches = self._joined.matches
        cost = float(np.rint(UNIT * self.data.costs).sum())
        records = int(np.count_nonzero(matches))
        return self._figures_of(matches.shape[0], records, records, 0, cost)


def draws_ranges(plan: JoinPlan) -> bool:
    """Whether a plan asks for a sample of so many range records, which are all there: nothing is forgotten."""
    asked = plan.budget.unit == "outputs" and plan.preferred and plan.preference == "weighted"
    usual = plan.method == "nile" and plan.strategy == "" and not (plan.spec.forgetting or plan.blind)
    return asked and usual and plan.output == "ranges"


class DrawnRanges(RangeJoin):
    """As many records as are asked for, drawn from all (`draws_ranges`): every set of so many is as likely.

    Each weighs as many as there are over as many as are drawn, and so does each of its pairs.  Cost: all records.
    """

    _drawn = 0

    def run(self, make: Callable[[Outputs], Outputs] | None = None) -> Iterator[Outputs]:
        """The records that are drawn, in the order in which tuples arrive."""
        asked = self.plan.budget.outputs
        assert asked is not None
        whole = int(np.count_nonzero(self._joined.matches))
        size = min(asked, whole)
        rng = np.random.Generator(np.random.PCG64([self.plan.seed & 0xFFFFFFFF, 6]))
        drawn = np.sort(rng.choice(whole, size, replace=False)) if size else np.zeros(0, np.int64)
        self._drawn, weight, begin = size, whole / max(1, size), 0
        for part in super().run():
            assert isinstance(part, Ranges)
            assert part.side is not None
            assert part.low is not None
            assert part.high is not None
            at = drawn[np.searchsorted(drawn, begin) : np.searchsorted(drawn, begin + len(part))] - begin
            begin += len(part)
            if at.shape[0]:
                found = Ranges(
                    part.left[at], part.left[at], np.full(at.shape[0], weight), side=part.side[at], low=part.low[at],
                    high=part.high[at], ts=part.ts[at], like=part.like[at],
                )  # fmt: skip
                yield found if make is None else make(found)

    @property
    def pairs(self) -> Estimate:
        """How many pairs all records stand for."""
        return Estimate.exact(float(self._joined.matches.sum()))

    @property
    def figures(self) -> JoinFigures:
        """As of all records, of which only those drawn were handed out."""
        told = super().figures
        return replace(told, outputs=self._drawn, regions=self._drawn)
