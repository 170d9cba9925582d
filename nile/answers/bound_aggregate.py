"""Bound aggregates over a stream: what SQL, the builder and `Database.aggregate` all make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nile.aggregates.asked import Aggregate
from nile.answers.aggregate_answer import AggregateAnswer, WholeAggregates
from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import format_duration
from nile.expressions.binding import bind_value
from nile.expressions.conditions import Condition, Value
from nile.expressions.tree import Lookup, Node, Rows, parts_of
from nile.operators.aggregate.input import Drawn, accumulate_cost, least_summary
from nile.operators.aggregate.plan import AggregatePlan
from nile.operators.aggregate.scope import grid_column
from nile.operators.aggregate.sets import ROWS
from nile.operators.drive.clock import Clock
from nile.operators.inputs.aggregating import Asked, prepare
from nile.operators.inputs.drawing import Drawing, Paid
from nile.operators.inputs.home import Home
from nile.operators.inputs.loading import Columns, are_times_kept, load_columns
from nile.operators.inputs.shared_grid import SharedSummary
from nile.operators.strategies.least import refuse_below_a_pass
from nile.operators.strategies.machine_prices import machine_prices
from nile.preferences.error_target import ErrorTarget
from nile.streams.accounting import Accounting
from nile.summaries.costs import MACHINE, cost_table, costs_by_tuple, default_costs
from nile.summaries.errors import BudgetError, ConfigError
from nile.summaries.heavy import pa

__all__ = ["BoundAggregate"]

_MARKED = 0.3
"""Of a look: asking of an ordinal whether it was drawn."""
_OPTIONS = ("method", "borders", "costs", "seed", "buckets", "zone")


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """Aggregates over a registered stream, for one query (without a name) or for hundreds of standing ones.

    queries: (name, conditions, all of which must hold); interval: moments in ns, ends included; options: fields of
    AggregatePlan that were given.
    """

    stream: str
    aggregates: tuple[Aggregate, ...]
    queries: tuple[tuple[str, tuple[Condition, ...]], ...]
    by: tuple[Value, ...] = ()
    interval: tuple[int | None, int | None] = (None, None)
    window: int | None = None
    costs: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """As one would write it."""
        made = ", ".join(f"{each.text} AS {each.name}" for each in self.aggregates)
        by = ", ".join(value.text for value in self.by)
        told = f"SELECT {made} FROM {self.stream}"
        if self._standing:
            told += f" for {len(self.queries)} standing queries"
        elif self.queries[0][1]:
            told += f" WHERE {' AND '.join(condition.text for condition in self.queries[0][1])}"
        window = "" if self.window is None else f" WINDOW '{format_duration(self.window)}'"
        return told + (f" GROUP BY {by}" if by else "") + window

    def using(self, **options: Any) -> BoundAggregate:
        """With costs or fields of AggregatePlan.  Raises ConfigError for anything else."""
        for name in options:
            if name not in _OPTIONS:
                raise ConfigError(
                    f"aggregate option: needed one of {', '.join(_OPTIONS)}; got {name!r}; check the spelling"
                )
        kept = dict(self.options) | options
        return replace(self, costs=kept.pop("costs", self.costs), options=tuple(kept.items()))

    def plan(
        self,
        budget: GivenBudget | None = None,
        *,
        error: float | None = None,
        confidence: float = 0.95,
        otherwise: str = "flag",
    ) -> AggregatePlan:
        """What the operator is given, checked and complete.  Raises BudgetError, ConfigError."""
        granted = None if budget is None else read_budget(budget)
        limit = granted if granted is not None and granted.unit in ("seconds", "deadline") else None
        if granted is not None and granted.fraction is None and limit is None:
            raise BudgetError(
                f"aggregates: needed a budget as a fraction of the exact work, seconds or a deadline; got one of "
                f"{granted}: whatever is read, there is one output per group; write Budget(fraction=0.1)"
            )
        return AggregatePlan(
            budget=None if granted is None else granted.fraction,
            limit=limit,
            target=None if error is None else ErrorTarget(error, confidence, otherwise),
            confidence=confidence,
            costs=cost_table(self.costs or costs_by_tuple()),
            **dict(self.options),
        )

    @property
    def _standing(self) -> bool:
        return len(self.queries) > 1 or self.queries[0][0] != ""

    def shared(self, home: Home) -> SharedSummary | None:
        """The summary of the column that most queries restrict; None where there is none."""
        on = grid_column(self.queries, home.time_column(self.stream))
        return None if on is None else home.shared(self.stream, on)

    def _samples(self, plan: AggregatePlan) -> bool:
        """Whether a plan pays for nothing but a sample, as no grid or sketch of all tuples is cheaper."""
        if plan.method != "auto" or plan.target is not None or plan.budget is None or self._standing:
            return False
        take = accumulate_cost(self.aggregates, plan.costs, grouped=bool(self.by))
        return plan.budget * (plan.costs.scan + take) < least_summary(1, plan.costs, ROWS)

    def _draws(self, plan: AggregatePlan) -> bool:
        """Whether a plan is kept by this machine's prices: a sample is drawn first, or everything is looked at."""
        named = (self.costs or default_costs()) == MACHINE.name
        open_ = named and plan.method == "auto" and plan.target is None and plan.limit is None
        return open_ and plan.budget is not None and not self._standing

    def _prices(self, reads: str, schema: pa.Schema, kept: bool) -> Paid:
        """What it costs here to look at tuples of the stream.

        reads: the class of its source; schema: what is read; kept: whether times are that were read from a file.
        """
        prices = machine_prices()
        read_texts = sum("string" in str(field.type) for field in schema)
        functions = [aggregate.function for aggregate in self.aggregates]
        names = [name for condition in self.queries[0][1] for name in condition.columns]
        tested, texts = len(names), sum("string" in str(schema.field(name).type) for name in names)

        def kinds(values: Sequence[Value | None]) -> list[str]:
            return ["" if each is None else each.kind(schema, where="aggregates") for each in values]

        of, groups = kinds([aggregate.value for aggregate in self.aggregates]), kinds(self.by)
        asked = list(_looked_up([condition.tree for condition in self.queries[0][1]]))
        values = (*self.by, *(aggregate.value for aggregate in self.aggregates))
        taken = [each for each in _looked_up([each.tree for each in values if each is not None]) if each not in asked]
        find, after = prices.finding(_kinds_of(asked, schema)), prices.finding(_kinds_of(taken, schema))
        return Paid(
            start=prices.start,
            read=prices.reading_columns(reads, len(schema) - read_texts, read_texts, kept=kept),
            draw=lambda size: prices.picking(size, tested) + find,
            mark=_MARKED * prices.look,
            find=prices.sampling(functions, groups) + after,
            group=prices.grouping(functions),
            begin=prices.begin,
            scan=prices.testing(tested, texts) + find,
            take=lambda count: prices.taking(functions, of, groups, count, len(schema) if tested else 0) + after,
        )

    def load(
        self,
        home: Home,
        *,
        exact: bool = False,
        timed: bool = False,
        sampled: bool = False,
    ) -> tuple[Asked, Accounting]:
        """The stream read and everything evaluated.  exact: nothing but the exact answer follows; timed: nothing but a
        sample within time; sampled: nothing but a sample at first."""
        columns, *_ = self._read(home)
        shared = None if exact or timed else self.shared(home)
        prepared = partial(self._prepared, home, columns, shared)
        if timed or not sampled or shared is not None:
            return prepared(coded=not timed), columns.accounting
        asked = prepared(coded=False)
        asked.coded = prepared
        return asked, columns.accounting

    def _read(self, home: Home) -> tuple[Columns, str, bool]:
        """(the columns that are asked for, the class of what they were read from, whether their times are kept)."""
        names = [name for aggregate in self.aggregates for name in aggregate.columns]
        names += [name for value in self.by for name in value.columns]
        names += [name for _, conditions in self.queries for condition in conditions for name in condition.columns]
        wanted = tuple(dict.fromkeys(names))
        manager = home.manager(self.stream, home.time_column(self.stream), wanted)
        return load_columns(manager, wanted), manager.reads, are_times_kept(manager)

    @property
    def _where(self) -> str:
        return f"aggregates over stream '{self.stream}'"

    def _prepared(
        self, home: Home, columns: Columns, shared: SharedSummary | None, coded: bool = True, whole: Drawn | None = None
    ) -> Asked:
        return prepare(
            columns, self.aggregates, self.queries, self.by, time=home.time_column(self.stream), between=self.interval,
            window=self.window, where=self._where, shared=shared, coded=coded, drawn=whole,
        )  # fmt: skip

    def _drawn(self, home: Home, plan: AggregatePlan, clock: Clock) -> AggregateAnswer:
        """What a fraction pays for: the exact answer, or a sample."""
        columns, reads, kept = self._read(home)
        assert plan.budget is not None
        drawing = Drawing(
            columns, self.aggregates, self.queries, self.by, self.interval, self.window,
            self._prices(reads, columns.batch.schema, kept), plan.budget, plan.seed, home.time_column(self.stream),
            self._where,
        )  # fmt: skip
        prepared = partial(self._prepared, home, columns, None)
        asked = drawing.asked()
        if asked is None:
            rows = Drawn(None, len(columns), len(columns))
            if (whole := drawing.whole()) is not None:
                every = partial(prepared, coded=False, whole=rows)
                given = self.stream, self.aggregates, plan, columns.accounting, clock
                return WholeAggregates(whole, every, prepared, *given)
            asked = prepared(coded=False, whole=rows)
        asked.coded = prepared
        return AggregateAnswer(asked, plan, columns.accounting, stream=self.stream, clock=clock)

    def answer(self, home: Home, plan: AggregatePlan) -> AggregateAnswer:
        """Read the stream and answer by a plan of `plan`.

        Raises ErrorTargetMissed, KeyTypeError, SourceError, TimestampOrderError.  Warns (CostWarning), with both
        costs, when the answer cost more than the plain exact way.
        """
        clock = Clock(plan.limit)
        refuse_below_a_pass(plan.limit, home, [(self.stream, home.time_column(self.stream))], "aggregate")
        if self._draws(plan) and self.shared(home) is None:
            drawn = self._drawn(home, plan, clock)
            drawn.room = home.room
            return drawn
        asked, accounting = self.load(
            home,
            exact=plan.is_exact,
            timed=plan.limit is not None,
            sampled=self._samples(plan),
        )
        answer = AggregateAnswer(asked, plan, accounting, stream=self.stream, standing=self._standing, clock=clock)
        answer.room = home.room
        shared = self.shared(home) if answer.figures.ruled_out else None
        if shared is not None:
            shared.served += 1
        return answer

    def explain(self, home: Home, plan: AggregatePlan) -> str:
        """A plan of `plan` in words, without running it."""
        told = ", ".join(f"{aggregate.name} = {aggregate.text}" for aggregate in self.aggregates)
        how = "exactly" if plan.is_exact else f"budget {plan.budget:g} of the naive cost" if plan.budget else "no limit"
        how = how if plan.limit is None else f"a sample as large as {plan.limit} allow"
        lines = [
            f"aggregate {self.stream}: {told}",
            f"  {len(self.queries)} standing queries" if self._standing else "  one query",
            f"  {how} ({plan.costs.name} table); method {plan.method}, borders {plan.borders}",
        ]
        if plan.target is not None:
            lines.append(
                f"  error {plan.target.error:g} at confidence {plan.target.confidence:g}, otherwise "
                f"{plan.target.otherwise}"
            )
        shared = None if plan.is_exact or plan.method not in ("auto", "sample") else self.shared(home)
        if shared is not None:
            lines.append(f"  a sample leaves out the zones in which summary {shared.name} has none of the values")
        if self.by:
            lines.append(f"  by {', '.join(value.text for value in self.by)}")
        if self.window is not None:
            lines.append(f"  over the latest {format_duration(self.window)}")
        return "\n".join(lines)


def _looked_up(trees: Sequence[Node]) -> dict[tuple[Rows, tuple[Node, ...]], None]:
    """The stored rows that are looked up, and by what, each once."""
    found = (part for tree in trees for part in parts_of(tree))
    return {(part.rows, part.keys): None for part in found if isinstance(part, Lookup)}


def _kinds_of(looked_up: Sequence[tuple[Rows, tuple[Node, ...]]], schema: pa.Schema) -> list[str]:
    """What the keys are by which they are looked up."""
    return [bind_value(key, schema, where="look-ups").kind for _, keys in looked_up for key in keys]
