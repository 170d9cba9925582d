"""The accuracy of aggregates: every number against the exact one, group by group, over budgets and seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nile.report.accuracy.asking import Asked
from nile.report.accuracy.groups import GroupErrors, NumberError
from nile.report.accuracy.intervals import Interval
from nile.report.accuracy.report import AccuracyReport
from nile.report.accuracy.reporting import Wanted
from nile.report.accuracy.short_values import key_text
from nile.report.records import finite
from nile.summaries.errors import CostWarning

if TYPE_CHECKING:
    from nile.report.answered import AnsweredAggregates

__all__ = ["aggregate_accuracy"]

Place = tuple[str, tuple[Any, ...], str]
"""A number's query, group and name."""


def aggregate_accuracy(
    answer: AnsweredAggregates,
    wanted: Wanted,
    query: str,
    *,
    exact: AnsweredAggregates,
    again: Callable[[float, int], AnsweredAggregates],
    asked_of: dict[str, Any],
    own: float | None,
) -> AccuracyReport:
    """Compare and look closely.

    exact: the same aggregates of everything; again: the answer under a fraction and a seed; asked_of: what records
    say of the query, its preference and seed among them; own: the fraction of `answer`, None where it is exact, which
    gives way to the budget nearest to LOOKED_AT.  Raises BudgetError, ConfigError.
    """
    asked = Asked.of(wanted, opponents=(), usual=(), engines=("local",))
    truth = {place: float(number.value) for place, number in _numbers(exact) if _is_number(number.value)}
    seed = int(asked_of["seed"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostWarning)  # a sweep asks for budgets that no user asked for
        closely = again(asked.looked_at, seed) if own is None else answer
        asked = asked.with_budget(asked.looked_at if own is None else own)
        intervals: list[Interval] = []

        def run(_: str, budget: float, one: int) -> dict[str, Any]:
            ran = again(budget, one)
            told, mine = _compared(ran, truth, budget, one)
            intervals.extend(mine)
            return _record(ran, told, {**asked_of, "budget": budget}, len(truth))

        method = str(asked_of["method"])
        records = asked.sweep(method, seed, wanted.step, run, seeded=(method,))
    told, _ = _compared(closely, truth, 0.0, seed)
    looked_at = {**asked_of, "budget": asked.looked_at if own is None else own}
    return AccuracyReport(
        query=query,
        kind="aggregate",
        preference=str(asked_of["preference"]),
        exact=len(truth),
        looked_at=_record(closely, told, looked_at, len(truth)),
        runs=tuple(records),
        intervals=tuple(intervals),
        groups=told,
        warnings=closely.warnings,
        notes=("Numbers are compared; lists (top_k) and text are left aside.",),
    )


def _numbers(answer: AnsweredAggregates) -> list[tuple[Place, Any]]:
    return [((query, group, name), number) for query, group, name, number in answer.numbers()]


def _compared(
    answer: AnsweredAggregates, truth: dict[Place, float], budget: float, seed: int
) -> tuple[GroupErrors, list[Interval]]:
    """Every exact number beside its estimate, and the intervals that were told."""
    numbers = dict(_numbers(answer))
    errors, intervals = [], []
    for place, exact in truth.items():
        query, group, name = place
        where = ", ".join(key_text(part) for part in group)
        where = f"{query}: {where}" if query and where else query or where
        number = numbers.get(place)
        if number is None or number.value is None:
            errors.append(NumberError(where, name, exact, None, None, None))
            continue
        low = high = None
        if number.estimate is not None:
            told = Interval.told(f"{name} {where}".strip(), budget, seed, number.estimate, exact)
            intervals.append(told)
            low, high = (end if math.isfinite(end) else None for end in (told.low, told.high))
        errors.append(NumberError(where, name, exact, float(number.value), low, high))
    return GroupErrors.of(errors), intervals


def _record(answer: AnsweredAggregates, told: GroupErrors, asked: dict[str, Any], numbers: int) -> dict[str, Any]:
    budget = answer.budget
    return finite(
        {
            **asked,
            "exact_pairs": numbers,
            **told.figures(),
            "budget_unit": "fraction",
            "budget_spent": budget.spent,
            "fraction_spent": budget.fraction,
            "reproducible": budget.reproducible,
            "coverage": answer.coverage,
        }
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
