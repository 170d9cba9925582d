"""The accuracy of a join of several streams, or of two under a condition on the pair: recall, weights, intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.plan import PREFERRING, told_preference
from nile.operators.multiway.multiway import METHODS
from nile.report.accuracy.asking import Asked
from nile.report.accuracy.intervals import Interval
from nile.report.accuracy.report import AccuracyReport
from nile.report.accuracy.reporting import Step, Wanted
from nile.report.accuracy.short_values import bin_texts
from nile.report.histograms import BINS, Histogram, ideal_mse
from nile.report.pages.bars import Compared
from nile.report.records import asked_of, finite
from nile.summaries.heavy import pc

if TYPE_CHECKING:
    from nile.report.answered import AnsweredCombinations

__all__ = ["combination_accuracy"]

Array = np.ndarray[Any, Any]


class _Exact:
    """What the exact pass says of each arrival and each key; no combination is listed.

    rank: place of each key code among the sorted keys that the answer has, -1 for others.
    """

    def __init__(self, answer: AnsweredCombinations) -> None:
        joined, plan = answer.joined, answer.plan
        self.passing = joined.passing
        self.rare = joined.exact.standing <= plan.outlier_cap
        self.total = int(self.passing.sum())
        self.outliers = int(self.passing[self.rare].sum())
        key = answer.arrival_keys
        counts = np.bincount(key[key >= 0], self.passing[key >= 0], joined.keys.known).astype(np.int64)
        has = np.flatnonzero(counts)
        values = joined.keys.values().take(has)
        order = pc.sort_indices(values).to_numpy()
        self.rank = np.full(joined.keys.known, -1, np.int64)
        self.rank[has[order]] = np.arange(has.shape[0])
        self.counts = counts[has[order]]
        self.keys = values.take(order)

    @property
    def bins(self) -> Array:
        """The bin of each ranked key: equal ranges of the rank, as `ExactPairs.by_key`."""
        bins: Array = np.arange(self.counts.shape[0]) * BINS // max(1, self.counts.shape[0])
        return bins

    def histogram(self, key: Array, weight: Array) -> Histogram:
        """Exact combinations by key, against the weights of those found.  key: codes."""
        bins = self.bins
        exact = np.bincount(bins, self.counts, BINS).astype(np.int64)
        return Histogram.weighed(exact, bins[self.rank[key]], weight)


def combination_accuracy(answer: AnsweredCombinations, wanted: Wanted, query: str) -> AccuracyReport:
    """Run, score and look closely.  An answer that is exact gives way to the budget nearest to LOOKED_AT.

    Raises BudgetError, ConfigError, MemoryRefused.
    """
    plan = answer.plan
    opponents = [name for name in METHODS if name != plan.method]
    asked = Asked.of(wanted, opponents=opponents, usual=opponents[-1:], engines=("local",))
    closely = answer.again(asked.looked_at) if plan.is_exact else answer
    if closely.plan.budget.fraction is not None:
        asked = asked.with_budget(closely.plan.budget.fraction)
    exact = _Exact(answer)
    runs, intervals = _runs(closely, exact, asked, wanted.step)
    looked_at, histogram = _record(closely, exact)
    return AccuracyReport(
        query=query,
        kind="combinations",
        preference=plan.preference,
        exact=exact.total,
        looked_at=looked_at,
        runs=tuple(runs),
        histograms=(
            (Compared("Combinations by key", "key, in order", bin_texts(exact.keys, exact.bins), histogram),)
            if exact.total
            else ()
        ),
        intervals=tuple(intervals),
        warnings=closely.warnings,
    )


def _runs(
    answer: AnsweredCombinations, exact: _Exact, asked: Asked, step: Step
) -> tuple[list[dict[str, Any]], list[Interval]]:
    plan = answer.plan
    truth = float(exact.outliers if plan.preference == "asc" else exact.total)
    intervals: list[Interval] = []

    def run(method: str, budget: float, seed: int) -> dict[str, Any]:
        told = told_preference(method, plan.preference)
        ran = answer.again(budget, seed=seed, method=method, preference=told)
        if method == plan.method:
            intervals.append(Interval.told("combinations", budget, seed, ran.estimate, truth))
        return {**_record(ran, exact)[0], "preference": plan.preference}

    return asked.sweep(plan.method, plan.seed, step, run, seeded=PREFERRING), intervals


def _record(answer: AnsweredCombinations, exact: _Exact) -> tuple[dict[str, Any], Histogram]:
    """The record of a run as `nile.report.records` has them, as far as combinations have its figures."""
    last, weight = answer.completions()
    found = int(last.shape[0])
    rare = int(exact.rare[last].sum())
    histogram = exact.histogram(answer.arrival_keys[last], weight)
    accounting = answer.accounting
    record = {
        **asked_of(answer.plan),
        "exact_pairs": exact.total,
        "pairs": found,
        "recall": found / exact.total if exact.total else None,
        "hist_mse_key": histogram.mse,
        "hist_mse_key_ideal": ideal_mse(np.array(histogram.exact), found),
        "hist_mse_age": None,
        "outliers": exact.outliers,
        "outlier_precision": rare / found if found else None,
        "outlier_recall": rare / exact.outliers if exact.outliers else None,
        "coverage": answer.coverage,
        "budget_spent": answer.budget.spent,
        "fraction_spent": answer.budget.fraction,
        "reproducible": answer.budget.reproducible,
        "tuples_in": sum(each.tuples_in for each in accounting.values()),
        "tuples_shed": sum(each.shed for each in accounting.values()),
        "accounting": {name: each.as_dict() for name, each in accounting.items()},
    }
    return finite(record), histogram
