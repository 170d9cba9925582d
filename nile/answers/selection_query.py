"""Standing selections as a Python object: immutable and cheap; nothing is read until they run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from nile.answers.bound_selection import BoundSelection
from nile.answers.selection_answer import AGGREGATES, SelectionAnswer
from nile.base.budgets import GivenBudget
from nile.base.durations import parse_duration
from nile.expressions.conditions import parse_value
from nile.operators.inputs.home import Home
from nile.operators.inputs.selecting import Selectable
from nile.operators.selection.plan import PROMISES, SelectionPlan
from nile.preferences.clock import Bursts, Pace, checked_speed
from nile.preferences.preference import preference_number
from nile.summaries.errors import ConfigError

__all__ = ["SelectionQuery"]


@dataclass(frozen=True, slots=True)
class SelectionQuery:
    """Named conditions over a registered stream, standing at once.

    Made by `Database.select`; each method returns a modified copy.  bound: the bound selections, as SQL gives them.
    """

    database: Home = field(repr=False)
    bound: BoundSelection

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.bound}>"

    def _with(self, **changes: Any) -> Self:
        return replace(self, bound=replace(self.bound, **changes))

    def within(self, window: str | float | timedelta | None) -> Self:
        """WINDOW: how long a selected tuple stays valid ("1 hour", seconds); None: a filter, nothing expires."""
        return self._with(window=None if window is None else parse_duration(window, where="window", least=0))

    def prefer(self, preference: str, *, by: str = "share") -> Self:
        """WITH PREFERENCE desc | asc: regions by their promise; weighted: of every region the same share.

        by: `share`, the estimated share of satisfying tuples of a region; `value`, value x frequency; or an expression
        over the stream's columns, such as "price * quantity": frequency times what tuples of the value are worth in the
        mean.  Raises ConfigError, ExpressionError, UnknownColumn.
        """
        preference_number(preference, "selection preference")
        worth = None
        if by not in PROMISES:
            worth = parse_value(by, where="prefer, by")
            worth.kind(self.database.schema(self.bound.stream), where="prefer, by")
        return self._with(preference=preference, promise=by if worth is None else "value", worth=worth)

    def preferring_for(self, aggregate: str) -> Self:
        """The preference of section 4.3: weighted for avg and median, desc by value x frequency for sum."""
        if aggregate not in AGGREGATES:
            raise ConfigError(f"aggregate: needed one of {', '.join(AGGREGATES)}; got {aggregate!r}; name one of these")
        return self.prefer("desc", by="value") if aggregate == "sum" else self.prefer("weighted")

    def replayed(
        self,
        replay: str = "exponential",
        *,
        mean: str | float | timedelta = "100 ms",
        bursts: Bursts | None = None,
        speed: float = 1.0,
    ) -> Self:
        """Play the input back in time: `exponential` gaps of `mean`, steady or in `bursts`, or the `data`'s own.

        The budget is then granted over time, and credit that finds no work expires.  Exponential gaps replace the
        data's times, and the window applies to them.  speed: how many times faster than the wall clock a run under
        `Budget(share=...)` plays the input.  Raises ConfigError.
        """
        return self._with(pace=Pace(replay, parse_duration(mean, where="mean"), bursts), speed=checked_speed(speed))

    def using(self, **options: Any) -> Self:
        """method ("nile", "paper", "naive", "predicate-index"), output ("pairs", "ranges"), costs ("machine", "engine",
        "memory": the default is "machine", nanoseconds of these operators).

        Others are fields of SelectionPlan: zone, seed (of an exponential replay), waiting, and for the paper's method
        structure ("T1" to "T4"), confidence, threshold, buckets, every, sample.
        Raises ConfigError for anything else.
        """
        return replace(self, bound=self.bound.using(**options))

    def plan(self, budget: GivenBudget | None = None) -> SelectionPlan:
        """The checked plan that `run` would follow."""
        return self.bound.plan(budget)

    def explain(self, budget: GivenBudget | None = None) -> str:
        """The plan in words, without running it."""
        return self.bound.explain(self.database, budget)

    def run(self, budget: GivenBudget | None = None) -> SelectionAnswer:
        """Read the stream and prepare the answer; tuples are found on demand.

        budget: a Budget or a fraction of what `naive` needs to feed every tuple to every selection; None:
        everything.  Raises ConfigError, BudgetError, KeyTypeError, SourceError, TimestampOrderError.
        Warns (CostWarning), with both costs, when the budget buys the plain exact answer.
        """
        return self.bound.answer(self.database, budget)

    def load(self) -> Selectable:
        """The stream read and every condition evaluated, for several runs: `SelectionAnswer(loaded, plan)`.

        Under an exponential replay its times are the replayed ones.
        """
        return self.bound.load(self.database)
