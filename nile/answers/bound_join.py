"""The bound join: what SQL, the builder and `Database.join` all make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nile.answers.join_answer import ComingAnswer, JoinAnswer
from nile.answers.join_streams import Place, guiding, of_several, selected_from
from nile.answers.multiway_answer import MultiwayAnswer
from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import format_duration, parse_duration
from nile.base.names import names_given
from nile.exact.join.form import RULE, RULE_OF_MANY
from nile.expressions.conditions import Condition, Value
from nile.operators.common.guides import AUTO, choose_guide
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.drive.clock import Clock
from nile.operators.inputs.coming import ComingPair, ComingStreams, can_come
from nile.operators.inputs.composing import comparable, composed
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import Joinable, Loaded, load_stream, load_together, retimed
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.inputs.pair_conditions import PairCondition
from nile.operators.inputs.pair_windows import PairWindows
from nile.operators.inputs.ruling import can_be_lent, lent_grids
from nile.operators.inputs.shared_grid import SharedSummary
from nile.operators.join.chain_join import is_chain_join
from nile.operators.join.planned import plans_ahead
from nile.operators.multiway.multiway import METHODS
from nile.operators.strategies.after import NOTHING, After
from nile.operators.strategies.least import INSTEAD, refuse_below_a_pass
from nile.operators.strategies.ranked import can_rank, first_told, is_outlier_join
from nile.operators.strategies.worth import check_worth, worth_of
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.costs import MACHINE, cost_table, costs_by_tuple, default_costs
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["BoundJoin", "Place"]

_OWN = ("method", "strategy", "costs", "seed", "forgetting")
_SUMMARY = (
    "granularity", "rate", "depth", "structure", "buckets", "rows", "columns", "confidence", "threshold",
    "max_length", "max_zones",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoundJoin:
    """Registered streams, joined on equal keys, every two tuples inside one window, and a condition over several.

    Without a preference the answer is exact.  windows: between pairs of streams, where one is not for all; `window` is
    then what follows for the pair furthest apart, by which outliers are told too.  summary: options of SummarySpec that
    were given.  first: only so many outputs, the most promising ones first.  worths: of each place what its tuples are
    worth, by which counts are multiplied; (): 1.  apart: the condition of who joins by the first column of a key of
    several alone; None of one, and where another column of it is computed.
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
    costs: str = ""
    seed: int = 0
    forgetting: bool = False
    summary: tuple[tuple[str, Any], ...] = ()
    pace: Pace = field(default_factory=Pace)
    speed: float = 1.0
    first: int | None = None
    windows: PairWindows | None = None
    worths: tuple[Value | None, ...] = ()
    apart: PairCondition | None = None

    def __str__(self) -> str:
        """As one would write it."""
        told = selected_from(self.places, self.condition)
        if self.windows is not None:
            told += f" {self.windows.words(self.names)}"
        elif self.window is not None:
            told += f" WINDOW '{format_duration(self.window)}'"
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
    def by_one_column(self) -> BoundJoin:
        """The same join by the first column of its key, the others a condition: for who takes keys as they come."""
        if self.apart is None:
            return self
        places = tuple(replace(place, further=()) for place in self.places)
        return replace(self, places=places, condition=self.apart, apart=None)

    @property
    def is_pair(self) -> bool:
        """Whether it is one of two streams without a condition over both, which has an operator of its own."""
        return len(self.places) == 2 and self.condition is None and self.windows is None

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
        ordered = budget is None and self.preference in ("desc", "asc")
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
        costs = cost_table(self.costs or costs_by_tuple())
        plan = JoinPlan(
            window=self.window,
            budget=budget,
            method=self.method,
            strategy=self.strategy,
            preference=preference,
            preferred=self.preference is not None,
            first=self._first_of(budget),
            ordered=ordered,
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
        if self.worths:
            check_worth(plan, is_pair=self.is_pair)
        return plan

    def asked_once(self, budget: GivenBudget | None = None) -> JoinPlan:
        """The plan of a one-shot answer: by this machine's prices whichever strategy its CPU time buys most by.

        Not where the question names how it is to be answered, or input is played back.  No summary is read: the look
        that strategies are chosen by costs less than asking one about every tuple.  Raises as `plan` does.
        """
        plan = self.plan(budget)
        named = self.strategy or self.summary or self.guide != AUTO or (self.costs or default_costs()) != MACHINE.name
        parts = self.is_pair or plan.budget.outputs is None
        aged = plan.fade.factor < 1.0 and (plan.preference != "desc" or plan.budget.unit == "outputs")
        suits = parts and not aged and plan.preferred and plan.first is None and not plan.is_exact  # counts tell no age
        if self.worths or named or not suits or plan.unplanned():
            return plan
        return replace(plan, strategy="auto", costs=MACHINE)

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
        if plan.output == "ranges" and (self.condition is not None or self.windows is not None):
            what = "a condition over several streams" if self.windows is None else "windows between pairs of streams"
            raise ConfigError(
                f"output: needed 'pairs' with {what}, which leaves no whole ranges; "
                "got 'ranges'; ask for pairs, or take such conditions out"
            )

    def load(self, home: Home, carry: Sequence[tuple[str, ...]] = ()) -> tuple[Loaded, ...]:
        """The streams, each read once, on the times of the pace.  carry: for each further columns to keep."""
        return retimed(self._read(home, carry), self.pace, self.seed)

    def _read(self, home: Home, carry: Sequence[tuple[str, ...]] = ()) -> tuple[Loaded, ...]:
        read = load_together(home.manager, self.streams, self.keys, *self._asked(carry))
        return composed(comparable(read), [place.further for place in self.places])

    @property
    def _weighing(self) -> list[tuple[str, ...]]:
        """Of each place the columns that tell what its tuples are worth."""
        worths = self.worths or (None,) * len(self.places)
        return [() if worth is None else worth.columns for worth in worths]

    def _asked(self, carry: Sequence[tuple[str, ...]]) -> tuple[list[Condition | None], list[tuple[str, ...]]]:
        """Of each place what selects its tuples, and the columns to keep.  Raises ConfigError."""
        if carry and (not isinstance(carry, list | tuple) or len(carry) != len(self.places)):
            raise ConfigError(
                f"join, carry: needed columns for each of {len(self.places)} streams; got {carry!r}; write "
                "carry=[('price',), ()]"
            )
        columns = [
            (
                *(() if self.condition is None else self.condition.columns(k)),
                *(names_given(carry[k], where="join, carry") if carry else ()),
                *worth,
                *self.places[k].further,
            )
            for k, worth in enumerate(self._weighing)
        ]
        return [place.where for place in self.places], columns

    def shared(self, home: Home, plan: JoinPlan) -> tuple[SharedSummary | None, ...]:
        """The summaries that the join reads; None for each stream that has none.

        Of a stream whose tuples are selected it tells what there can be at most.
        """
        ways = plan.strategy in ("", "promise") and plan.method == "nile" and not plan.is_exact and plan.first is None
        ways = ways and not of_several(self.places)  # no summary of one column tells of several
        # A sample of the keys tells those without partners for less than summaries would take to be asked.
        ways = ways and not (self.is_pair and plans_ahead(plan))
        return tuple(home.shared(place.stream, place.key) if ways else None for place in self.places)

    def _counted(
        self, home: Home, shared: Sequence[SharedSummary | None], read: Sequence[Loaded]
    ) -> tuple[SummaryManager | None, ...]:
        """The grids of shared summaries that have counted what was read."""
        for one, place, each in zip(shared, self.places, read, strict=True):
            if one is not None and one.manager is None and each.excluded:
                whole = load_stream(home.manager(place.stream, place.key))
                one.over(whole.ts, whole.key)
        return tuple(
            None if one is None else one.over(each.ts, each.key, each.excluded)
            for one, each in zip(shared, read, strict=True)
        )

    def _ruled(self, shared: Sequence[SharedSummary | None]) -> list[tuple[str, str]]:
        """(name of the stream, of the summary that tells which of its tuples have no partner), of two streams."""
        if not self.is_pair or len(set(self.streams)) == 1:
            return []
        return [(name, one.name) for one, name in zip(shared, self.names[::-1], strict=True) if one is not None]

    def keeps_grid(self, home: Home, plan: JoinPlan) -> bool:
        """Whether the join keeps a grid of its own: sketches guide it, and there are no shared ones to ask."""
        sketched = plan.method == "nile" and plan.guide == "countsketch" and not plan.is_exact
        lent = None not in self.shared(home, plan) and can_be_lent(plan)
        return plan.method == "paper" or (sketched and not lent)

    def answer(
        self,
        home: Home,
        budget: GivenBudget | None = None,
        carry: Sequence[tuple[str, ...]] = (),
        *,
        as_it_comes: bool = False,
        after: After = NOTHING,
    ) -> JoinAnswer | MultiwayAnswer:
        """Read the streams and prepare the answer; rows are found as they are asked for.

        as_it_comes: streams waited for are joined while they come, where they `can_come`; after: what is done then.
        Raises UnknownColumn, KeyTypeError, SourceError, TimestampOrderError, ConfigError, BudgetError, MemoryRefused.
        """
        plan = self.asked_once(budget)
        clock = Clock(plan.budget)
        keyed = list(zip(self.streams, self.keys, strict=True))
        refuse_below_a_pass(plan.budget, home, keyed, plan.strategy, INSTEAD if self.is_pair else "")
        plain = self.plan(budget)
        comes = as_it_comes and not self.worths and self.is_pair and not of_several(self.places) and can_come(plain)
        if comes and not any(self.shared(home, plain)):
            coming = ComingStreams(home, self.streams, self.keys, *self._asked(carry))
            if coming.waits():
                clock.pause()
                pair = ComingPair(coming, self.window or 0)
                early = ComingAnswer(pair, plain, key=self.keys[0], clock=clock, aliases=self.names)
                early.room = home.room
                return early
            read = comparable(coming.whole())
        else:
            read = self._read(home, carry)
        shared = self.shared(home, plan)
        summaries = self._counted(home, shared, read)
        streams = retimed(read, self.pace, self.seed)
        key = self.keys[0]
        told: dict[str, Any] = {"speed": self.speed, "summaries": summaries, "clock": clock, "after": after}
        answer: JoinAnswer | MultiwayAnswer
        if self.is_pair:
            joined = Joinable(streams[0], streams[1], self.window)
            worths = tuple(map(worth_of, self.worths, streams))
            told |= {"worths": worths} if worths else {}
            answer = JoinAnswer(joined, plan, key=key, aliases=self.names, **told)
            ruled_out: tuple[int, ...] = answer.ruled_out[::-1]
        else:
            several = MultiwayJoinable(streams, self.window, self.condition, self.windows)
            answer = MultiwayAnswer(several, plan, names=self.names, key=key, **told)
            ruled_out = (0,) * len(streams)
        for one in {
            each for each, helped in zip(shared, ruled_out, strict=True) if each and (helped or answer.borrows)
        }:
            one.served += 1
        clock.pause()
        answer.announces, answer.room = True, home.room
        return answer

    def lent(self, home: Home, plan: JoinPlan, joined: MultiwayJoinable) -> tuple[Side, ...] | None:
        """The grids that guide it beside other standing queries; None: it keeps one of its own."""
        shared = self.shared(home, plan)
        lent = lent_grids(joined, plan, self._counted(home, shared, joined.streams))
        for one in set(shared) if lent is not None else ():
            if one is not None:
                one.served += 1
        return lent

    def explain(self, home: Home, budget: GivenBudget | None = None) -> str:
        """The plan in words, without running it."""
        plan = self.asked_once(budget)
        shared = self.shared(home, plan)
        window = "the whole stream" if self.window is None else format_duration(self.window)
        keys = " = ".join(place.keyed for place in self.places)
        exactly = "every tuple probes"
        if is_chain_join(plan) and not can_rank(plan):
            exactly = RULE if len(self.places) == 2 else RULE_OF_MANY
        elif self.is_pair and is_outlier_join(plan):
            exactly = "tuples that may have partners are counted, then outliers' pairs made"
        how = f"by {plan.method}, {plan.preference} first, guided by {plan.guide}"
        how = f"exactly: {exactly}" if plan.is_exact else how
        lines = [
            f"join {keys}{', every two' if len(self.places) > 2 else ''} within {window}",
            f"  {how}; budget {plan.budget} ({plan.costs.name} table); output {plan.output}",
            *self._conditions(),
        ]
        if (told := first_told(plan, pair=self.is_pair)) is not None:
            lines.append(f"  {told}")
        if plan.pace.is_replay:
            lines.append(f"  {plan.pace}" + (f", {self.speed:g} times as fast" if plan.budget.share else ""))
        if not plan.budget.is_reproducible:
            what = "pairs" if len(self.places) == 2 else "combinations"
            lines.append(f"  by the wall clock: another run finds other {what}")
        if plan.method == "nile" and not plan.is_exact:
            lines += guiding(
                plan, self.guide, streams=len(self.places), pair=self.is_pair, has_grid=self.keeps_grid(home, plan)
            )
        for place, worth in zip(self.places, self.worths, strict=False):
            if worth is not None:
                lines.append(f"  every tuple's matches are counted, and multiplied by |{worth.text}| of {place.name}")
        if plan.strategy:
            lines.insert(2, f"  strategy {plan.strategy}: forecast by a look at raw keys once they are read")
        lines += [
            f"  takes in no tuple of {name} whose key summary {summary} has nowhere in its window"
            for name, summary in self._ruled(shared)
        ]
        if None not in shared and can_be_lent(plan):
            told = ", ".join(f"{one.name} ({name})" for one, name in zip(shared, self.names, strict=True) if one)
            lines.append(f"  regions by what summaries {told} promise, best first; no grid of its own")
        return "\n".join(lines)

    def _first_of(self, budget: Budget) -> int | None:
        """The outputs that are asked for, by a limit or as the budget of a join that prefers some."""
        asked = budget.outputs if self.preference in ("desc", "asc") else None
        return min((each for each in (self.first, asked) if each is not None), default=None)

    def _conditions(self) -> list[str]:
        own = {place.name: place.where.text for place in self.places if place.where is not None}
        lines = [f"  where {text}: before insertion on {name}" for name, text in own.items()]
        lines += [] if self.windows is None else [f"  {self.windows.words(self.names)}: on each candidate"]
        return lines if self.condition is None else [*lines, f"  where {self.condition.text}: on each candidate"]
