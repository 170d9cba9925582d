"""The catalogue of operators over ordered input: what the laws of `test_operator_laws` run over.

A new operator, method or guide is tested by being listed.  A law that does not hold for one is named in `lacks`, with
the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import workload_join
import workload_multiway
import workload_standing
from workload_join import SECOND

from nile.operators.common.contract import LiveOperator
from nile.operators.common.plan import GUIDES, METHODS, OUTPUTS, JoinPlan
from nile.operators.drive.live_join import LiveJoin
from nile.operators.drive.live_multiway import LiveMultiway
from nile.operators.drive.round_robin import RoundRobinJoin
from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.join.join import PromisingJoin
from nile.operators.multiway import multiway
from nile.operators.selection.plan import SELECTION_METHODS, SelectionPlan
from nile.operators.selection.selection import StandingSelections
from nile.preferences.budget import Budget
from nile.preferences.fade import Fade
from nile.preferences.preference import PREFERENCES
from nile.summaries.costs import ENGINE, MEMORY, CostTable

__all__ = ["CASES", "SAMPLED", "WINDOW", "Case", "having"]

WINDOW = 60 * SECOND
Rows = list[tuple[Any, ...]]
Members = list[tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """An operator by its plan and input.

    make: a fresh operator, its outputs in batches of so many rows.  rows: a batch as plain rows; members: a batch as
    the ordinals of each output, records expanded, after the query where there are several.  truth: the exact answer,
    by brute force.  arrivals: tuples of the input.  weights: what a batch's single outputs stand for, all together.
    live: the same over live streams, and the streams to push.  lacks: laws that do not hold, and why.
    """

    name: str
    plan: Any
    make: Callable[[Any, int], Any]
    rows: Callable[[Any], Rows]
    members: Callable[[Any, Any], Members]
    truth: Callable[[], set[tuple[int, ...]]]
    arrivals: int
    weights: Callable[[Any, Any], float]
    lacks: Mapping[str, str] = field(default_factory=dict)
    live: Callable[[], tuple[LiveOperator[Any], tuple[Loaded, ...]]] | None = None

    def told(self, *, batch_rows: int = 10_000, plan: Any = None) -> tuple[Rows, Any]:
        """(outputs as they are, in order; the operator, at its end)."""
        operator = self.make(plan or self.plan, batch_rows)
        return [row for part in operator.run() for row in self.rows(part)], operator

    def found(self, plan: Any = None) -> tuple[Members, Any]:
        """(outputs as ordinals, records expanded, in order; the operator, at its end)."""
        operator = self.make(plan or self.plan, 10_000)
        return [one for part in list(operator.run()) for one in self.members(operator, part)], operator

    def advanced(self, ends: Iterator[int]) -> tuple[Rows, Any]:
        """As `told`, driven to one arrival after another."""
        operator = self.make(self.plan, 10_000)
        rows: Rows = []
        for end in itertools.chain(ends, [operator.arrivals]):
            rows += [row for part in operator.advance(end) for row in self.rows(part)]
        operator.finish()
        return rows, operator


def _unweighted(_: Any, part: Any) -> float:
    return float(len(part))


# --- joins of two streams ----------------------------------------------------------------------------------


def _pair_rows(part: Any) -> Rows:
    columns = [part.left, part.right, part.weight, part.side, part.low, part.high, part.query]
    return list(zip(*[column.tolist() for column in columns if column is not None], strict=True))


def _pair_members(operator: Any, part: Any) -> Members:
    pairs = operator.expand(part)
    return list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def _pair_weights(operator: Any, part: Any) -> float:
    return float(operator.expand(part).weight.sum())


@cache
def _given(joined: Any, costs: CostTable, **options: bool) -> Any:
    """The input of a join, which no run changes."""
    return joined.input(costs, **options)


@cache
def _paired(joined: Joinable) -> set[tuple[int, int]]:
    return workload_join.brute_force(joined)


def _pairs(joined: Joinable, name: str, plan: JoinPlan, *, ahead: bool = False, **lacks: str) -> Case:
    def make(asked: JoinPlan, rows: int) -> PromisingJoin:
        data = _given(joined, asked.costs, ranges=asked.output == "ranges")
        return PromisingJoin(asked, data, batch_rows=rows, ahead=ahead)

    arrivals = len(joined.left) + len(joined.right)
    return Case(
        name, plan, make, _pair_rows, _pair_members, lambda: set(_paired(joined)), arrivals, _pair_weights,
        lacks, (lambda: (LiveJoin(plan), joined.streams)) if plan.method == "nile" and not ahead else None,
    )  # fmt: skip


QUERIES = ((WINDOW, "desc", 0.8), (WINDOW // 3, "weighted", 1.0), (WINDOW, "asc", 1.0))
"""Of standing joins over the same streams: window, preference, fade."""


def _in_turns(joined: Joinable, plan: JoinPlan, **lacks: str) -> Case:
    """Several standing joins by the paper's method, in turns."""

    def make(asked: JoinPlan, rows: int) -> RoundRobinJoin:
        plans = [replace(asked, window=w, preference=p, fade=Fade(f)) for w, p, f in QUERIES]
        data = joined.input(asked.costs, ranges=False)
        return RoundRobinJoin(plans, replace(data, costs=data.costs * len(plans)), batch_rows=rows)

    def members(_: Any, part: Any) -> Members:
        return list(zip(part.query.tolist(), part.left.tolist(), part.right.tolist(), strict=True))

    def truth() -> set[tuple[int, ...]]:
        streams = joined.left, joined.right
        return {
            (query, *pair)
            for query, (window, _, _) in enumerate(QUERIES)
            for pair in workload_join.brute_force(Joinable(*streams, window))
        }

    arrivals = len(joined.left) + len(joined.right)
    return Case("standing joins in turns", plan, make, _pair_rows, members, truth, arrivals, _unweighted, lacks)


