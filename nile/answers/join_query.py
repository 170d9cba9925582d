"""A join as a Python object: frozen, cheap, nothing read until it is run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from nile.answers.join_aggregate import JoinAggregateQuery, join_aggregates
from nile.answers.join_answer import JoinAnswer
from nile.base.durations import format_duration, parse_duration
from nile.exact.join.wjoin import TOLD
from nile.operators.common.guides import AUTO, choose_guide
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import Joinable, load_together, retimed
from nile.operators.join.chain_join import is_chain_join
from nile.preferences.budget import Budget
from nile.preferences.clock import Bursts, Pace
from nile.preferences.fade import Fade
from nile.summaries.costs import cost_table
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["JoinQuery"]

_SUMMARY_OPTIONS = (
    "granularity", "rate", "depth", "structure", "buckets", "rows", "columns", "confidence", "threshold",
    "max_length", "max_zones",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """Two registered streams, joined on equal keys inside a window.

    Made by `Database.join`; each method returns a changed copy.  Without a preference the answer is exact.
    """

    database: Home = field(repr=False)
    left: str
    right: str
    on: tuple[str, str]
    window: int | None = None
    preference: str | None = None
    fade: float = 1.0
    guide: str = AUTO
    method: str = "nile"
    output: str = "pairs"
    outlier_cap: int = 4
    costs: str = "engine"
    seed: int = 0
    forgetting: bool = False
    summary: tuple[tuple[str, Any], ...] = ()
    pace: Pace = field(default_factory=Pace)
    speed: float = 1.0

    def within(self, window: str | float | timedelta | None) -> JoinQuery:
        """WINDOW: tuples at most this far apart in time, ends included ("1 hour", seconds); None: no limit."""
        return replace(self, window=None if window is None else parse_duration(window, where="window"))

    def prefer(self, preference: str, *, fade: float = 1.0, outlier_cap: int = 4) -> JoinQuery:
        """WITH PREFERENCE desc | weighted | asc, FADE FACTOR fade; outlier_cap: the most tuples of a rare key."""
        return replace(self, preference=preference, fade=Fade(fade).factor, outlier_cap=outlier_cap)

    def guided_by(self, guide: str) -> JoinQuery:
        """`countsketch`: the grid of count sketches; `directory`: exact counts per key; `auto`: the cheaper one."""
        return replace(self, guide=guide)

    def returning(self, output: str) -> JoinQuery:
        """`pairs`, or `ranges`: one record for all the pairs of a tuple in one region, expanded when asked."""
        return replace(self, output=output)

    def replayed(
        self,
        replay: str = "exponential",
        *,
        mean: str | float | timedelta = "100 ms",
        bursts: Bursts | None = None,
        speed: float = 1.0,
    ) -> JoinQuery:
        """Play the input back in time: `exponential` gaps of `mean`, steady or in `bursts`, or the `data`'s own.

        The budget then comes with time, and what finds no work expires.  Exponential gaps replace the data's
        times, so the window is on them.  speed: how many times faster a run under `Budget(share=...)` plays it
        than the wall clock goes; other budgets do not look at the clock.  Raises ConfigError.
        """
        if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0.0 < speed < math.inf:
            raise ConfigError(f"speed: needed a number above 0; got {speed!r}; 60 plays an hour in a minute")
        return replace(self, pace=Pace(replay, parse_duration(mean, where="mean"), bursts), speed=float(speed))

    def using(self, **options: Any) -> JoinQuery:
        """method, costs ("engine" or "memory"), seed, forgetting, or a SummarySpec field such as granularity="15 min".

        Raises ConfigError for anything else.
        """
        changed: dict[str, Any] = {}
        summary: dict[str, Any] = dict(self.summary)
        for name, value in options.items():
            if name in ("method", "costs", "seed", "forgetting"):
                changed[name] = value
            elif name in _SUMMARY_OPTIONS:
                durations = name in ("granularity", "max_length")
                summary[name] = parse_duration(value, where=name) if durations else value
            else:
                known = ", ".join(("method", "costs", "seed", "forgetting", *_SUMMARY_OPTIONS))
                raise ConfigError(f"query option: needed one of {known}; got {name!r}; check the spelling")
        return replace(self, **changed, summary=tuple(summary.items()))

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """(stream, the name it goes by) of each place in the statement."""
        if self.left == self.right:
            return (self.left, "left"), (self.right, "right")
        return (self.left, self.left), (self.right, self.right)

    def aggregate(self, aggregates: Mapping[str, str], *, by: str | Sequence[str] | None = None) -> JoinAggregateQuery:
        """Aggregates over the pairs: {"value": "sum(l.price * r.quantity)"}, columns qualified by their stream.

        A stream joined with itself is `left` and `right`.  by: columns or expressions to group by.
        Raises ConfigError, ExpressionError, UnknownColumn, UnknownStream, KeyTypeError.
        """
        return join_aggregates(self, aggregates, by)

    def run(self, budget: Budget | float | None = None, *, carry: Sequence[tuple[str, ...]] = ((), ())) -> JoinAnswer:
        """Read the streams and prepare the answer; rows are found as they are asked for.

        budget: a Budget or a fraction; None, or a query without a preference: the whole answer.  Under a share
        of a core outputs come while the input is played back, which takes its time over `speed`.  carry: further
        columns of the left and right stream that the answer keeps for its aggregates.
        Raises UnknownColumn, KeyTypeError, SourceError, TimestampOrderError, ConfigError, BudgetError.
        """
        plan = self.plan(budget)
        loaded = load_together(self.database.manager, (self.left, self.right), self.on, carry)
        left, right = retimed(loaded, self.pace, self.seed)
        return JoinAnswer(Joinable(left, right, self.window), plan, key=self.on[0], speed=self.speed)

    def plan(self, budget: Budget | float | None = None) -> JoinPlan:
        """The checked plan that `run` would follow."""
        if budget is None:
            budget = Budget(1.0)
        elif not isinstance(budget, Budget):
            budget = Budget(budget)
        if self.preference is None:
            if budget.fraction is None:
                raise BudgetError(
                    f"budget: needed a preference with a budget of {budget}; got none, which asks for the exact "
                    "answer; say prefer('desc'), or leave the budget out"
                )
            budget = Budget(max(1.0, budget.fraction))
        given: Mapping[str, Any] = dict(self.summary)
        preference = self.preference or "desc"
        ranking = self.method == "nile" and preference != "asc"
        spec = default_spec(self.window, ranking=ranking, forgetting=self.forgetting, seed=self.seed, **given)
        costs = cost_table(self.costs)
        return JoinPlan(
            window=self.window,
            budget=budget,
            method=self.method,
            preference=preference,
            preferred=self.preference is not None,
            guide=choose_guide(spec, costs, preference).guide if self.guide == AUTO else self.guide,
            fade=Fade(self.fade),
            output=self.output,
            costs=costs,
            pace=self.pace,
            outlier_cap=self.outlier_cap,
            spec=spec,
            seed=self.seed,
        )

    def explain(self, budget: Budget | float | None = None) -> str:
        """The plan in words, without running it."""
        plan = self.plan(budget)
        window = "the whole stream" if self.window is None else format_duration(self.window)
        how = (
            f"exactly: {TOLD['chain'] if is_chain_join(plan) else 'every tuple probes'}"
            if plan.is_exact
            else f"by {plan.method}, {plan.preference} first, guided by {plan.guide}"
        )
        lines = [
            f"join {self.left}.{self.on[0]} = {self.right}.{self.on[1]} within {window}",
            f"  {how}; budget {plan.budget} ({plan.costs.name} table); output {plan.output}",
        ]
        if plan.pace.is_replay:
            lines.append(f"  {plan.pace}" + (f", {self.speed:g} times as fast" if plan.budget.share else ""))
        if not plan.budget.is_reproducible:
            lines.append("  by the wall clock: another run finds other pairs")
        lines += self._guiding(plan)
        return "\n".join(lines)

    def _guiding(self, plan: JoinPlan) -> list[str]:
        """What EXPLAIN says of the guide."""
        spec = plan.spec
        lines: list[str] = []
        if plan.method != "nile" or plan.is_exact:
            return lines
        if self.guide == AUTO:
            lines.append(f"  {choose_guide(spec, plan.costs, plan.preference)}")
        if plan.guide == "countsketch":
            lines.append(
                f"  summary {spec.structure}: {spec.depth} granularities from {format_duration(spec.granularity)}, "
                f"rate {spec.rate}, {spec.value_buckets} value buckets, sketch {spec.rows} x {spec.width}, "
                f"zones by {spec.confidence}"
            )
        return lines
