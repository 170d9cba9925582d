"""All numbers of one query, and how a sample grows until they are close enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nile.aggregates.asked import MOMENT
from nile.operators.aggregate.distribution import estimate_distribution
from nile.operators.aggregate.estimates import Number, estimate_moment
from nile.operators.aggregate.run import AggregateRun
from nile.preferences.error_target import ErrorTarget
from nile.summaries.heavy import pa
from nile.summaries.intervals import student_quantile

__all__ = ["Numbers", "meet", "numbers_of"]

Numbers = list[list[Number]]
"""[aggregate][group]."""

_PILOT = 200
_MOST_LOOKS = 24
_MARGIN = 1.15
_MOST_GROWTH = 16.0


def numbers_of(run: AggregateRun, q: int, labels: Sequence[pa.Array | None], confidence: float) -> Numbers:
    """Every aggregate of query q for every group, from what the run has read so far."""
    data = run.data
    if run.counts is not None:
        return [[run.counts.number(q)] for _ in data.aggregates]
    evidence = run.evidence(q)
    numbers = []
    for aggregate, m in zip(data.aggregates, data.of, strict=True):
        if aggregate.function in MOMENT:
            numbers.append(estimate_moment(aggregate, m, evidence, confidence))
        elif run.sets is not None:
            known = evidence.known
            numbers.append(run.sets.numbers(aggregate, m, known.cells, known.into, labels[m]))
        else:
            numbers.append(estimate_distribution(aggregate, m, evidence, confidence, labels[m]))
    return numbers


def meet(run: AggregateRun, target: ErrorTarget, labels: Sequence[pa.Array | None]) -> tuple[list[Numbers], list[bool]]:
    """Read for each query until its numbers meet the target or the budget is spent; numbers, and whether met.

    A pilot of 200 tuples shows how many are needed; each look at a larger sample counts as one more look
    (`ErrorTarget.look`).  What a grid cut at the predicates would answer exactly for less, it does.
    """
    queries = range(len(run.readers))
    for q in queries:
        _grow(run, q, _PILOT)
    first = [_wanted(run, q, target, numbers_of(run, q, labels, target.look(1)), 1) for q in queries]
    worst = run.readers[0].prices.test + run.readers[0].prices.take if run.readers else 0.0
    expected = sum(worst * max(0, wanted - run.readers[q].read) for q, wanted in enumerate(first))
    if run.method == "sample" and run.cut_if_cheaper(expected):
        return [numbers_of(run, q, labels, target.confidence) for q in queries], [True for _ in queries]
    results, met = [], []
    for q in queries:
        numbers, close = _meet_one(run, q, target, labels)
        results.append(numbers)
        met.append(close)
    return results, met


def _meet_one(
    run: AggregateRun, q: int, target: ErrorTarget, labels: Sequence[pa.Array | None]
) -> tuple[Numbers, bool]:
    for look in range(1, _MOST_LOOKS):
        numbers = numbers_of(run, q, labels, target.look(look))
        if _close_enough(run, q, target, numbers):
            return numbers, True
        before = run.readers[q].read
        _grow(run, q, _wanted(run, q, target, numbers, look))
        if run.readers[q].read == before:
            return numbers, False
    _grow(run, q, run.readers[q].pool.shape[0])
    numbers = numbers_of(run, q, labels, target.confidence)
    return numbers, _close_enough(run, q, target, numbers)


def _close_enough(run: AggregateRun, q: int, target: ErrorTarget, numbers: Numbers) -> bool:
    evidence = run.evidence(q)
    if evidence.is_complete:
        return True
    if run.data.grouped:
        return False  # a group that the sample has missed is an error that no interval shows
    return all(number.estimate is not None and target.met_by(number.estimate) for row in numbers for number in row)


def _wanted(run: AggregateRun, q: int, target: ErrorTarget, numbers: Numbers, look: int) -> int:
    """How many tuples of the pool the next look needs, going by the errors of this one."""
    reader = run.readers[q]
    if run.evidence(q).is_complete:
        return reader.read
    worst = 1.0
    for row in numbers:
        for number in row:
            if number.estimate is None or not math.isfinite(number.estimate.relative_error):
                worst = math.inf
            elif number.estimate.certified:
                worst = max(worst, (number.estimate.relative_error / target.error) ** 2)
            else:
                worst = max(worst, 4.0, (number.estimate.relative_error / target.error) ** 2)
    freedom = max(1, reader.read - 1)
    stricter = student_quantile(target.look(look + 1), freedom) / student_quantile(target.look(look), freedom)
    growth = min(_MOST_GROWTH, max(1.3, worst * stricter**2 * _MARGIN))
    wanted = math.ceil(max(reader.read, 1) * growth)
    # Having read nearly everything without being there, the rest costs less than another look.
    return reader.pool.shape[0] if wanted > 0.8 * reader.pool.shape[0] else wanted


def _grow(run: AggregateRun, q: int, to: int) -> None:
    """Read up to the `to`-th tuple, or as far as the budget certainly reaches."""
    reader = run.readers[q]
    to = min(to, reader.pool.shape[0])
    credit = run.granted - run.spent
    if math.isfinite(credit):
        to = min(to, reader.read + max(0, int(credit / (reader.prices.test + reader.prices.take))))
    run.grow(q, to)