def _shared(name: str, plan: JoinPlan, **lacks: str) -> Case:
    """Standing joins over shared streams, on one budget by weight."""
    streams = workload_standing.streams(9, n=500, keys=60)

    def members(operator: Any, part: Any) -> Members:
        return [
            (part.query, *pair) for outputs in part.found for pair in _pair_members(operator.joins[part.query], outputs)
        ]

    def rows(part: Any) -> Rows:
        return [(part.query, *row) for outputs in part.found for row in _pair_rows(outputs)]

    def weights(operator: Any, part: Any) -> float:
        return sum(_pair_weights(operator.joins[part.query], outputs) for outputs in part.found)

    return Case(
        name, plan, lambda asked, batch: workload_standing.Shared(asked, streams, batch), rows, members,
        lambda: workload_standing.truth(streams, plan.window), sum(map(len, streams)), weights, lacks,
    )  # fmt: skip


# --- joins of n streams ------------------------------------------------------------------------------------


@cache
def _combined(joined: MultiwayJoinable) -> set[tuple[int, ...]]:
    return workload_multiway.brute_force(joined.streams, joined.window)


def _combinations(joined: MultiwayJoinable, name: str, plan: JoinPlan, **lacks: str) -> Case:
    def make(asked: JoinPlan, rows: int) -> multiway.MultiwayJoin:
        options = {"ranges": asked.output == "ranges", "whole": multiway.buys_everything(asked)}
        return multiway.MultiwayJoin(asked, _given(joined, asked.costs, **options), batch_rows=rows)

    def members(operator: Any, part: Any) -> Members:
        at = operator.expand(part).members
        return list(map(tuple, joined.ordinal[at].tolist()))

    def truth() -> set[tuple[int, ...]]:
        conditioned = isinstance(joined, workload_multiway.Conditioned)
        return {one for one in _combined(joined) if not conditioned or sum(one[:2]) % 2 == 0}

    whole = plan.method == "nile" and not isinstance(joined, workload_multiway.Conditioned)
    return Case(
        name,
        plan,
        make,
        workload_multiway.rows_of,
        members,
        truth,
        sum(map(len, joined.streams)),
        lambda operator, part: float(operator.expand(part).weight.sum()),
        lacks,
        (lambda: (LiveMultiway(plan, len(joined.streams)), joined.streams)) if whole else None,
    )


# --- selections --------------------------------------------------------------------------------------------


def _selections(name: str, plan: SelectionPlan) -> Case:
    data = workload_standing.selected(9, n=2_000)

    def rows(part: Any) -> Rows:
        columns = [part.query, part.ordinal, part.at, part.last]
        return list(zip(*[column.tolist() for column in columns if column is not None], strict=True))

    def members(operator: Any, part: Any) -> Members:
        part = operator.expand(part)
        return list(zip(part.query.tolist(), part.ordinal.tolist(), strict=True))

    def truth() -> set[tuple[int, ...]]:
        return {(q, int(i)) for q in range(len(data.says)) for i in np.flatnonzero(data.truth(q))}

    lacks = {
        "room": "a full output is tested beside it",
        "accounts": "its figures tell arrivals and shed ones, which answers' accounting holds to one another",
        "parts": "it has no insertion of its own",
        "zero": "it estimates nothing: cells have exact counts",
    }
    return Case(
        name, plan, lambda asked, batch: StandingSelections(asked, data, batch_rows=batch), rows, members, truth,
        data.ts.shape[0], _unweighted, lacks,
    )  # fmt: skip


