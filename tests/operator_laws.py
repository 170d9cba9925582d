"""The catalogue of operators over ordered input: what the laws of `test_operator_laws` run over.

A new operator, method or guide is tested by being listed.  A law that does not hold for one is named in `lacks`, with
the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import workload_join
import workload_multiway
from workload_join import SECOND

from nile.operators.common.plan import GUIDES, METHODS, OUTPUTS, JoinPlan
from nile.operators.inputs.joining import Joinable
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.join.join import PromisingJoin
from nile.operators.multiway import multiway
from nile.preferences.preference import PREFERENCES
from nile.summaries.costs import ENGINE, MEMORY

__all__ = ["CASES", "WINDOW", "Case", "having"]

WINDOW = 60 * SECOND
Rows = list[tuple[Any, ...]]
Members = list[tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """An operator by its plan and input.

    make: a fresh operator, its outputs in batches of so many rows.  rows: a batch as plain rows; members: a batch as
    the ordinals of each output, records expanded.  truth: the exact answer, by brute force.  sizes: arrivals of each
    stream.  lacks: laws that do not hold, and why.
    """

    name: str
    plan: JoinPlan
    make: Callable[[JoinPlan, int], Any]
    rows: Callable[[Any], Rows]
    members: Callable[[Any, Any], Members]
    truth: Callable[[], set[tuple[int, ...]]]
    arrivals: int
    lacks: Mapping[str, str] = field(default_factory=dict)

    def told(self, *, batch_rows: int = 10_000, plan: JoinPlan | None = None) -> tuple[Rows, Any]:
        """(outputs as they are, in order; the operator, at its end)."""
        operator = self.make(plan or self.plan, batch_rows)
        return [row for part in operator.run() for row in self.rows(part)], operator

    def found(self, plan: JoinPlan | None = None) -> tuple[Members, Any]:
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


def _pair_rows(part: Any) -> Rows:
    columns = [part.left, part.right, part.weight, part.side, part.low, part.high]
    return list(zip(*[column.tolist() for column in columns if column is not None], strict=True))


def _pair_members(operator: Any, part: Any) -> Members:
    pairs = operator.expand(part)
    return list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def _pairs(joined: Joinable, name: str, plan: JoinPlan, **lacks: str) -> Case:
    def make(asked: JoinPlan, rows: int) -> PromisingJoin:
        return PromisingJoin(asked, joined.input(asked.costs, ranges=asked.output == "ranges"), batch_rows=rows)

    arrivals = len(joined.left) + len(joined.right)
    return Case(name, plan, make, _pair_rows, _pair_members, lambda: workload_join.brute_force(joined), arrivals, lacks)


def _combinations(joined: MultiwayJoinable, name: str, plan: JoinPlan, **lacks: str) -> Case:
    def members(operator: Any, part: Any) -> Members:
        at = operator.expand(part).members
        return list(map(tuple, joined.ordinal[at].tolist()))

    return Case(
        name,
        plan,
        lambda asked, rows: workload_multiway.operator(asked, joined, batch_rows=rows),
        workload_multiway.rows_of,
        members,
        lambda: workload_multiway.brute_force(joined.streams, joined.window),
        sum(map(len, joined.streams)),
        lacks,
    )


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
    for method in METHODS:
        if method != "nile":
            lacks = {"zero": "it asks no guide"}
            budget = 1.5 if method == "paper" else 0.3  # its zones of a few tuples take the first 0.3 of it
            yield _pairs(two, f"two streams, {method}", plan(WINDOW, budget, method=method, seed=5), **lacks)
    for method, preference in itertools.product(multiway.METHODS, PREFERENCES):
        if method != "nile":
            asked = plan(WINDOW, 0.3, method=method, preference=preference, seed=5)
            yield _combinations(three, f"three streams, {method}, {preference}", asked, zero="it asks no guide")


def _listed(case: Case) -> Case:
    """With the laws that a whole kind of case lacks."""
    lacks = dict(case.lacks)
    if case.plan.guide == "directory":
        lacks.setdefault("zero", "the directory estimates nothing")
    if case.plan.preference == "asc":
        lacks["accounts"] = "what asc refuses after admission may count in both figures (answers' accounting is apart)"
    if case.name.startswith("three streams, desc, countsketch, ranges"):
        lacks["zero"] = "over this input the same regions are found, in another order"
    return replace(case, lacks=lacks)


CASES = tuple(map(_listed, _cases()))


def having(law: str) -> list[Case]:
    """The cases that a law holds for."""
    return [case for case in CASES if law not in case.lacks]
