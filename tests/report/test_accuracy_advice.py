"""Advice follows from figures: for every sentence a report that asks for it, and one that does not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.zone import Zone
from nile.report.accuracy.groups import GroupErrors, NumberError
from nile.report.accuracy.intervals import Interval, coverages, reading, tail
from nile.report.accuracy.outliers import Outliers
from nile.report.accuracy.report import AccuracyReport
from nile.report.accuracy.summary_cells import CellErrors


def record(method: str, budget: float, **figures: Any) -> dict[str, Any]:
    guide = "countsketch" if method == "nile" else None
    return {
        "method": method, "guide": guide, "preference": "desc", "budget": budget, "budget_unit": "fraction",
        "seed": 0, "exact_pairs": 1000, "coverage": 1.0, "false_pairs": 0, **figures,
    }  # fmt: skip


def report(
    mine: dict[float, float], theirs: dict[float, float] | None = None, *, figure: str = "recall",
    preference: str = "desc", **parts: Any,
) -> AccuracyReport:  # fmt: skip
    """A report with one figure of nile, and of hash-drop, by budget; looked at is the first."""
    runs = [record("nile", b, **{figure: value}) for b, value in mine.items()]
    runs += [record("hash-drop", b, **{figure: value}) for b, value in (theirs or {}).items()]
    runs = [{**run, "preference": preference} for run in runs]
    given = {"query": "q", "kind": "join", "exact": 1000, "looked_at": runs[0]} | parts
    return AccuracyReport(preference=preference, runs=tuple(runs), **given)


def told(given: AccuracyReport) -> str:
    return "\n".join(given.advice).replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " ")


def test_the_budget_that_is_enough_lies_between_the_two_that_were_tried() -> None:
    assert told(report({0.1: 0.8, 0.2: 1.0})) == (
        "desc reaches 90 % of the output at a budget of about 15 %: 80 % at 10 %, 100 % at 20 %."
    )


def test_a_least_budget_that_is_enough_and_a_largest_that_is_not_are_told_as_such() -> None:
    assert told(report({0.1: 0.95, 0.2: 1.0})) == "desc reaches 95 % of the output at 10 %, the least budget tried."
    assert told(report({0.1: 0.2, 0.5: 0.6})) == (
        "desc reaches at most 60 % of the output, at 50 %: for 90 % allow a larger budget."
    )


def test_a_budget_that_was_not_kept_is_told_and_not_compared() -> None:
    spent = {0.1: 1.02, 0.2: 1.02, 0.5: 0.5}
    runs = [record("nile", budget, recall=1.0, fraction_spent=share) for budget, share in spent.items()]
    runs += [record("hash-drop", budget, recall=budget, fraction_spent=budget) for budget in spent]
    given = AccuracyReport("q", "join", "desc", 1000, runs[0], tuple(runs))
    assert told(given).splitlines() == [
        "desc took 102 % of the exact work where 10 % was asked, and more than asked at 2 budgets: of so little the "
        "whole answer costs less than choosing from it, so leave the preference out.",
        "desc reaches 100 % of the output at 10 %, the least budget tried.",
        "Promise pays against hash-drop: ahead in share of pairs at 1 of 1 budgets below 100 %, up to 2.0 times "
        "better.",
    ]


def test_asc_is_about_outliers() -> None:
    given = report({0.1: 0.8, 0.2: 1.0}, figure="outlier_recall", preference="asc")
    assert told(given).startswith("asc reaches 90 % of the outliers at a budget of about 15 %")


@pytest.mark.parametrize(
    ("ratios", "sentence"),
    [
        ({0.1: 5.0, 0.2: 1.5, 0.5: 1.1}, "weighted is a faithful sample from 20 % on"),
        ({0.1: 1.5, 0.2: 5.0, 0.5: 1.1}, "weighted is a faithful sample from 50 % on"),
        (
            {0.1: 1.5, 0.2: 4.0},
            "Even at 20 % weighted is 4.0 times as far from the exact histogram by key as a uniform",
        ),
    ],
)
def test_weighted_is_about_the_distance_of_a_uniform_sample(ratios: dict[float, float], sentence: str) -> None:
    runs = tuple(
        {**record("nile", b, hist_mse_key=0.01 * ratio, hist_mse_key_ideal=0.01), "preference": "weighted"}
        for b, ratio in ratios.items()
    )
    given = AccuracyReport("q", "join", "weighted", 1000, runs[0], runs)
    assert told(given).startswith(sentence)


def test_an_opponent_that_is_beaten_and_one_that_is_not() -> None:
    mine = {0.1: 0.4, 0.2: 0.5, 1.0: 1.0}
    assert "Promise pays against hash-drop: ahead in share of pairs at 2 of 2 budgets below 100 %, up to 4.0 times" in (
        told(report(mine, {0.1: 0.1, 0.2: 0.2, 1.0: 1.0}))
    )
    even = report(mine, mine, skew=0.12)
    assert told(even).endswith(
        "Promise gains nothing over hash-drop at any budget below 100 %: the tenth of keys with most of the output has "
        "12 % of it, so the data has no skew to use; say WITH PREFERENCE weighted for a faithful sample."
    )
    assert told(report(mine, mine, skew=0.9)).endswith("the tenth of keys with most of the output has 90 % of it.")


def test_a_sample_without_a_pair_is_no_faithful_one() -> None:
    given = {"hist_mse_key": 0.01, "hist_mse_key_ideal": 0.01}
    runs = [
        {**record("nile", b, **(given if b > 0.1 or seed else {})), "preference": "weighted", "seed": seed}
        for b in (0.1, 0.2) for seed in range(2)
    ]  # fmt: skip
    assert told(AccuracyReport("q", "join", "weighted", 1000, runs[0], tuple(runs))).startswith(
        "weighted is a faithful sample from 20 % on"
    )
    assert told(AccuracyReport("q", "join", "weighted", 1000, runs[0], tuple(runs[:2]))) == (
        "Even at 10 % some samples have no pair: allow more budget."
    )


def several(mine: dict[float, float], **theirs: dict[float, float]) -> AccuracyReport:
    """Three seeds of nile, a hundredth apart, and some of opponents."""
    runs = [{**record("nile", b, recall=x + 0.01 * seed), "seed": seed} for b, x in mine.items() for seed in range(3)]
    for name, curve in theirs.items():
        method = name.replace("_", "-")
        runs += [{**record(method, b, recall=x), "seed": seed} for b, x in curve.items() for seed in range(3)]
    return AccuracyReport("q", "join", "desc", 1000, runs[0], tuple(runs))


def test_an_opponent_that_does_better_is_named_and_the_strongest_comes_first() -> None:
    mine = {0.1: 0.4, 0.2: 0.5, 1.0: 1.0}
    said = told(several(mine, hash_drop={0.1: 0.1, 0.2: 0.2, 1.0: 1.0}, shed_uniform={0.1: 0.2, 0.2: 0.9, 1.0: 1.0}))
    pays = said.index("Promise pays against shed-uniform, the strongest opponent: ahead in share of pairs at 1 of 2")
    better = said.index(
        "shed-uniform, the strongest opponent, does better in share of pairs at 20 %, up to 1.8 times better: say "
        "method='shed-uniform' there, or allow more budget."
    )
    assert pays < better < said.index("Promise pays against hash-drop: ahead in share of pairs at 2 of 2")
    scarcely = several(mine, hash_drop={0.1: 0.43, 0.2: 0.5, 1.0: 1.0})
    assert "does better" not in told(scarcely)
    assert "does better" in told(several(mine, hash_drop={0.1: 0.44, 0.2: 0.5, 1.0: 1.0}))


def cells(off: float, *, columns: int = 64) -> CellErrors:
    spec = SummarySpec(granularity=1_000, rows=1, columns=columns)
    zone = Zone(1, 0, 0, 100, 0, 1_000_000_000, 100)
    return CellErrors("s", spec, (zone,), np.array([[100]]), np.array([[off]]), ())


def test_a_small_sketch_is_told_with_the_width_that_was_measured_to_be_enough() -> None:
    assert "sketch" not in told(report({0.1: 1.0}, cells=(cells(10.0),)))
    given = report({0.1: 1.0}, cells=(cells(30.0),), wider=((128, 0.2), (256, 0.05)))
    assert (
        "with columns=64 its estimates are off by 30 % of the count of s; with columns=256 they would be off by 5 %"
        in (told(given))
    )
    assert "give the summary more columns" in told(replace(given, wider=()))
    other = replace(given, looked_at={**given.looked_at, "guide": "directory"})
    assert "A count sketch of this size would be off by 30 %" in told(other)
    assert "the guide of this query is directory, which does not ask it" in told(other)


def test_outliers_that_were_missed_are_told_with_what_asc_finds() -> None:
    missed = Outliers(4, 30, 70, 2, (), ())
    given = report({0.1: 1.0}, outliers=missed, asc_finds=90)
    assert "desc finds 30 of 100 outliers at 10 %, WITH PREFERENCE asc 90: say asc if they matter." in told(given)
    for no_more in (30, 40):  # by less than chance may
        assert told(replace(given, asc_finds=no_more)).endswith(f"WITH PREFERENCE asc {no_more}.")
    asc = report({0.1: 0.3}, figure="outlier_recall", preference="asc", outliers=missed)
    assert (
        "70 of 100 outliers were missed at 10 %: no larger budget that was tried is sure to find more of them, "
        "the exact join finds all."
    ) in told(asc)
    for curve in ({0.1: 0.3, 0.2: 0.3, 0.5: 0.6, 1.0: 1.0}, {0.1: 0.3, 0.2: 0.2, 0.5: 0.6}):
        tried = report(curve, figure="outlier_recall", preference="asc", outliers=missed)
        assert "70 of 100 outliers were missed at 10 %: allow 50 %, which finds 60 % of them." in told(tried)
    assert "missed" not in told(replace(given, outliers=Outliers(4, 100, 0, 2, (), ())))


def test_a_cap_below_every_key_is_told_with_one_that_is_not() -> None:
    given = report({0.1: 0.3}, preference="asc", outliers=Outliers(4, 0, 0, 7, (), ()))
    assert "No pair is an outlier with outlier_cap=4: the rarest key of a pair has 7 tuples" in told(given)
    assert "say outlier_cap=7" in told(given)


def interval(budget: float, held: bool, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    return Interval("pairs", budget, seed, 90.0, 80.0, 110.0 if held else 95.0, confidence, False, 100.0)


def test_intervals_that_fail_more_often_than_chance_allows_are_told() -> None:
    good = report({0.1: 1.0}, intervals=tuple(interval(0.1, i > 0) for i in range(20)))
    assert "rely" not in told(good)
    bad = report({0.1: 1.0}, intervals=tuple(interval(0.1, i > 9) for i in range(20)))
    assert "Intervals with a nominal 95 % held the truth only in 10 of 20 at 10 %, fewer than chance allows" in told(
        bad
    )
    certain = report({0.1: 1.0}, intervals=(interval(0.1, held=False, confidence=1.0),))
    assert "Bounds that should be certain held the truth only in 0 of 1 at 10 %" in told(certain)


def test_coverage_is_counted_by_budget_over_the_intervals_that_claim_something() -> None:
    known = Interval("pairs", 0.2, 0, 100.0, 100.0, 100.0, 1.0, True, 100.0)
    guess = Interval("pairs", 0.2, 0, 90.0, -math.inf, math.inf, 0.0, False, 100.0)
    found = coverages([interval(0.1, held=True), interval(0.1, held=False), known, guess])
    assert [(one.budget, one.count, one.held, one.nominal) for one in found] == [(0.1, 2, 1, 0.95)]
    assert found[0].width == pytest.approx((0.3 + 0.15) / 2)
    assert reading(found).startswith("Of 2 intervals at a nominal 95")
    assert reading(()) == "No run told an interval that could be wrong."


def test_the_tail_of_the_binomial_is_that_of_a_plain_sum() -> None:
    for held, count, p in ((3, 10, 0.5), (17, 20, 0.95), (0, 5, 0.9), (20, 20, 0.95), (4, 5, 1.0)):
        plain = sum(math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(held + 1))
        assert tail(held, count, p) == pytest.approx(plain)
    assert tail(1900, 2000, 0.95) == pytest.approx(0.52, abs=0.02)


def test_faults_and_forgetting_come_first() -> None:
    given = report({0.1: 1.0})
    broken = replace(given, runs=({**given.runs[0], "false_pairs": 3},))
    assert broken.advice[0].startswith("3 outputs were repeats or not in the exact answer: a fault of the engine")
    short = replace(given, looked_at={**given.looked_at, "coverage": 0.5})
    assert "was still held, the rest was forgotten" in short.advice[0]


def test_warnings_of_the_answer_are_passed_on() -> None:
    assert told(report({0.1: 1.0}, warnings=("the whole answer is cheaper",))).endswith("the whole answer is cheaper")


def test_aggregates_are_advised_by_their_errors() -> None:
    numbers = [NumberError("a", "n", 10.0, 9.0, 8.0, 12.0), NumberError("b", "n", 5.0, None, None, None)]
    found = GroupErrors.of(numbers)
    assert (found.numbers, found.missing, found.median, found.greatest) == (
        2,
        1,
        pytest.approx(0.1),
        pytest.approx(0.1),
    )
    assert [one.group for one in found.worst] == ["b", "a"]
    given = report({0.1: 0.1, 0.5: 0.03}, figure="error_median", preference="weighted", kind="aggregate", groups=found)
    assert "Half of the numbers are within 5 % of the exact ones from 50 % on." in told(given)
    assert "1 of 2 numbers are of groups of which nothing was read" in told(given)
    worse = report({0.1: 0.2, 0.5: 0.1}, figure="error_median", preference="weighted", kind="aggregate", groups=found)
    assert "Half of the numbers are off by 10 % or more even at 50 %" in told(worse)


def test_a_number_that_is_exactly_right_is_not_among_the_worst_and_an_exact_0_has_no_share() -> None:
    found = GroupErrors.of([NumberError("", "n", 0.0, 0.0, 0.0, 0.0), NumberError("", "m", 0.0, 1.0, None, None)])
    assert [one.name for one in found.worst] == ["m"]
    assert found.record()["greatest"] is None
    assert "one of an exact 0 by any measure" in found.reading()