def _cases() -> Iterator[Case]:
    two = workload_join.joinable(9, n=1_200, keys=60, window=WINDOW)
    three = workload_multiway.joinable(9, streams=3, n=700, keys=200, window=WINDOW)
    crowded = workload_multiway.joinable(9, streams=3, n=700, keys=60, window=WINDOW)  # some keys are heavy
    plan = workload_multiway.plan_of
    for preference, guide, output in itertools.product(PREFERENCES, GUIDES, OUTPUTS):
        for costs in (ENGINE, MEMORY):
            asked = plan(WINDOW, 0.3, guide=guide, preference=preference, output=output, costs=costs, seed=5)
            yield _pairs(two, f"two streams, {preference}, {guide}, {output}, {costs.name}", asked)
        among, summary = (crowded, {"columns": 32}) if preference == "asc" else (three, {})
        asked = plan(WINDOW, 0.3, guide=guide, preference=preference, output=output, seed=5, summary=summary)
        yield _combinations(among, f"three streams, {preference}, {guide}, {output}", asked)
    rare = workload_join.joinable(9, n=2_100, keys=4_000, window=WINDOW)
    for preference, costs, fraction in itertools.product(("desc", "asc"), (ENGINE, MEMORY), (0.02, 0.3)):
        asked = plan(WINDOW, fraction, guide="directory", preference=preference, costs=costs, seed=5)
        among = two if preference == "desc" else rare
        yield _pairs(among, f"two streams, planned ahead, {preference}, {costs.name}, {fraction}", asked, ahead=True)
    for output in OUTPUTS:  # a budget of all of it: the plain probe, and ranges by counts
        lacks = {"zero": "it asks no guide"}
        yield _pairs(two, f"two streams, all of the budget, {output}", plan(WINDOW, 1.0, output=output), **lacks)
    for method in METHODS:
        if method not in ("nile", "paper"):
            yield _pairs(two, f"two streams, {method}", plan(WINDOW, 0.3, method=method, seed=5), zero="no guide")
    for preference in PREFERENCES:
        asked = plan(WINDOW, 1.5, method="paper", preference=preference, seed=5)
        yield _pairs(two, f"two streams, paper, {preference}", asked)
    for method, preference in itertools.product(multiway.METHODS, PREFERENCES):
        if method != "nile":
            asked = plan(WINDOW, 0.3, method=method, preference=preference, seed=5)
            yield _combinations(three, f"three streams, {method}, {preference}", asked, zero="it asks no guide")
    for streams, method in itertools.product((2, 3), multiway.METHODS):
        asked = plan(WINDOW, 0.3, method=method, preference="weighted" if streams == 2 else "desc", seed=5)
        among = workload_multiway.joinable(9, streams=streams, n=1_000 // streams, keys=60, window=WINDOW)
        lacks = {"zero": "it asks no guide"} if method != "nile" else {}
        lacks["room"] = "a full output settles candidates early, which gives back credit: its size is part of the plan"
        among = workload_multiway.even(among)
        yield _combinations(among, f"{streams} streams, {method}, under a condition", asked, **lacks)
    yield _in_turns(two, plan(WINDOW, 1.3, method="paper", seed=5))
    for preference, guide in itertools.product(PREFERENCES, GUIDES):
        asked = plan(WINDOW, 0.4, guide=guide, preference=preference, seed=5)
        yield _shared(f"standing joins over shared streams, {preference}, {guide}", asked)
    for method, output in itertools.product(SELECTION_METHODS, OUTPUTS):
        budget = Budget(1.5 if method == "paper" else 0.3)
        asked = SelectionPlan(method=method, output=output, budget=budget, buckets=8, zone=512, every=64, sample=256)
        yield _selections(f"selections, {method}, {output}", asked)


def _listed(case: Case) -> Case:
    """With the laws that a whole kind of case lacks."""
    lacks = dict(case.lacks)
    if case.live is None:
        lacks["live"] = "it has no form over live streams"
    if isinstance(case.plan, SelectionPlan):
        return replace(case, lacks=lacks)
    if case.plan.guide == "directory":
        lacks.setdefault("zero", "the directory estimates nothing")
    if case.plan.preference == "asc":
        lacks["accounts"] = "what asc refuses after admission may count in both figures (answers' accounting is apart)"
    if case.name.startswith("three streams, desc, countsketch, ranges"):
        lacks["zero"] = "over this input the same regions are found, in another order"
    if case.name.startswith("three streams, weighted, countsketch, ranges"):
        lacks["zero"] = "it asks no sketch: its rates are planned from counts"
    return replace(case, lacks=lacks)


CASES = tuple(map(_listed, _cases()))


def _sampled() -> Iterator[Case]:
    """Weighted operators over windows that hold enough for p to settle."""
    window = 300 * SECOND
    two = workload_join.joinable(51, n=1_500, keys=40, window=window)
    three = workload_multiway.joinable(51, streams=3, n=1_000, keys=40, window=WINDOW)
    half = workload_multiway.even(workload_multiway.joinable(51, streams=2, n=1_500, keys=40, window=window))
    plan = workload_multiway.plan_of
    for guide, output in itertools.product(GUIDES, OUTPUTS):
        asked = plan(window, 0.5, guide=guide, preference="weighted", output=output)
        yield _pairs(two, f"two streams, {guide}, {output}", asked)
        yield _combinations(three, f"three streams, {guide}, {output}", replace(asked, window=WINDOW))
        if output == "pairs":
            yield _combinations(half, f"two streams under a condition, {guide}", asked)


SAMPLED = tuple(_sampled())


def having(law: str) -> list[Case]:
    """The cases that a law holds for."""
    return [case for case in CASES if law not in case.lacks]
