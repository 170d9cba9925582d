"""The accuracy of a join of two streams: several budgets, seeds and opponents over the streams it has read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.plan import METHODS, SCANNING, told_preference
from nile.pyramid.grid.spec import SummarySpec
from nile.report.accuracy.advice import TOO_WRONG
from nile.report.accuracy.asking import ENGINES, Asked
from nile.report.accuracy.intervals import Interval
from nile.report.accuracy.outliers import outliers_of
from nile.report.accuracy.report import AccuracyReport
from nile.report.accuracy.reporting import Step, Wanted
from nile.report.accuracy.short_values import bin_texts
from nile.report.accuracy.summary_cells import CellErrors, cell_errors
from nile.report.histograms import BINS
from nile.report.metrics import ExactPairs, Obtained, histograms
from nile.report.pages.bars import Compared
from nile.report.records import join_record
from nile.report.truth import ELSEWHERE, exact_pairs
from nile.report.wording import duration
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.operators.common.plan import JoinPlan
    from nile.report.answered import AnsweredJoin

__all__ = ["join_accuracy"]

Array = np.ndarray[Any, Any]
_SEEDED = ("nile", "paper", "shed-uniform", "hash-keys")
"""Methods whose answers depend on the seed."""

_STRONGEST = {
    "desc": ("hash-drop", "shed-uniform", "hash-backlog", "hash-keys"),
    "weighted": ("hash-drop", "shed-uniform", "hash-keys"),
    "asc": ("hash-drop", "shed-uniform", "hash-keys"),
}
"""Opponents measured where none is named, by preference, as in the benchmark `truth`: the advice names the best."""

_DOUBLINGS = 4
"""How many times the columns of a sketch that is too small are doubled."""


def _asked(plan: JoinPlan, wanted: Wanted) -> Asked:
    """What a report of this plan measures.  Raises BudgetError, ConfigError."""
    opponents = [name for name in METHODS if name != plan.method and not (plan.output == "ranges" and name in SCANNING)]
    usual = [name for name in _STRONGEST[plan.preference] if name in opponents]
    return Asked.of(wanted, opponents=opponents, usual=usual, engines=ENGINES)


def join_accuracy(answer: AnsweredJoin, wanted: Wanted, query: str) -> AccuracyReport:
    """Run, score and look closely.  An answer that is exact gives way to the budget nearest to LOOKED_AT.

    Raises MemoryRefused, and of engine "spark" JavaMissing and SparkFailed.
    """
    plan, joined = answer.plan, answer.joined
    asked = _asked(plan, wanted)
    exact = ELSEWHERE.get(asked.engine, exact_pairs)(joined)
    closely = answer.again(budget=asked.looked_at) if plan.is_exact else answer
    if closely.plan.budget.fraction is not None:
        asked = asked.with_budget(closely.plan.budget.fraction)
    runs, intervals = _runs(closely, exact, asked, wanted.step)
    pairs = closely.pairs()
    obtained = Obtained(pairs.left, pairs.right, pairs.weight)
    found = outliers_of(joined, exact, obtained, plan.outlier_cap)
    cells = _cells(closely, plan.spec)
    guided = plan.method == "nile" and plan.guide == "countsketch"
    rarest_first = None
    if found.missed and plan.preference != "asc" and plan.method == "nile":
        rarest_first = join_record(_asc(closely), exact)["outlier_recall"]
    return AccuracyReport(
        query=query,
        kind="join",
        preference=plan.preference,
        exact=len(exact),
        looked_at=join_record(closely, exact),
        runs=tuple(runs),
        histograms=_histograms(closely, exact, obtained),
        outliers=found,
        intervals=tuple(intervals),
        cells=tuple(cells),
        skew=_skew(exact),
        wider=tuple(_wider(closely, cells)) if guided else (),
        asc_finds=None if rarest_first is None else round(rarest_first * found.total),
        warnings=closely.warnings,
    )


def _runs(
    answer: AnsweredJoin, exact: ExactPairs, asked: Asked, step: Step
) -> tuple[list[dict[str, Any]], list[Interval]]:
    """A record of every method, budget and seed; the intervals are those of the query's own method."""
    plan = answer.plan
    intervals: list[Interval] = []

    def run(method: str, budget: float, seed: int) -> dict[str, Any]:
        ran = _run(answer, method, budget, seed)
        record = join_record(ran, exact)
        if method == plan.method:
            truth = record["outliers"] if plan.preference == "asc" else len(exact)
            intervals.append(Interval.told("pairs", budget, seed, ran.estimate, float(truth)))
        return {**record, "preference": plan.preference}

    return asked.sweep(plan.method, plan.seed, step, run, seeded=_SEEDED), intervals


