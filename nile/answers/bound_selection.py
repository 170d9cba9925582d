"""Bound selections of a stream: what SQL, the builder and `Database.select` all make."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

from nile.answers.selection_answer import SelectionAnswer
from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import format_duration
from nile.expressions.conditions import Condition, Value
from nile.operators.drive.clock import Clock
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import load_stream, retimed
from nile.operators.inputs.selecting import Selectable, columns_beside
from nile.operators.selection.plan import SelectionPlan
from nile.operators.strategies.least import refuse_below_a_pass, too_little
from nile.operators.strategies.selected import is_at_once
from nile.preferences.clock import Pace
from nile.summaries.costs import selection_costs
from nile.summaries.errors import ConfigError, CostWarning

__all__ = ["BoundSelection"]

_OWN = ("method", "costs", "output")
_OPTIONS = (
    *_OWN, "structure", "confidence", "threshold", "buckets", "zone", "every", "sample", "waiting", "seed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoundSelection:
    """Named conditions over a registered stream, standing at once.

    on: the column that is summarised; promise: what the preference weighs, `share` or `value`; worth: what a tuple
    counts for under `value`, None: |on|; options: fields of SelectionPlan that were given.
    """

    stream: str
    on: str
    predicates: tuple[tuple[str, Condition], ...]
    window: int | None = None
    preference: str = "desc"
    promise: str = "share"
    method: str = "nile"
    costs: str = ""
    output: str = "pairs"
    pace: Pace = field(default_factory=Pace)
    speed: float = 1.0
    options: tuple[tuple[str, Any], ...] = ()
    worth: Value | None = None

    def __str__(self) -> str:
        """As one would write it."""
        many = len(self.predicates) > 1
        where = f"{len(self.predicates)} standing conditions" if many else self.predicates[0][1].text
        window = "" if self.window is None else f" WINDOW '{format_duration(self.window)}'"
        return f"SELECT * FROM {self.stream} WHERE {where}{window} WITH PREFERENCE {self.preference}"

    def using(self, **options: Any) -> BoundSelection:
        """With method, costs, output or fields of SelectionPlan.  Raises ConfigError for anything else."""
        for name in options:
            if name not in _OPTIONS:
                known = ", ".join(_OPTIONS)
                raise ConfigError(f"selection option: needed one of {known}; got {name!r}; check the spelling")
        own = {name: value for name, value in options.items() if name in _OWN}
        kept = dict(self.options) | {name: value for name, value in options.items() if name not in _OWN}
        return replace(self, **own, options=tuple(kept.items()))

    def plan(self, budget: GivenBudget | None = None) -> SelectionPlan:
        """What the operator is given, checked and complete.  Raises ConfigError, BudgetError."""
        return SelectionPlan(
            window=self.window,
            budget=None if budget is None else read_budget(budget),
            method=self.method,
            preference=self.preference,
            promise=self.promise,
            output=self.output,
            costs=selection_costs(self.costs),
            pace=self.pace,
            **dict(self.options),
        )

    def explain(self, home: Home, budget: GivenBudget | None = None) -> str:
        """The plan in words, without running it."""
        plan = self.plan(budget)
        asks = plan.method == "nile" and not plan.is_exact and not is_at_once(plan)
        shared = home.shared(self.stream, self.on) if asks else None
        asked = f"{len(self.predicates)} standing selections" if len(self.predicates) > 1 else "standing selection"
        valid = "" if self.window is None else f", each tuple valid for {format_duration(self.window)}"
        return (
            f"{asked} of {self.stream} on {self.on}{valid}: by {plan.method}, {plan.preference} first, regions by "
            f"{plan.promise if self.worth is None else f'count times {self.worth.text}'}"
            f"{', all conditions answered before any is given' if is_at_once(plan) else ''}\n"
            f"  budget {plan.budget or 'no limit'} ({plan.costs.name} table); output {plan.output}"
            + (f"\n  passes over the zones in which summary {shared.name} has none of the values" if shared else "")
        )

    def load(self, home: Home, carry: tuple[str, ...] = (), *, at_once: bool = False) -> Selectable:
        """The stream read, on the times of the pace, and every condition evaluated.  carry: further columns to keep;
        at_once: no summary is asked."""
        worth = () if self.worth is None else self.worth.columns
        beside = tuple(dict.fromkeys((*carry, *columns_beside(self.on, self.predicates), *worth)))
        loaded = load_stream(home.manager(self.stream, self.on, tuple(name for name in beside if name != self.on)))
        shared = home.shared(self.stream, self.on) if self.method == "nile" and not at_once else None
        summary = None if shared is None else shared.over(loaded.ts, loaded.key)
        (loaded,) = retimed((loaded,), self.pace, int(dict(self.options).get("seed", 0)))
        return Selectable(loaded, self.on, self.predicates, summary, self.worth)

    def answer(self, home: Home, budget: GivenBudget | None = None, carry: tuple[str, ...] = ()) -> SelectionAnswer:
        """Read the stream and prepare the answer; tuples are found as they are asked for.

        Raises ConfigError, BudgetError, KeyTypeError, SourceError, TimestampOrderError.  Warns (CostWarning), with
        both costs, when the budget buys the plain exact answer.
        """
        plan = self.plan(budget)
        clock = Clock(plan.budget)
        refuse_below_a_pass(plan.budget, home, [(self.stream, self.on)], "selection")
        selectable = self.load(home, carry, at_once=is_at_once(plan))
        tuples = len(selectable.loaded)
        if is_at_once(plan) and plan.budget is not None and clock.elapsed >= plan.budget.nanoseconds(tuples):
            raise too_little(clock.elapsed - clock.loading, tuples, plan.budget, loading=clock.loading)
        answer = SelectionAnswer(selectable, plan, speed=self.speed, clock=clock)
        answer.room = home.room
        clock.pause()
        shared = home.shared(self.stream, self.on) if answer.ruled_out else None
        if shared is not None:
            shared.served += 1
        if answer.cost_warning is not None:
            warnings.warn(answer.cost_warning, CostWarning, stacklevel=3)
        return answer
