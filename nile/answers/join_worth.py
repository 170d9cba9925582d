"""The quality of a join's outputs: how many there are, what they cost, and where the tuples went."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

from nile.answers.answer import Answer
from nile.answers.join_streams import Streams
from nile.answers.kept_outputs import KeptOutputs
from nile.answers.tabular import cheaper_as_ranges
from nile.base.room import within
from nile.operators.common.contract import ReadJoin
from nile.operators.common.plan import JoinPlan
from nile.operators.common.total_bounds import TotalBounds, total_bounds
from nile.operators.drive.clock import Clock
from nile.operators.drive.metered import MeteredRun, report_of
from nile.operators.inputs.joining import Loaded
from nile.operators.join.range_join import DrawnRanges
from nile.operators.multiway.drawn import DrawnCombinations
from nile.operators.multiway.ranked import RankedCombinations
from nile.operators.strategies.ranked import RankedJoin
from nile.preferences.budget import BudgetReport
from nile.pyramid.grid.manager import Memory
from nile.streams.accounting import Accounting
from nile.summaries.estimate import Estimate

__all__ = ["JoinWorth"]

_AT_ONCE = 1 << 20  # tuples whose sketches take some 40 ms: no one has to ask for these
_COUNTED = (RankedJoin, RankedCombinations, DrawnCombinations)
"""Joins that count their outputs before they make any."""


class JoinWorth(Answer):
    """An answer of a join, as far as it tells of itself.

    clock: of the question; names: of the streams in columns.
    """

    clock: Clock | None
    names: tuple[str, ...]
    _plan: JoinPlan
    _streams: Streams
    _key: str
    _reader: ReadJoin[Any]
    _metered: MeteredRun[Any] | None
    _found: KeptOutputs[Any]
    _is_sample: bool

    @property
    def plan(self) -> JoinPlan:
        """What was asked, checked and complete."""
        return self._plan

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """The streams behind the answer."""
        return self._streams.streams

    @property
    def key(self) -> str:
        """The name of the key column."""
        return self._key

    @property
    def _known(self) -> int | None:
        """How many outputs there are, where that is known without finding them."""
        if isinstance(self._reader, _COUNTED):
            return self._reader.whole
        plan = self.plan
        whole = plan.is_exact and plan.preference != "asc" and self._streams.has_ranges
        return self._streams.candidates if whole else None

    def _finish(self) -> None:
        with within(self.room):
            self._found.finish()

    @property
    def estimate(self) -> Estimate:
        """How many outputs the exact answer has, as far as this answer tells.

        A full answer knows, and is counted without being made; others run to their end.  A weighted one is a sample:
        the sum of its weights, with a 95 % interval from the spread by key, and, where keys were dropped, room for a
        heavy one among them (`operators.key_sample`; not certified: what was not seen cannot be known).  desc and asc
        pick their tuples, which is not a random sample, nor are the first range records of n streams under a budget in
        outputs: what they found is a guaranteed lower bound and nothing more.
        """
        known = self._known
        if known is not None:
            return Estimate.exact(float(known))
        self._finish()
        found = float(self._found.outputs)
        if self.plan.is_exact and self.plan.preference != "asc" and self.plan.first is None:
            return Estimate.exact(found)
        cut = self._metered is not None and self._metered.cuts
        if not self._is_sample or cut:
            return Estimate(found, found, math.inf, 1.0, True)
        return self._found.count()

    @cached_property
    def bounds(self) -> TotalBounds:
        """How many outputs the exact answer has, by sketches of all tuples: at most, and about.

        Whatever the budget and the preference; nothing of the query runs.  A pass over the streams, which no budget
        pays for (`seconds` says what it took); again for nothing.
        """
        streams, plan = self.streams, self.plan
        return total_bounds(
            [one.ts for one in streams], [one.key for one in streams], plan.window,
            tested=not self._streams.has_ranges, seed=plan.seed,
        )  # fmt: skip

    @property
    def bounds_at_once(self) -> TotalBounds | None:
        """`bounds`, where they take no time to speak of; else None."""
        known = "bounds" in self.__dict__ or sum(len(one) for one in self.streams) <= _AT_ONCE
        return self.bounds if known else None

    @property
    def overall(self) -> Estimate:
        """As `estimate`."""
        return self.estimate

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that probes could still reach (1 unless data was forgotten)."""
        self._finish()
        return self._reader.coverage

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent, in the unit asked in and as a share of the exact cost.  Runs the query to its end."""
        self._finish()
        told = report_of(self.plan.budget, self._metered, self._reader.figures)
        if isinstance(self._reader, _COUNTED) and told.unit == "outputs":
            told = replace(told, spent=float(self._found.outputs))
        if isinstance(self._reader, DrawnRanges):
            told = replace(told, spent=float(self._reader.figures.outputs))
        if self.clock is None:
            return told
        rechosen = getattr(self._reader, "rechosen", "")
        told = replace(told, cpu_seconds=self.clock.cpu / 1e9, parts=self._parts, rechosen=rechosen)
        if not self.clock.limits:
            return told
        per = max(1, self._reader.figures.arrivals) if told.unit == "seconds_per_tuple" else 1
        return replace(told, spent=self.clock.elapsed / 1e9 / per)

    @property
    def _parts(self) -> dict[str, float]:
        """What was spent on what, as shares of the exact cost."""
        figures: Any = self._reader.figures
        whole = figures.exact_cost or 1.0
        return {"insert": figures.spent_insert / whole, "hit": figures.spent_hit / whole}

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of a run under the wall clock; None for one that does not look at it.  Runs to the end."""
        self._finish()
        if self.clock is not None and self.clock.limits:
            return self.clock.cpu / 1e9
        return None if self._metered is None else self._metered.cpu_seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the answer is used.

        That the whole answer would cost less than the budget grants, with both costs, where it would; of a complete
        sample that does not carry an interval, that it is unknown how many outputs there are; of a whole answer with a
        fade factor, that it comes in no order of promise; of a budget of time, that it was over before anything began.
        """
        late = () if self._metered is None else self._metered.warnings
        return (*late, *self._cheaper(), *self._uncertain(), *self._unordered())

    def _unordered(self) -> tuple[str, ...]:
        plan = self.plan
        if not plan.ordered or plan.first is not None or plan.fade.factor >= 1.0 or plan.preference == "weighted":
            return ()
        return (
            f"order: fade factor {plan.fade.factor:g} needed a budget, whose work it orders; got none: "
            "these come as they are found; leave the fade factor out for the most promising first, or say BUDGET 10 %",
        )

    def _uncertain(self) -> tuple[str, ...]:
        plan = self.plan
        if not self._found.done or plan.is_exact or plan.preference != "weighted" or plan.method != "nile":
            return ()
        told = self.estimate
        if math.isfinite(told.high):
            return ()
        found = self._found.outputs
        return (
            f"estimate: needed a sample of several keys for an interval; got {found:,} outputs under a budget of "
            f"{plan.budget}, of which very few stand for most, or which miss many tuples, so how many outputs "
            f"there are at most is unknown{self._bounded()}; allow more budget",
        )

    def _bounded(self) -> str:
        """Where to find in sketches what a sample does not say."""
        told = self.bounds_at_once
        at_most = "`bounds` says it by" if told is None else f"it is at most {told.most:,.0f} by"
        return f" from them ({at_most} sketches of all tuples)"

    def _cheaper(self) -> tuple[str, ...]:
        plan, joined = self.plan, self._streams
        if plan.is_exact or plan.strategy or plan.first is not None or plan.method != "nile":
            return ()
        if plan.budget.fraction is None or not joined.has_ranges:
            return ()
        exact = math.fsum(joined.costs(plan.costs, ranges=True))
        names = [one.name for one in self.streams]
        return cheaper_as_ranges(names, plan, plan.fraction * self._reader.figures.exact_cost, exact)

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream: in = applied + late + shed + rejected.  Runs the query to its end.

        Tuples that a condition on their stream alone turns down are no part of the join and not in; `excluded`
        counts them.
        """
        self._finish()
        told = {}
        for name, stream, shed in zip(self.names, self.streams, self._reader.shed, strict=True):
            told[name] = stream.accounting + Accounting()
            told[name].shed_applied(shed)
            told[name].check()
        return told

    @property
    def excluded(self) -> dict[str, int]:
        """Tuples of each stream that a condition on it alone turns down."""
        return {name: stream.excluded for name, stream in zip(self.names, self.streams, strict=True)}

    @property
    def accounts(self) -> tuple[Accounting, ...]:
        """As `accounting`, in the order of the statement."""
        return tuple(self.accounting.values())

    @property
    def memory(self) -> Memory:
        """Bytes held by summaries, directories and tuple lists."""
        return self._reader.memory

    @property
    def memory_bytes(self) -> int:
        """All of `memory`."""
        return int(self.memory.total)

    @property
    def figures(self) -> Any:
        """Counts and costs of the run.  Runs the query to its end."""
        self._finish()
        return self._reader.figures
