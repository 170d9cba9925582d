"""The join of two streams within CPU time that users pay: forecasts first, then the best way the grant pays for."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np

from nile.exact.join.listed import Lists
from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock
from nile.operators.inputs.joining import Joinable
from nile.operators.join.chain_join import ChainJoin
from nile.operators.strategies.admitted import Admission
from nile.operators.strategies.after import NOTHING, After, Owing, keys_among
from nile.operators.strategies.by_key import KeyOutliers, KeyPairs
from nile.operators.strategies.choice import USUAL, WHOLE, Choice
from nile.operators.strategies.drawing import drawn_in_parts
from nile.operators.strategies.forecast import SPARE, first_part, reading
from nile.operators.strategies.rechosen import Rest, Watch
from nile.operators.strategies.slots import Kinds, Slots
from nile.operators.strategies.telling import ToldRun, by_stratum, counted_all, drawing_rates, figures_of
from nile.pyramid.grid.manager import Memory
from nile.summaries.heavy import pa

__all__ = ["StrategyJoin", "is_planned"]

Array = np.ndarray[Any, Any]
_ROUNDS, _WORTH_A_ROUND, _LATE = 4, 0.1, 0.5
"""Rounds of keys; of the grant, what has to be left for another; and of what the first was to take, what it may."""
_BATCH = 65_536
"""Pairs that are written however late it is: fewer cost nothing against counting all."""


def is_planned(plan: JoinPlan) -> bool:
    """Whether a plan asks for the best way by forecast, or for a way by its name, other than promising regions."""
    return plan.strategy not in ("", "promise")


class StrategyJoin(ToldRun):
    """One run of a JoinPlan by a strategy (`nile.operators.strategies.forecast`).

    A fraction is one of the exact answer's forecast cost; what is spent is counted, not timed, so that the same seed
    gives the same answer, but under a budget in seconds, which ends the run when the thread has used them.  Costs of
    `figures` are nanoseconds by the prices.  desc and asc take in whole keys in rounds, the best first; each round's
    keys are others, so none has to be looked at again.
    """

    coverage = 1.0
    """Nothing is forgotten."""

    def __init__(
        self, plan: JoinPlan, joined: Joinable, clock: Clock | None = None, after: After = NOTHING, **each: float
    ) -> None:
        """clock: of the question, under a budget of time; after, each: as of `Choice`.  Raises BudgetError where the
        time finds nothing."""
        self.plan = plan
        self._joined = joined
        self._tuples = tuple(map(len, joined.streams))
        self._nulls = tuple(one.key.null_count for one in joined.streams)
        self._outputs = self._bytes = 0
        self._outliers: int | None = None
        self.choice = Choice(plan, joined, clock, after=after, **each)
        self.prices = self.choice.prices
        self._clock, self._after, self._owing = clock, after, Owing(after, clock)
        self._most = 1 << 62 if plan.budget.outputs is None else plan.budget.outputs
        self.spent_by: dict[str, float] = {}
        self._sampled: tuple[KeyPairs, Array, Array] | None = None
        self._came: list[list[Array]] = [[], []]
        self._admission: Admission | None = None
        self._chain: ChainJoin | None = None
        self._drawn = after.handed + self.prices.drawing(USUAL)
        """ns that a pair of a sample costs."""
        if clock is not None:
            assert self.choice.way  # time that finds nothing is refused now, not when rows are asked for

    @property
    def _spent(self) -> float:
        return sum(self.spent_by.values())

    @property
    def _left(self) -> float:
        """ns at the table's prices that may still be spent: by the clock where there is one."""
        if self._clock is None:
            return self.choice.grant - self._spent
        return (self.choice.grant - self._clock.elapsed) / self.choice.pace

    def _spend(self, step: str, cost: float) -> None:
        self.spent_by[step] = self.spent_by.get(step, 0.0) + cost

    @property
    def rechosen(self) -> str:
        """As of the choice."""
        return self.choice.rechosen

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know of the way that ran."""
        return self.choice.warnings

    def explain(self) -> list[str]:
        """The contestants, one line each; the one that runs is marked."""
        return self.choice.explain()

    def run(self) -> Iterator[Outputs]:
        """Pairs, in batches of up to 65,536."""
        way = self.choice.way
        self._spend("read", reading(self._joined.streams, self.prices))
        if not self.choice.is_named or way in ("keys", "prefix", "summary"):
            solving = self.plan.preference == "weighted" and way != "summary"
            self._spend("look", self.choice.work.looking + solving * self.prices.solve)
        ways = {"exact": self._exact, "counts": self._counts, "keys": self._keys, "prefix": self._prefix}
        for part in ways[way]() if way in ways else ():
            room = self._most - self._outputs
            kept = part if len(part) <= room else part.first(room)
            self._outputs += len(kept)
            self._spend("hand out", len(kept) * self._pair)
            self._owing.found(self._outputs)
            yield kept
            if self._outputs >= self._most or (self._clock is not None and self._is_over):
                return

    @property
    def _is_over(self) -> bool:
        """Whether the time is used up.  A sample ends by itself (`drawn_in_parts`, `Watch`): none is cut off."""
        sampled = self.plan.preference == "weighted" and (self.choice.way != "exact" or self.choice.has_looked)
        return self._left <= 0.0 and not sampled

    @property
    def _pair(self) -> float:
        """ns that an output costs."""
        return self.choice.output(self._drawn)

    @property
    def _reach(self) -> int | None:
        """ns within which partners are looked for: under a fade factor maybe less than the window."""
        return self._joined.window if self.choice.is_named else self.choice.forecast.within

    def _exact(self) -> Iterator[Outputs]:
        if self.plan.preference == "asc":
            yield from self._counts()
            return
        self._chain = ChainJoin(self.plan, self._joined)
        pairs = self.choice.look.pairs if self.choice.has_looked else 0.0
        keys = self.choice.look.keys if self.choice.has_looked else 0.25 * sum(self._tuples)
        self._owing.among(0, lambda _: self.choice.keys)
        self._spend("join", sum(self._tuples) * (self.prices.code + self.prices.joining(keys, pairs)))
        if self._clock is None or not self.choice.has_looked:
            yield from self._chain.run()
        else:
            watch = Watch(self.choice, self._joined, self._clock)
            yield from watch.until_late(self._chain.run())
            if watch.first is not None:
                self.choice.rechosen = watch.why
                yield from self._rest(Rest(self._joined, watch.first))
                return
        self.choice.known = self._outputs

    def _rest(self, rest: Rest) -> Iterator[Outputs]:
        """What is paid for of the pairs that a whole answer has not come to."""
        self._list(len(rest))
        rest.count()
        self._bytes = max(self._bytes, rest.nbytes)
        self.choice.known = self._outputs + rest.pairs
        if self.plan.preference == "weighted":
            one, none = np.ones(1), np.zeros(0, np.uint8)
            yield from self._drawn_of(rest, Admission(none, one, one, one, 0.0, 0.0), (none, none))
        else:
            yield from self._best(rest)

    def _counts(self) -> Iterator[Outputs]:
        ts, window = (self._joined.left.ts, self._joined.right.ts), self._reach
        lists = Lists(ts, self._joined.window_codes, -1 if window is None else window, threads=1)
        one, none = np.ones(1), np.zeros(0, np.uint8)
        every = Admission(none, one, one, one, 0.0, 0.0)
        yield from self._found(lists, sum(self._tuples), every, (none, none))

    def _keys(self) -> Iterator[Outputs]:
        if self.plan.preference == "weighted":
            assert self.choice.forecast.admission is not None
            self._admission = self.choice.forecast.admission
            yield from self._round(self._admission)
            return
        forecast, work, near = self.choice.forecast.admission, self.choice.near_work, self.choice.near
        assert forecast is not None
        asc = self.plan.preference == "asc"
        cap = self.plan.outlier_cap if asc else 0
        self._spend("count", work.hashing + forecast.finer * work.recounting)
        slots = Kinds(near, cap) if forecast.finer else Slots(near.weighed(cap))
        for k in range(_ROUNDS):
            room = self._left - (1.0 - SPARE) * self.choice.grant - work.passing
            if k and room < _WORTH_A_ROUND * self.choice.grant:
                return
            # A clock that is late already still finds some.
            admission = slots.best(work, room if k else max(room, _LATE * forecast.cost), counting=asc)
            if not admission.stratum.any():
                return
            yield from self._round(admission, slots.bits)

    def _prefix(self) -> Iterator[Outputs]:
        """The first part of both streams, and while a clock leaves time each next one, without the pairs across."""
        admission = self.choice.forecast.admission
        assert admission is not None
        begin, end = 0.0, float(admission.level[0])
        for _ in range(_ROUNDS):
            came = self.choice.near.part(begin, end)
            for mine, places in zip(self._came, came.places, strict=True):
                mine.append(places)
            yield from self._best(self._pairs(came.listed, len(came)))
            room = self._left - (1.0 - SPARE) * self.choice.grant
            if self._clock is None or end >= 1.0 or room < _WORTH_A_ROUND * self.choice.grant:
                return
            begin, end = end, min(1.0, end + first_part(self.choice.near, self.choice.near_work, room))

    def _round(self, admission: Admission, bits: int | None = None) -> Iterator[Outputs]:
        """What a pass over both streams takes in, joined.  bits: of slots other than the look's."""
        work, coins = self.choice.work, (admission.left, admission.right)
        came = self.choice.near.admitted(admission.stratum, admission.level, coins, bits)
        solving = self.plan.preference == "weighted"
        self._spend("admit", work.passing + solving * (work.tossing + work.hashing))
        self._spend("copy", work.copying * len(came))
        for mine, places in zip(self._came, came.places, strict=True):
            mine.append(places)
        yield from self._found(came.listed, len(came), admission, (came.left.stratum, came.right.stratum))

    def _found(self, lists: Lists, tuples: int, admission: Admission, strata: tuple[Array, Array]) -> Iterator[Outputs]:
        """The pairs that are written of so many tuples that came in, as many as the grant still pays for.

        lists: by their places in the streams; strata: uint8, of those of either stream.
        """
        if self.plan.preference == "asc":
            yield from self._rare(lists, tuples, admission)
            return
        found = self._pairs(lists, tuples)
        if self.choice.way != "keys" and self._reach == self._joined.window:
            self.choice.known = found.pairs
        yield from self._best(found) if self.plan.preference == "desc" else self._drawn_of(found, admission, strata)

    def _list(self, tuples: int, *, counting: bool = False) -> None:
        """Charge so many tuples listed by key.  counting: and those among few others told."""
        if self.choice.has_looked:
            work = self.choice.work
            keys = max(1.0, work.keys * tuples / max(1, sum(self._tuples)))
            cost = work.counting(tuples, keys) if counting else work.listing(tuples, keys)
        else:
            keys = 0.25 * tuples
            cost = self.prices.counting(keys) if counting else self.prices.listing(keys)
            cost = tuples * (self.prices.code + cost)
        self._spend("count" if counting else "list", cost)

    def _pairs(self, lists: Lists, tuples: int) -> KeyPairs:
        """So many tuples by key.  lists: by their places in the streams."""
        self._list(tuples)
        ts = self._joined.left.ts, self._joined.right.ts
        found = KeyPairs(lists, ts, self._reach, self._joined.left_keys)
        self._bytes = max(self._bytes, found.nbytes)
        return found

    def _best(self, found: KeyPairs | Rest) -> Iterator[Outputs]:
        """The pairs of the best keys, as many as the grant pays for."""
        self._owing.among(self._outputs, found.keys_among)
        return found.written(self._room(max(0.0, self._left) / self._pair))

    def _room(self, paid: float) -> int:
        """How many pairs are written where the grant pays for so many: a clock tells by itself when it is over."""
        whole = self._clock is not None and self.plan.preference != "weighted"
        return int(min(float(self._most - self._outputs), WHOLE if whole else paid))

    def _paid(self, rest: float, admission: Admission) -> int:
        """How many pairs are written for so many ns: if more keys came than were expected, what was forecast."""
        clocked = self._clock is not None
        ns = (
            WHOLE
            if self.choice.way == "exact" and self.plan.preference == "asc"
            else max(clocked * _BATCH * self._pair, rest)
        )
        return self._room(ns / self._pair if clocked else max(ns / self._pair, ceil(admission.pairs)))

    def _rare(self, lists: Lists, tuples: int, admission: Admission) -> Iterator[Outputs]:
        """The outliers among so many tuples that came in."""
        self._list(tuples, counting=True)
        ts = self._joined.left.ts, self._joined.right.ts
        found = KeyOutliers(lists, ts, self._reach, self._joined.left_keys, self.plan.outlier_cap)
        self._bytes = max(self._bytes, found.nbytes)
        if self.choice.way != "keys":
            self._outliers = found.pairs
        return found.written(self._paid(self._left, admission))

    def _drawn_of(self, found: KeyPairs | Rest, admission: Admission, strata: tuple[Array, Array]) -> Iterator[Outputs]:
        """A sample of the pairs."""
        drawing = self.prices.draw + (self.prices.tell if self.choice.way == "keys" else 0.0)
        drawing *= len(found)
        self._spend("draw", drawing)
        rest = self._left - (self._clock is not None) * drawing
        if self.choice.has_looked:
            self._drawn = self.choice.close_work.drawn(len(found), rest)
        room = self._paid(rest, admission)
        if self._after.group:
            room = min(room, int(self._after.paid(rest, self._drawn, found.by_key)))
            groups = keys_among(found.by_key, room, found.pairs)
            self._owing.among(self._outputs, lambda _: groups)
        weight = 1.0 / (admission.level * admission.left * admission.right)
        which, pairs = np.zeros(0, np.uint8), np.array([float(found.pairs)])
        if isinstance(found, KeyPairs) and weight.shape[0] > 1:
            which = found.strata(lambda left: admission.stratum[self.choice.look.slot_of(0, left)])
            pairs = np.bincount(which, found.by_key, weight.shape[0])
        if isinstance(found, KeyPairs) and self.choice.way == "keys":
            self._sampled = found, which, by_stratum(strata, weight.shape[0])
        rate = drawing_rates(pairs, weight, float(room))
        rng = np.random.Generator(np.random.PCG64([self.plan.seed & 0xFFFFFFFF, 4]))
        passing = len(found) * self.prices.draw
        yield from drawn_in_parts(found, which, rate, weight, rng, self._clock, self.choice.grant, rest, passing)

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
        if self.choice.way not in ("keys", "prefix", "summary"):
            return 0, 0
        left, right = (
            n - nulls - sum(self._with_key(side, part) for part in parts)
            for side, (n, nulls, parts) in enumerate(zip(self._tuples, self._nulls, self._came, strict=True))
        )
        return left, right

    def _with_key(self, side: int, places: Array) -> int:
        """How many of the tuples that came in have a key: the first part of a stream comes in as it is."""
        n = int(places.shape[0])
        if self.choice.way != "prefix" or not self._nulls[side]:
            return n
        return n - int(self._joined.streams[side].key.take(pa.array(places)).null_count)

    @property
    def memory(self) -> Memory:
        """Bytes of the counts by slot, and of the operator's state at its fullest."""
        held = self._bytes + (0 if self._chain is None else self._chain.memory.total)
        looked = self.choice.look.seen.nbytes if self.choice.has_looked else 0
        return Memory(sketches=looked, directory=0, tuples=held)

    @property
    def figures(self) -> JoinFigures:
        """What has been done so far; costs are nanoseconds, by the prices."""
        written, shed = self.spent_by.get("hand out", 0.0), self.shed
        given = sum(self._tuples), sum(self._nulls), shed, self._outputs
        return figures_of(*given, min(self.choice.grant, WHOLE), self._spent, written, self.choice.exact_cost)

    def count(self) -> None:
        """Where all pairs are found as they complete, count them without finding any.  O(tuples)."""
        if self.choice.way == "exact" and self.plan.preference != "asc" and not self.is_told and self._left > 0.0:
            self.choice.known = counted_all(self._joined)
            self._list(sum(self._tuples))
