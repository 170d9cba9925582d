"""A join of n streams, or of two under a condition on the pair, as a Python object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nile.answers.join_query import JoinQuery
from nile.answers.multiway_answer import MultiwayAnswer
from nile.base.durations import format_duration
from nile.operators.common.guides import AUTO, choose_guide
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import load_together, retimed
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.inputs.pair_conditions import PairCondition, read_pair_condition
from nile.operators.multiway.multiway import METHODS
from nile.preferences.budget import Budget
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["MultiwayQuery", "several_streams", "split_alias"]

_ALIASED = re.compile(r"\s*(\w+)\s+(?:as\s+)?(\w+)\s*", re.IGNORECASE)
_MOST_STREAMS = 16


@dataclass(frozen=True, slots=True)
class MultiwayQuery(JoinQuery):
    """Registered streams, joined on equal keys, every two tuples inside one window; and a condition over them.

    Made by `Database.join`; each method returns a changed copy.  streams, names, keys: one for each place in the
    statement; `left`, `right` and `on` are the first two of them.
    """

    streams: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    condition: PairCondition | None = None

    def run(  # type: ignore[override]
        self, budget: Budget | float | None = None, *, carry: Sequence[tuple[str, ...]] = ()
    ) -> MultiwayAnswer:
        """Read the streams, each once, and prepare the answer; rows are found as they are asked for.

        budget: a Budget or a fraction; None, or a query without a preference: the whole answer.  Under a
        condition over several streams what is spent is told as a share of the exact answer's cost, which takes a
        pass that looks at every candidate and is charged to nobody.  carry: for each stream, further columns that
        the answer keeps for its aggregates.
        Raises UnknownColumn, KeyTypeError, SourceError, TimestampOrderError, ConfigError, BudgetError,
        MemoryRefused.
        """
        plan = self.plan(budget)
        condition = self.condition
        needed = [
            (*(() if condition is None else condition.columns(k)), *(carry[k] if carry else ()))
            for k in range(len(self.streams))
        ]
        loaded = load_together(self.database.manager, self.streams, self.keys, needed)
        joined = MultiwayJoinable(retimed(loaded, self.pace, self.seed), self.window, condition)
        return MultiwayAnswer(joined, plan, names=self.names, key=self.keys[0], speed=self.speed)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """(stream, the name it goes by) of each place in the statement."""
        return tuple(zip(self.streams, self.names, strict=True))

    def plan(self, budget: Budget | float | None = None) -> JoinPlan:
        """The checked plan that `run` would follow."""
        plan = JoinQuery.plan(self, budget)
        if plan.method not in METHODS:
            raise ConfigError(
                f"method: needed one of {', '.join(METHODS)} for several streams or a condition on the pair; "
                f"got {plan.method!r}; name one of these, or join two streams without a condition"
            )
        if plan.preference == "asc" and plan.outlier_cap < len(self.streams):
            raise ConfigError(
                f"outlier_cap: needed {len(self.streams)} or more, as many as a combination has tuples; "
                f"got {plan.outlier_cap}; say prefer('asc', outlier_cap={2 * len(self.streams)})"
            )
        if plan.output == "ranges" and self.condition is not None and self.condition.over_several:
            raise ConfigError(
                "output: needed 'pairs' with a condition over several streams, which leaves no whole ranges; "
                "got 'ranges'; ask for pairs, or take such conditions out"
            )
        return plan

    def explain(self, budget: Budget | float | None = None) -> str:
        """The plan in words, without running it."""
        plan = self.plan(budget)
        window = "the whole stream" if self.window is None else format_duration(self.window)
        keys = " = ".join(f"{name}.{key}" for name, key in zip(self.names, self.keys, strict=True))
        how = (
            "exactly: every tuple probes"
            if plan.is_exact
            else f"by {plan.method}, {plan.preference} first, guided by {plan.guide}"
        )
        lines = [
            f"join {keys}, every two within {window}",
            f"  {how}; budget {plan.budget} ({plan.costs.name} table); output {plan.output}",
        ]
        if self.condition is not None:
            alone = [name for k, name in enumerate(self.names) if self.condition.selects(k)]
            when = [f"before insertion on {', '.join(alone)}"] if alone else []
            when += ["on each candidate"] if self.condition.over_several else []
            lines.append(f"  where {self.condition.text}: {' and '.join(when)}")
        if plan.pace.is_replay:
            lines.append(f"  {plan.pace}" + (f", {self.speed:g} times as fast" if plan.budget.share else ""))
        if not plan.budget.is_reproducible:
            lines.append("  by the wall clock: another run finds other combinations")
        guided = not plan.is_exact and plan.method == "nile"
        if guided and self.guide == AUTO:
            lines.append(f"  {choose_guide(plan.spec, plan.costs, plan.preference, streams=len(self.streams))}")
        if guided and plan.guide == "countsketch":
            spec = plan.spec
            lines.append(
                f"  one summary of (key, stream), {spec.structure}: {spec.depth} granularities from "
                f"{format_duration(spec.granularity)}, rate {spec.rate}, {spec.value_buckets} value buckets, "
                f"sketch {spec.rows} x {spec.width}, zones by {spec.confidence}"
            )
        return "\n".join(lines)


def split_alias(stream: str) -> tuple[str, str | None]:
    """("name", "alias") of "name AS alias" or "name alias"; a name alone has the alias None."""
    aliased = _ALIASED.fullmatch(stream) if isinstance(stream, str) else None
    return (aliased[1], aliased[2]) if aliased else (stream, None)


def several_streams(
    database: Home,
    streams: Sequence[tuple[str, str | None]],
    keys: tuple[str, ...],
    where: str | None,
    schemas: Sequence[pa.Schema],
) -> MultiwayQuery:
    """The query of `Database.join` for n streams or a condition.  streams: (name, alias or None).

    Raises ConfigError for names that are not all different or too many streams, and what the condition raises.
    """
    aliases = tuple(alias or name for name, alias in streams)
    if len(streams) > _MOST_STREAMS:
        raise ConfigError(f"join: needed at most {_MOST_STREAMS} streams; got {len(streams)}; join some of them first")
    twice = next((alias for alias in aliases if aliases.count(alias) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"join: needed a name of its own for each stream; got {twice!r} twice; write '{twice} AS a', '{twice} AS b'"
        )
    condition = None if where is None else read_pair_condition(where, aliases, schemas, where="join, where")
    return MultiwayQuery(
        database=database,
        left=streams[0][0],
        right=streams[1][0],
        on=(keys[0], keys[1]),
        streams=tuple(name for name, _ in streams),
        names=aliases,
        keys=keys,
        condition=condition,
    )
