"""Following the advice of a report improves the figure that it is about: over twenty pairs of streams and retail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from nile.answers.join_answer import JoinAnswer
from nile.experiments.benchmarks.truth.family import FAMILY, made, real
from nile.experiments.run.retail import retail_file
from nile.operators.common.plan import JoinPlan, default_spec, told_preference
from nile.operators.inputs.joining import Joinable
from nile.preferences.budget import Budget
from nile.report.accuracy.advice import ENOUGH, FAITHFUL
from nile.report.accuracy.report import AccuracyReport
from nile.report.accuracy.summary_cells import cell_errors
from nile.report.records import join_record
from nile.report.runs import FIGURES as RUN_FIGURES
from nile.report.truth import exact_pairs
from nile.report.verdict import Outcome, duel

TUPLES = 1_200
BUDGETS = (0.02, 0.05, 0.1, 0.3)
FRESH = range(1_000, 1_008)
"""Seeds that no report has seen."""
MANY = range(1_000, 1_040)
"""As many as tell how far samples are from the exact histogram: a key that few have moves the mean of eight by half."""
NAMES = sorted(FAMILY)[:20]
FIGURES = {"desc": "recall", "weighted": "hist_mse_key", "asc": "outlier_recall"}
_EMPTY = {"hist_mse_key": 1.0}
"""What an answer with nothing in it counts as."""
BETTER = {"recall": 1, "hist_mse_key": -1, "outlier_recall": 1}


@dataclass(frozen=True)
class Followed:
    """One piece of advice: what it is about without it and with it, over fresh seeds, and which way is better."""

    sentence: str
    without: float
    followed: float
    better: int = 1

    @property
    def improves(self) -> bool:
        return self.better * (self.followed - self.without) > 0.0


class Following:
    """The advice of one answer's report, followed."""

    def __init__(self, joined: Joinable, preference: str, guide: str = "directory", **options: Any) -> None:
        plan = JoinPlan(
            window=joined.window, budget=Budget(0.05), preference=preference, guide=guide,
            spec=default_spec(joined.window, ranking=preference != "asc", seed=0), seed=0, **options,
        )  # fmt: skip
        self.answer = JoinAnswer(joined, plan, key="key")
        self.exact = exact_pairs(joined)
        self.report: AccuracyReport = self.answer.report(budgets=BUDGETS, seeds=5)

    def mean(self, figure: str, budget: float, seeds: range = FRESH, **changes: Any) -> float:
        """Of a figure over fresh seeds."""
        records = [join_record(self.answer.again(budget, seed=seed, **changes), self.exact) for seed in seeds]
        return float(np.mean([_EMPTY.get(figure, 0.0) if (x := record[figure]) is None else x for record in records]))

    def __iter__(self) -> Iterator[Followed]:
        for sentence in self.report.advice:
            plain = re.sub("[\N{NARROW NO-BREAK SPACE}\N{NO-BREAK SPACE}]", " ", sentence)
            yield from self._follow(plain)

    def _follow(self, said: str) -> Iterator[Followed]:
        looked, preference = 0.05, self.answer.plan.preference
        figure = FIGURES[preference]
        if enough := re.search(r"at a budget of about ([\d.]+) %", said):
            budget = float(enough[1]) / 100.0
            reached = self.mean(figure, budget)
            assert abs(reached - ENOUGH) <= 0.1, said
            yield Followed(said, self.mean(figure, BUDGETS[0]), reached)
        elif "allow a larger budget" in said:
            yield Followed(said, self.mean(figure, BUDGETS[-1]), self.mean(figure, 2.0 * BUDGETS[-1]))
        elif "is a faithful sample from" in said:
            budget = float(re.search(r"from ([\d.]+) %", said)[1]) / 100.0  # type: ignore[index]
            mse, ideal = self.mean(figure, budget, MANY), self.mean(f"{figure}_ideal", budget, MANY)
            yield Followed(said, FAITHFUL * 1.5 * ideal, mse, -1)
        elif "so allow more budget, or look at ages" in said or "have no pair: allow more budget" in said:
            yield Followed(said, self.mean(figure, BUDGETS[-1]), self.mean(figure, 2.0 * BUDGETS[-1]), -1)
        elif "say WITH PREFERENCE weighted" in said:
            with_it = self.mean("hist_mse_key", looked, preference="weighted")
            yield Followed(said, self.mean("hist_mse_key", looked), with_it, -1)
        elif cap := re.search(r"say outlier_cap=(\d+)", said):
            found = self.mean("outliers", looked, outlier_cap=int(cap[1]))
            yield Followed(said, self.mean("outliers", looked), found)
        elif method := re.search(r"does better in .* (?:at|from) .*: say method='([a-z-]+)' there", said):
            for budget in (budget for budget in BUDGETS if budget in self._behind(method[1])):
                yield Followed(said, self.mean(figure, budget), self._by(method[1], figure, budget), BETTER[figure])
        elif missed := re.search(r"outliers were missed at .*: (?:allow ([\d.]+) %|no larger budget)", said):
            budget = float(missed[1]) / 100.0 if missed[1] else 1.0
            yield Followed(said, self.mean(figure, looked), self.mean(figure, budget))
        elif "say asc if they matter" in said:
            spec = replace(self.answer.plan.spec, rows=3)
            with_it = self.mean("outlier_recall", looked, preference="asc", spec=spec)
            yield Followed(said, self.mean("outlier_recall", looked), with_it)
        elif columns := re.search(r"with columns=(\d+) they would be off by", said):
            yield Followed(said, self._misjudged(None), self._misjudged(int(columns[1])), -1)

    def _behind(self, method: str) -> set[float]:
        """The budgets where the report has seen an opponent do better."""
        runs, figure = self.report.curves, FIGURES[self.answer.plan.preference]
        assert runs.champion is not None
        rival = next(one for one in runs.opponents if one.method == method)
        held = duel(runs, self.answer.plan.preference, RUN_FIGURES[figure], runs.champion, rival)
        return set(held.budgets(Outcome.BEHIND))

    def _by(self, method: str, figure: str, budget: float) -> float:
        return self.mean(figure, budget, method=method, preference=told_preference(method, self.answer.plan.preference))

    def _misjudged(self, columns: int | None) -> float:
        """The largest share of a stream's count that a sketch misjudges, of fresh seeds."""
        data, joined, shares = self.answer.input, self.answer.joined, []
        for seed in FRESH:
            spec = replace(self.answer.plan.spec, seed=seed)
            spec = spec if columns is None else replace(spec, columns=columns)
            for stream, encoded in zip(joined.streams, (data.left, data.right), strict=True):
                told = cell_errors(stream.name, stream, encoded, joined.keys, spec)
                shares.append(0.0 if told is None or told.share is None else told.share)
        return float(np.mean(shares))


@pytest.mark.parametrize("preference", sorted(FIGURES))
def test_following_the_advice_improves_the_figure_over_one(preference: str) -> None:
    """The short form of the next test."""
    followed = list(Following(made("late heavy key", TUPLES), preference))
    assert followed
    assert all(one.improves for one in followed)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_following_the_advice_improves_the_figure(name: str) -> None:
    """Each preference; each sentence that says what to do."""
    joined = made(name, TUPLES)
    followed = [one for preference in FIGURES for one in Following(joined, preference)]
    assert followed
    worse = [one for one in followed if not one.improves]
    assert not worse


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float keys", "hosts", "text keys"])
def test_a_sketch_as_wide_as_is_advised_is_off_by_less(name: str) -> None:
    told = list(Following(made(name, TUPLES), "desc", "countsketch"))
    assert all(one.improves for one in told)


@pytest.mark.slow
@pytest.mark.parametrize("preference", sorted(FIGURES))
def test_following_the_advice_improves_the_figure_over_retail(preference: str) -> None:
    path = retail_file()
    if path is None:
        pytest.skip("the retail file is not there")
    followed = list(Following(real(path)["retail by item, 1 h"], preference))
    assert all(one.improves for one in followed)
