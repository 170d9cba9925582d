"""Standing selections as a Python object: frozen, cheap, nothing read until they are run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from nile.answers.selection_answer import AGGREGATES, SelectionAnswer
from nile.base.durations import parse_duration
from nile.expressions.conditions import Condition
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import load_stream
from nile.operators.inputs.selecting import Selectable, columns_beside
from nile.operators.selection.plan import SelectionPlan
from nile.preferences.budget import Budget
from nile.preferences.clock import Bursts, Pace, retime
from nile.summaries.costs import cost_table
from nile.summaries.errors import ConfigError, CostWarning

__all__ = ["SelectionQuery"]

_OWN = ("method", "costs", "output")
_OPTIONS = (
    *_OWN, "structure", "confidence", "threshold", "buckets", "zone", "every", "sample", "waiting", "seed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SelectionQuery:
    """Named conditions over a registered stream, standing at once; `on` is the column that is summarised.

    Made by `Database.select`; each method returns a changed copy.
    """

    database: Home = field(repr=False)
    stream: str
    on: str
    predicates: tuple[tuple[str, Condition], ...]
    window: int | None = None
    preference: str = "desc"
    promise: str = "share"
    method: str = "nile"
    costs: str = "engine"
    output: str = "pairs"
    pace: Pace = field(default_factory=Pace)
    options: tuple[tuple[str, Any], ...] = ()

    def within(self, window: str | float | timedelta | None) -> SelectionQuery:
        """WINDOW: how long a selected tuple stays valid ("1 hour", seconds); None: a filter, nothing expires."""
        return replace(self, window=None if window is None else parse_duration(window, where="window"))

    def prefer(self, preference: str, *, by: str = "share") -> SelectionQuery:
        """WITH PREFERENCE desc | asc: regions by their promise; weighted: of every region the same share.

        by: `share`, the estimated share of satisfying tuples of a region, or `value`, value x frequency.
        """
        return replace(self, preference=preference, promise=by)

    def preferring_for(self, aggregate: str) -> SelectionQuery:
        """The preference of section 4.3: weighted for avg and median, desc by value x frequency for sum."""
        if aggregate not in AGGREGATES:
            raise ConfigError(f"aggregate: needed one of {', '.join(AGGREGATES)}; got {aggregate!r}; name one of these")
        return self.prefer("desc", by="value") if aggregate == "sum" else self.prefer("weighted")

    def replayed(
        self, replay: str = "exponential", *, mean: str | float | timedelta = "100 ms", bursts: Bursts | None = None
    ) -> SelectionQuery:
        """Play the input back in time: `exponential` gaps of `mean`, steady or in `bursts`, or the `data`'s own.

        The budget then comes with time, and what finds no work expires.  Exponential gaps replace the data's times,
        so the window is on them.  Raises ConfigError.
        """
        return replace(self, pace=Pace(replay, parse_duration(mean, where="mean"), bursts))

    def using(self, **options: Any) -> SelectionQuery:
        """method ("nile", "paper", "naive", "predicate-index"), costs ("engine", "memory"), output ("pairs", "ranges").

        Others are fields of SelectionPlan: zone, seed (of an exponential replay), waiting, and for the paper's method
        structure ("T1" to "T4"), confidence, threshold, buckets, every, sample.
        Raises ConfigError for anything else.
        """
        changed: dict[str, Any] = {}
        kept: dict[str, Any] = dict(self.options)
        for name, value in options.items():
            if name not in _OPTIONS:
                known = ", ".join(_OPTIONS)
                raise ConfigError(f"selection option: needed one of {known}; got {name!r}; check the spelling")
            (changed if name in _OWN else kept)[name] = value
        return replace(self, **changed, options=tuple(kept.items()))

    def plan(self, budget: Budget | float | None = None) -> SelectionPlan:
        """The checked plan that `run` would follow."""
        return SelectionPlan(
            window=self.window,
            budget=budget if budget is None or isinstance(budget, Budget) else Budget(budget),
            method=self.method,
            preference=self.preference,
            promise=self.promise,
            output=self.output,
            costs=cost_table(self.costs),
            pace=self.pace,
            **dict(self.options),
        )

    def run(self, budget: Budget | float | None = None) -> SelectionAnswer:
        """Read the stream and prepare the answer; tuples are found as they are asked for.

        budget: a Budget or a fraction of what `naive` needs to feed every tuple to every selection; None:
        everything.  Raises ConfigError, BudgetError, KeyTypeError, SourceError, TimestampOrderError.
        Warns (CostWarning), with both costs, when the budget buys the plain exact answer.
        """
        plan = self.plan(budget)
        answer = SelectionAnswer(self.load(), plan)
        if answer.cost_warning is not None:
            warnings.warn(answer.cost_warning, CostWarning, stacklevel=2)
        return answer

    def load(self) -> Selectable:
        """The stream read and every condition evaluated, for several runs: `SelectionAnswer(loaded, plan)`.

        Under an exponential replay its times are the replayed ones.
        """
        beside = columns_beside(self.on, self.predicates)
        loaded = load_stream(self.database.manager(self.stream, self.on, beside))
        if self.pace.replay == "exponential":
            seed = int(dict(self.options).get("seed", 0))
            loaded = replace(loaded, ts=retime(len(loaded), self.pace.mean, seed, self.pace.bursts))
        return Selectable(loaded, self.on, self.predicates)