def _run(answer: AnsweredJoin, method: str, budget: float, seed: int) -> AnsweredJoin:
    """The answer itself where it is what is asked, else another over the same streams."""
    plan = answer.plan
    if (method, budget, seed) == (plan.method, plan.budget.fraction, plan.seed):
        return answer
    return answer.again(budget, seed=seed, method=method, preference=told_preference(method, plan.preference))


def _asc(answer: AnsweredJoin) -> AnsweredJoin:
    """The same budget spent on rare keys, over a summary that can tell them from heavy ones."""
    rows = max(answer.plan.spec.rows, SummarySpec(granularity=1).rows)
    return answer.again(preference="asc", spec=replace(answer.plan.spec, rows=rows))


# --- histograms -------------------------------------------------------------------------------------------


def _histograms(answer: AnsweredJoin, exact: ExactPairs, obtained: Obtained) -> tuple[Compared, ...]:
    if not len(exact):
        return ()
    window = answer.plan.window
    by_key, by_age = histograms(exact, obtained, window=window)
    widest = int(exact.age.max()) if window is None else window
    ages = tuple(
        f"{duration(widest * i / BINS / 1e9)} to {duration(widest * (i + 1) / BINS / 1e9)}" for i in range(BINS)
    )
    return (
        Compared("Pairs by key", f"{answer.key}, in order", _key_bins(answer, exact), by_key),
        Compared("Pairs by age", "time between the two tuples", ages, by_age),
    )


def _key_bins(answer: AnsweredJoin, exact: ExactPairs) -> tuple[str, ...]:
    first = np.unique(exact.key_rank, return_index=True)[1]
    keys = answer.joined.left.key.take(pa.array(exact.left[first]))
    return bin_texts(keys, np.arange(exact.keys) * BINS // max(exact.keys, 1))


def _skew(exact: ExactPairs) -> float | None:
    """The share of the pairs that the tenth of keys with most of them has."""
    if not len(exact):
        return None
    counts = np.sort(np.bincount(exact.key_rank))[::-1]
    return float(counts[: max(1, -(-exact.keys // 10))].sum() / len(exact))


# --- the summary ------------------------------------------------------------------------------------------


def _cells(answer: AnsweredJoin, spec: SummarySpec) -> list[CellErrors]:
    data, joined = answer.input, answer.joined
    sides = zip(joined.streams, (data.left, data.right), strict=True)
    names = [stream.name for stream in joined.streams]
    if names[0] == names[1]:
        names = ["left", "right"]
    made = (
        cell_errors(name, stream, encoded, joined.keys, spec)
        for name, (stream, encoded) in zip(names, sides, strict=True)
    )
    return [one for one in made if one is not None]


def _wider(answer: AnsweredJoin, cells: list[CellErrors]) -> Iterator[tuple[int, float]]:
    """Summaries with more columns, measured until one is wide enough."""
    if not any((one.share or 0.0) > TOO_WRONG for one in cells):
        return
    spec = answer.plan.spec
    for _ in range(_DOUBLINGS):
        spec = replace(spec, columns=2 * spec.columns)
        shares = [one.share for one in _cells(answer, spec) if one.share is not None]
        yield spec.columns, max(shares)
        if max(shares) <= TOO_WRONG:
            return
