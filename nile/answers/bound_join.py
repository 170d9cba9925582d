"""A join as it is bound: what SQL, the builder and `Database.join` make alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nile.aggregates.asked import Aggregate
from nile.answers.join_aggregate import JoinAggregateAnswer, columns_of_aggregates
from nile.answers.join_answer import JoinAnswer
from nile.answers.multiway_answer import MultiwayAnswer
from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import format_duration, parse_duration
from nile.exact.join.wjoin import TOLD
from nile.expressions.conditions import Condition, Value
from nile.operators.common.guides import AUTO, choose_guide
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import Joinable, Loaded, load_together, retimed
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.inputs.pair_conditions import PairCondition
from nile.operators.inputs.shared import SharedSummary
from nile.operators.join.chain_join import is_chain_join
from nile.operators.multiway.multiway import METHODS
from nile.operators.strategies.ranked import can_rank
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.summaries.costs import cost_table
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["BoundJoin", "BoundJoinAggregate", "Place"]

_OWN = ("method", "strategy", "costs", "seed", "forgetting")
_SUMMARY = (
    "granularity", "rate", "depth", "structure", "buckets", "rows", "columns", "confidence", "threshold",
    "max_length", "max_zones",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A stream in a join.  name: what the question calls it; key: its column joined on; where: selects its tuples."""

    stream: str
    name: str
    key: str
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class BoundJoin:
    """Registered streams, joined on equal keys, every two tuples inside one window, and a condition over several.

    Without a preference the answer is exact.  summary: options of SummarySpec that were given.  first: only so many
    outputs, the most promising ones first.
    """

    places: tuple[Place, ...]
    condition: PairCondition | None = None
    window: int | None = None
    preference: str | None = None
    fade: float = 1.0
    guide: str = AUTO
    method: str = "nile"
    strategy: str = ""
    output: str = "pairs"
    outlier_cap: int = 4
    costs: str = "engine"
    seed: int = 0
    forgetting: bool = False
    summary: tuple[tuple[str, Any], ...] = ()
    pace: Pace = field(default_factory=Pace)
    speed: float = 1.0
    first: int | None = None

    def __str__(self) -> str:
        """As one would write it."""
        from_ = ", ".join(
            place.stream if place.stream == place.name else f"{place.stream} AS {place.name}" for place in self.places
        )
        first, *others = (f"{place.name}.{place.key}" for place in self.places)
        where = [f"{first} = {other}" for other in others]
        where += [place.where.text for place in self.places if place.where is not None]
        where += [] if self.condition is None else [self.condition.text]
        told = f"SELECT * FROM {from_} WHERE {' AND '.join(where)}"
        told += "" if self.window is None else f" WINDOW '{format_duration(self.window)}'"
        told += "" if self.preference is None else f" WITH PREFERENCE {self.preference}"
        return told + (f" FADE FACTOR {self.fade:g}" if self.preference is not None and self.fade != 1.0 else "")

    @property
    def names(self) -> tuple[str, ...]:
        """What the question calls its streams."""
        return tuple(place.name for place in self.places)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that are read."""
        return tuple(place.stream for place in self.places)

    @property
    def keys(self) -> tuple[str, ...]:
        """The column of each that is joined on."""
        return tuple(place.key for place in self.places)

    @property
    def is_pair(self) -> bool:
        """Whether it is one of two streams without a condition over both, which has an operator of its own."""
        return len(self.places) == 2 and self.condition is None

    def using(self, **options: Any) -> BoundJoin:
        """With method, strategy, costs, seed, forgetting, or a SummarySpec field.  Raises ConfigError."""
        own = {name: value for name, value in options.items() if name in _OWN}
        summary = dict(self.summary)
        for name, value in options.items():
            if name in _SUMMARY:
                summary[name] = parse_duration(value, where=name) if name in ("granularity", "max_length") else value
            elif name not in _OWN:
                known = ", ".join((*_OWN, *_SUMMARY))
                raise ConfigError(f"query option: needed one of {known}; got {name!r}; check the spelling")
        return replace(self, **own, summary=tuple(summary.items()))

    def plan(self, budget: GivenBudget | None = None) -> JoinPlan:
        """What the operator is given, checked and complete.  Raises ConfigError, BudgetError."""
        budget = read_budget(1.0 if budget is None else budget)
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
        plan = JoinPlan(
            window=self.window,
            budget=budget,
            method=self.method,
            strategy=self.strategy,
            preference=preference,
            preferred=self.preference is not None,
            first=self._first_of(budget),
            guide=choose_guide(spec, costs, preference).guide if self.guide == AUTO else self.guide,
            fade=Fade(self.fade),
            output=self.output,
            costs=costs,
            pace=self.pace,
            outlier_cap=self.outlier_cap,
            spec=spec,
            seed=self.seed,
        )
        if not self.is_pair:
            self._check(plan)
        return plan

    def _check(self, plan: JoinPlan) -> None:
        """What the operator of several streams, or of a condition over them, cannot do."""
        if plan.strategy not in ("", "promise"):
            raise ConfigError(
                f"strategy: needed two streams without a condition on the pair; got {len(self.places)} streams"
                f"{' under one' if self.condition is not None else ''}; leave the strategy out"
            )
        if plan.method not in METHODS:
            raise ConfigError(
                f"method: needed one of {', '.join(METHODS)} for several streams or a condition on the pair; "
                f"got {plan.method!r}; name one of these, or join two streams without a condition"
            )
        if plan.preference == "asc" and plan.outlier_cap < len(self.places):
            raise ConfigError(
                f"outlier_cap: needed {len(self.places)} or more, as many as a combination has tuples; "
                f"got {plan.outlier_cap}; say prefer('asc', outlier_cap={2 * len(self.places)})"
            )
        if plan.output == "ranges" and self.condition is not None:
            raise ConfigError(
                "output: needed 'pairs' with a condition over several streams, which leaves no whole ranges; "
                "got 'ranges'; ask for pairs, or take such conditions out"
            )

    def load(self, home: Home, carry: Sequence[tuple[str, ...]] = ()) -> tuple[Loaded, ...]:
        """The streams, each read once, on the times of the pace.  carry: for each further columns to keep."""
        return retimed(self._read(home, carry), self.pace, self.seed)

    def _read(self, home: Home, carry: Sequence[tuple[str, ...]] = ()) -> tuple[Loaded, ...]:
        asked = [
            (*(() if self.condition is None else self.condition.columns(k)), *(carry[k] if carry else ()))
            for k in range(len(self.places))
        ]
        where = [place.where for place in self.places]
        return load_together(home.manager, self.streams, self.keys, where, asked)

    def shared(self, home: Home, plan: JoinPlan) -> tuple[SharedSummary | None, SharedSummary | None]:
        """The summaries that tell which tuples of the other stream have no partner: of two streams read in full."""
        ways = plan.strategy in ("", "promise") and plan.method == "nile" and not plan.is_exact and plan.first is None
        if not (self.is_pair and ways) or len(set(self.streams)) == 1:
            return None, None
        left, right = (
            None if place.where is not None else home.shared(place.stream, place.key) for place in self.places
        )
        return left, right

    def answer(
        self, home: Home, budget: GivenBudget | None = None, carry: Sequence[tuple[str, ...]] = ()
    ) -> JoinAnswer | MultiwayAnswer:
        """Read the streams and prepare the answer; rows are found as they are asked for.

        Raises UnknownColumn, KeyTypeError, SourceError, TimestampOrderError, ConfigError, BudgetError, MemoryRefused.
        """
        plan = self.plan(budget)
        read = self._read(home, carry)
        shared = self.shared(home, plan)
        left, right = (
            None if one is None else one.over(each.ts, each.key) for one, each in zip(shared, read[:2], strict=True)
        )
        streams = retimed(read, self.pace, self.seed)
        key = self.keys[0]
        if self.is_pair:
            joined = Joinable(streams[0], streams[1], self.window)
            answer = JoinAnswer(joined, plan, key=key, speed=self.speed, aliases=self.names, summaries=(left, right))
            for one, helped in zip(shared, answer.ruled_out[::-1], strict=True):
                if one is not None:
                    one.served += helped > 0
            return answer
        several = MultiwayJoinable(streams, self.window, self.condition)
        return MultiwayAnswer(several, plan, names=self.names, key=key, speed=self.speed)

    def explain(self, budget: GivenBudget | None = None) -> str:
        """The plan in words, without running it."""
        plan = self.plan(budget)
        window = "the whole stream" if self.window is None else format_duration(self.window)
        keys = " = ".join(f"{place.name}.{place.key}" for place in self.places)
        how = (
            f"exactly: {TOLD['chain'] if is_chain_join(plan) else 'every tuple probes'}"
            if plan.is_exact
            else f"by {plan.method}, {plan.preference} first, guided by {plan.guide}"
        )
        lines = [
            f"join {keys}{', every two' if len(self.places) > 2 else ''} within {window}",
            f"  {how}; budget {plan.budget} ({plan.costs.name} table); output {plan.output}",
            *self._conditions(),
        ]
        if plan.first is not None:
            lines.append(f"  the first {plan.first:,}: {self._first_told(plan)}")
        if plan.pace.is_replay:
            lines.append(f"  {plan.pace}" + (f", {self.speed:g} times as fast" if plan.budget.share else ""))
        if not plan.budget.is_reproducible:
            what = "pairs" if len(self.places) == 2 else "combinations"
            lines.append(f"  by the wall clock: another run finds other {what}")
        if plan.method == "nile" and not plan.is_exact:
            lines += self._guiding(plan)
        if plan.strategy:
            lines.insert(2, f"  strategy {plan.strategy}: forecast by a look at raw keys once they are read")
        return "\n".join(lines)

    def _first_of(self, budget: Budget) -> int | None:
        """The outputs that are asked for, by a limit or as the budget of a join of two streams that prefers some."""
        asked = budget.outputs if self.is_pair and self.preference in ("desc", "asc") else None
        return min((each for each in (self.first, asked) if each is not None), default=None)

    def _first_told(self, plan: JoinPlan) -> str:
        """What EXPLAIN says of the outputs that are first."""
        if not (self.is_pair and can_rank(plan)):
            return "as they are found"
        what = "fewest tuples of its key" if plan.preference == "asc" else "most matches"
        told = f"pairs of the tuple with the {what} first; all are counted, only these are made"
        return told if plan.fraction >= 1.0 else f"{told}, where the budget allows"

    def _conditions(self) -> list[str]:
        own = {place.name: place.where.text for place in self.places if place.where is not None}
        lines = [f"  where {text}: before insertion on {name}" for name, text in own.items()]
        return lines if self.condition is None else [*lines, f"  where {self.condition.text}: on each candidate"]

    def _guiding(self, plan: JoinPlan) -> list[str]:
        """What EXPLAIN says of the guide."""
        spec, lines = plan.spec, []
        if self.guide == AUTO:
            lines.append(f"  {choose_guide(spec, plan.costs, plan.preference, streams=len(self.places))}")
        if plan.guide == "countsketch":
            what = "summary" if self.is_pair else "one summary of (key, stream),"
            lines.append(
                f"  {what} {spec.structure}: {spec.depth} granularities from {format_duration(spec.granularity)}, "
                f"rate {spec.rate}, {spec.value_buckets} value buckets, sketch {spec.rows} x {spec.width}, "
                f"zones by {spec.confidence}"
            )
        return lines


@dataclass(frozen=True, slots=True)
class BoundJoinAggregate:
    """Aggregates over the outputs of a join, of expressions over "name.column"."""

    join: BoundJoin
    aggregates: tuple[Aggregate, ...]
    by: tuple[Value, ...]

    def __str__(self) -> str:
        """As one would write it."""
        made = [value.text for value in self.by] + [f"{each.text} AS {each.name}" for each in self.aggregates]
        told = str(self.join).replace("*", ", ".join(made), 1)
        return told + (f" GROUP BY {', '.join(value.text for value in self.by)}" if self.by else "")

    def answer(self, home: Home, budget: GivenBudget | None = None, *, confidence: float = 0.95) -> JoinAggregateAnswer:
        """Run the join under a budget and aggregate what it finds.

        Without a preference, or with the whole budget, exact; under `weighted` Horvitz-Thompson estimates; under
        desc and asc what was found, which is no random sample.  Raises what `BoundJoin.answer` raises.
        """
        needed = columns_of_aggregates(self.aggregates, self.by)
        names = self.join.names
        carry = [
            tuple(dict.fromkeys(column.removeprefix(f"{name}.") for column in needed if column.startswith(f"{name}.")))
            for name in names
        ]
        found = self.join.answer(home, budget, carry)
        return JoinAggregateAnswer(found, self.aggregates, self.by, names, confidence)
