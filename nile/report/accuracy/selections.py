"""The accuracy of standing selections: what share of the satisfying tuples was found, by value and by time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.selection.plan import SELECTION_METHODS
from nile.report.accuracy.asking import Asked
from nile.report.accuracy.report import AccuracyReport
from nile.report.accuracy.reporting import Step, Wanted
from nile.report.accuracy.short_values import bin_texts
from nile.report.histograms import BINS, Histogram, ideal_mse
from nile.report.pages.bars import Compared
from nile.report.pages.heatmap import moment
from nile.report.records import finite
from nile.report.truth import plain
from nile.summaries.heavy import pa, pc

if TYPE_CHECKING:
    from nile.report.answered import AnsweredSelections

__all__ = ["selection_accuracy"]

Array = np.ndarray[Any, Any]


class _Exact:
    """Every tuple that satisfies a selection, as evaluated; a tuple counts once for each selection it satisfies.

    rows: of each selection, ordinals.  code, ts: of each tuple of the stream.
    """

    def __init__(self, answer: AnsweredSelections) -> None:
        self.rows = answer.truth()
        self.ts = answer.loaded.ts
        coded = _coded(answer.loaded.key)
        self.code = coded.indices.to_numpy()
        every = np.concatenate([np.zeros(0, np.int64), *self.rows])
        self.total = int(every.shape[0])
        has = np.unique(self.code[every])
        values = plain(coded.dictionary.take(pa.array(has)))
        order = pc.sort_indices(values).to_numpy()
        self.keys = values.take(pa.array(order))
        self.bins = np.arange(has.shape[0]) * BINS // max(1, has.shape[0])
        self._bin_of = np.zeros(int(self.code.max(initial=0)) + 1, np.int64)
        self._bin_of[has[order]] = self.bins
        self.begin, self.span = int(self.ts[every].min(initial=_LAST)), 0
        if self.total:
            self.span = int(self.ts[every].max()) - self.begin
        self.by_value = np.bincount(self._bin_of[self.code[every]], minlength=BINS)
        self.by_time = np.bincount(self._time_bins(every), minlength=BINS)

    def histograms(self, found: Array) -> tuple[Histogram, Histogram]:
        """By value and by time.  found: ordinals, each selection's one after another."""
        ones = np.ones(found.shape[0])
        return (
            Histogram.weighed(self.by_value, self._bin_of[self.code[found]], ones),
            Histogram.weighed(self.by_time, self._time_bins(found), ones),
        )

    def times(self) -> tuple[str, ...]:
        """The bins of time in words."""
        edges = [moment(self.begin + self.span * i // BINS) for i in range(BINS + 1)]
        return tuple(f"{edges[i]} to {edges[i + 1]}" for i in range(BINS))

    def _time_bins(self, ordinals: Array) -> Array:
        if not self.span:
            return np.zeros(ordinals.shape[0], np.int64)
        share = (self.ts[ordinals] - self.begin) / self.span
        bins: Array = np.minimum(BINS - 1, np.floor(share * BINS)).astype(np.int64)
        return bins


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Each tuple's value as the place of a distinct one, null being one of them."""
    coded = plain(column).dictionary_encode(null_encoding="encode").unify_dictionaries().combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.nulls(0, plain(column).type))
    return coded


_LAST = (1 << 63) - 1


def selection_accuracy(answer: AnsweredSelections, wanted: Wanted, query: str) -> AccuracyReport:
    """Run, count and look closely.  An answer that is exact gives way to the budget nearest to LOOKED_AT.

    Selections draw nothing at random, so one seed is run.  Raises BudgetError, ConfigError.
    """
    plan = answer.plan
    opponents = [name for name in SELECTION_METHODS if name != plan.method]
    usual = [name for name in ("naive",) if name in opponents]
    asked = Asked.of(wanted, opponents=opponents, usual=usual, engines=("local",))
    closely = answer.again(asked.looked_at) if plan.is_exact else answer
    asked = asked.with_budget(closely.plan.fraction)
    exact = _Exact(answer)
    looked_at, compared = _record(closely, exact)
    titles = (("Tuples by value", "value, in order", bin_texts(exact.keys, exact.bins)),
              ("Tuples by time", "time", exact.times()))  # fmt: skip
    return AccuracyReport(
        query=query,
        kind="selection",
        preference=plan.preference,
        exact=exact.total,
        looked_at=looked_at,
        runs=tuple(_runs(closely, exact, asked, wanted.step)),
        histograms=tuple(
            Compared(title, across, bins, each) for (title, across, bins), each in zip(titles, compared, strict=True)
        )
        if exact.total
        else (),
        warnings=closely.warnings,
        notes=("A selection tells no interval: what it found is a lower bound, and nothing is drawn at random.",),
    )


def _runs(answer: AnsweredSelections, exact: _Exact, asked: Asked, step: Step) -> list[dict[str, Any]]:
    plan = answer.plan

    def run(method: str, budget: float, _: int) -> dict[str, Any]:
        return {**_record(answer.again(budget, method=method), exact)[0], "preference": plan.preference}

    return replace(asked, seeds=1).sweep(plan.method, plan.seed, step, run, seeded=())


def _record(answer: AnsweredSelections, exact: _Exact) -> tuple[dict[str, Any], tuple[Histogram, Histogram]]:
    """The record of a run: `found` is its recall under the name that charts of selections have."""
    plan = answer.plan
    rows = [answer.ordinals(name) for name in answer.names]
    right = [np.intersect1d(mine, wanted) for mine, wanted in zip(rows, exact.rows, strict=True)]
    found = np.concatenate([np.zeros(0, np.int64), *right])
    by_value, by_time = exact.histograms(found)
    share = found.shape[0] / exact.total if exact.total else None
    record = {
        "method": plan.method,
        "guide": plan.promise if plan.method == "nile" else None,
        "structure": plan.structure if plan.method == "paper" else None,
        "preference": plan.preference,
        "budget": plan.fraction,
        "budget_unit": "fraction",
        "seed": plan.seed,
        "output": plan.output,
        "costs": plan.costs.name,
        "replay": plan.pace.replay,
        "window_s": None if plan.window is None else plan.window / 1e9,
        "exact_pairs": exact.total,
        "pairs": int(found.shape[0]),
        "recall": share,
        "found": share,
        "false_pairs": sum(mine.shape[0] for mine in rows) - int(found.shape[0]),
        "hist_mse_key": by_value.mse,
        "hist_mse_key_ideal": ideal_mse(exact.by_value, found.shape[0]),
        "hist_mse_age": None,
        "hist_mse_time": by_time.mse,
        "outlier_precision": None,
        "outlier_recall": None,
        "budget_spent": answer.budget.spent,
        "fraction_spent": answer.budget.fraction,
        "reproducible": True,
        "accounting": {"stream": answer.accounting.as_dict()},
    }
    return finite(record), (by_value, by_time)
