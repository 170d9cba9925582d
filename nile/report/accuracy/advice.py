"""The advice of a report.  Every sentence is computed from its figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nile.report.accuracy.figures import about, looked_at, what
from nile.report.runs import Point, Runs, Series
from nile.report.verdict import Comparison, Duel, Outcome, duel
from nile.report.wording import asked, at_budgets, grouped_digits, listing, percent, times

if TYPE_CHECKING:
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["ENOUGH", "TOO_WRONG", "advice"]

ENOUGH = 0.9
"""The share of the output that a budget is named for."""

TOO_WRONG = 0.1
"""A sketch that misjudges more than this share of its tuples is too small."""

FAITHFUL = 2.0
"""A sample within this many times the ideal distance of a uniform one is called faithful."""

EVEN = 0.25
"""Keys have no skew to speak of when the heaviest tenth has less than this share of the exact answer."""

KEPT = 1.1
"""A run that has spent more than this many times its budget is not compared with one that kept to it."""

_CHANCE = 2.0
"""Standard deviations by which one count must be above another, were each a matter of chance."""


def advice(report: AccuracyReport) -> Iterator[str]:
    """The sentences, those about the answer's soundness first."""
    yield from _sound(report)
    if not report.exact:
        yield "The exact answer is empty, so there is nothing to find: check the window and the conditions."
        return
    beyond = _beyond(report)
    yield from _whole(report, beyond)
    yield from _reach(report)
    yield from _gain(report, beyond)
    yield from _sketch(report)
    yield from _outliers(report)
    yield from _intervals(report)
    yield from report.warnings


def _sound(report: AccuracyReport) -> Iterator[str]:
    false = sum(int(run.get("false_pairs") or 0) for run in report.runs)
    if false:
        yield (
            f"{grouped_digits(false)} outputs were repeats or not in the exact answer: a fault of the engine; do not "
            "trust the other figures."
        )
    kept = report.looked_at.get("coverage")
    if kept is not None and kept < 1.0:
        yield (
            f"Only {percent(kept)} of the windows was still held, the rest was forgotten: leave forgetting out, or let "
            "the granularities span the window."
        )


def _reach(report: AccuracyReport) -> Iterator[str]:
    """Which budget is enough for what the preference is about."""
    runs, preference = report.curves, report.preference
    champion = runs.champion
    if champion is None:
        return
    if report.groups is not None:
        yield from report.groups.advice(runs, champion)
        return
    if preference == "weighted":
        yield from _faithful(runs, champion)
        return
    figure = about(report)
    points = runs.curve(champion, preference, figure.key).points
    if points:
        yield _reached(preference, what(figure), points)


def _reached(preference: str, whole: str, points: Sequence[Point]) -> str:
    at = next((i for i, point in enumerate(points) if point.mean >= ENOUGH), None)
    if at is None:
        best = max(points, key=lambda point: point.mean)
        return (
            f"{preference} reaches at most {percent(best.mean)} of {whole}, at {asked(best.budget)}: for "
            f"{percent(ENOUGH)} allow a larger budget."
        )
    point = points[at]
    if at == 0:
        return (
            f"{preference} reaches {percent(point.mean)} of {whole} at {asked(point.budget)}, the least budget tried."
        )
    before = points[at - 1]
    share = (ENOUGH - before.mean) / (point.mean - before.mean)
    between = before.budget + share * (point.budget - before.budget)
    return (
        f"{preference} reaches {percent(ENOUGH)} of {whole} at a budget of about {percent(between)}: "
        f"{percent(before.mean)} at {asked(before.budget)}, {percent(point.mean)} at {asked(point.budget)}."
    )


def _faithful(runs: Runs, champion: Series) -> Iterator[str]:
    mine = runs.curve(champion, "weighted", "hist_mse_key")
    ideal = runs.curve(champion, "weighted", "hist_mse_key_ideal")
    ratios = {
        point.budget: point.mean / best.mean if point.seeds == len(runs.seeds) else math.inf  # else some found nothing
        for point in mine.points
        if (best := ideal.at(point.budget)) and best.mean > 0
    }
    if not ratios:
        return
    close = [budget for budget in ratios if all(ratio <= FAITHFUL for at, ratio in ratios.items() if at >= budget)]
    last = max(ratios)
    if close:
        yield (
            f"weighted is a faithful sample from {asked(close[0])} on: by key at most {times(FAITHFUL)} times as far "
            "from the exact histogram as a uniform sample of as many pairs would be on average."
        )
    elif ratios[last] == math.inf:
        yield f"Even at {asked(last)} some samples have no pair: allow more budget."
    else:
        yield (
            f"Even at {asked(last)} weighted is {times(ratios[last])} times as far from the exact histogram by key as "
            "a uniform sample of as many pairs would be on average: pairs of one key are drawn together, so allow more "
            "budget, or look at ages instead."
        )


def _beyond(report: AccuracyReport) -> dict[float, float]:
    """The budgets below the whole that the preference did not keep to, and what it spent of the exact work."""
    runs = report.curves
    if runs.champion is None:
        return {}
    spent = runs.curve(runs.champion, report.preference, "fraction_spent").points
    return {each.budget: each.mean for each in spent if KEPT * each.budget < each.mean and each.budget < 1.0}


def _whole(report: AccuracyReport, beyond: Mapping[float, float]) -> Iterator[str]:
    """What was spent where it was more than asked."""
    if beyond:
        first = min(beyond)
        yield (
            f"{report.preference} took {percent(beyond[first])} of the exact work where {asked(first)} was asked"
            f"{f', and more than asked at {len(beyond)} budgets' if len(beyond) > 1 else ''}: of so little the whole "
            "answer costs less than choosing from it, so leave the preference out."
        )


def _gain(report: AccuracyReport, beyond: Mapping[float, float]) -> Iterator[str]:
    """Whether promise gains anything over each opponent, the strongest first, and where one of them does better.

    Only at budgets that it kept to.
    """
    runs, preference = report.curves, report.preference
    champion, figure = runs.champion, about(report)
    if champion is None or report.groups is not None or not runs.opponents:
        return
    against = [duel(runs, preference, figure, champion, rival) for rival in runs.opponents]
    strongest = _strongest(against)
    for held in sorted(against, key=lambda one: one is not strongest):
        fair = [one for one in held.comparisons if one.budget < 1.0 and one.budget not in beyond]
        below = [one for one in fair if one.outcome is not Outcome.ABSENT]
        if not below:
            continue
        name, first = held.theirs.name, len(against) > 1 and held is strongest
        known = f"{name}, the strongest opponent" if first else name
        ahead = sum(one.outcome is Outcome.AHEAD for one in below)
        behind = [one for one in below if one.outcome is Outcome.BEHIND and _is_sure(one, len(runs.seeds))]
        if ahead:
            yield _pays(known, replace(held, comparisons=tuple(below)), ahead)
        elif not behind:
            yield f"Promise gains nothing over {known} at any budget below 100 %{_why_even(report)}."
        if behind:
            yield _behind(f"{known}," if first else known, held, behind, [one.budget for one in below])


def _strongest(against: Sequence[Duel]) -> Duel:
    """The opponent that is the best at most budgets below the whole answer's, of several the first."""
    wins = [0] * len(against)
    for one in zip(*(held.comparisons for held in against), strict=True):
        found = [
            (held.figure.better * each.theirs.mean, -at)
            for at, (held, each) in enumerate(zip(against, one, strict=True))
            if each.budget < 1.0 and each.theirs is not None
        ]
        if found:
            wins[-max(found)[1]] += 1
    return against[wins.index(max(wins))]


def _is_sure(one: Comparison, seeds: int) -> bool:
    """Whether other seeds would say the same: means further apart than both scatter, and every seed has the figure.

    Of an empty sample there is none, and the others are too few to go by.
    """
    mine, theirs = one.mine, one.theirs
    if mine is None or theirs is None or mine.seeds != seeds or theirs.seeds != seeds:
        return False
    return abs(mine.mean - theirs.mean) > (mine.high - mine.low) + (theirs.high - theirs.low)


def _pays(name: str, held: Duel, ahead: int) -> str:
    ratios = [ratio for ratio in held.ratios(Outcome.AHEAD) if ratio]
    by = f", up to {times(max(ratios))} times better" if ratios else ""
    below = len(held.comparisons)
    return f"Promise pays against {name}: ahead in {held.figure.short} at {ahead} of {below} budgets below 100 %{by}."


def _behind(name: str, held: Duel, behind: Sequence[Comparison], below: Sequence[float]) -> str:
    ratios = [one.ratio for one in behind]
    by = f", up to {times(1.0 / min(filter(None, ratios)))} times better" if all(ratios) else ""
    return (
        f"{name} does better in {held.figure.short} {at_budgets([one.budget for one in behind], below)}{by}: "
        f"say method='{held.theirs.method}' there, or allow more budget."
    )


def _why_even(report: AccuracyReport) -> str:
    if report.skew is None:
        return ""
    told = f": the tenth of keys with most of the output has {percent(report.skew)} of it"
    if report.preference == "desc" and report.skew < EVEN:
        return f"{told}, so the data has no skew to use; say WITH PREFERENCE weighted for a faithful sample"
    return told


def _sketch(report: AccuracyReport) -> Iterator[str]:
    wrong = [(one.stream, share) for one in report.cells if (share := one.share) is not None and share > TOO_WRONG]
    if not wrong:
        return
    named = listing([f"{percent(share)} of the count of {stream}" for stream, share in wrong])
    if report.looked_at.get("guide") != "countsketch":
        yield (
            f"A count sketch of this size would be off by {named}; the guide of this query is "
            f"{report.looked_at.get('guide') or 'none'}, which does not ask it."
        )
        return
    columns = report.cells[0].spec.columns
    told = f"The sketch is small: with columns={columns} its estimates are off by {named}"
    if report.wider:
        best, share = report.wider[-1]
        yield f"{told}; with columns={best} they would be off by {percent(share)}."
    else:
        yield f"{told}; give the summary more columns."


def _outliers(report: AccuracyReport) -> Iterator[str]:
    found = report.outliers
    if found is None:
        return
    if report.preference == "asc" and not found.total and found.rarest is not None:
        yield (
            f"No pair is an outlier with outlier_cap={found.cap}: the rarest key of a pair has "
            f"{grouped_digits(found.rarest)} tuples in its window; say outlier_cap={found.rarest}."
        )
    if not found.missed:
        return
    if report.preference == "asc":
        yield (
            f"{grouped_digits(found.missed)} of {grouped_digits(found.total)} outliers were missed at "
            f"{looked_at(report)}: {_more_outliers(report)}."
        )
    elif report.asc_finds is not None:
        more = report.asc_finds - found.found > _CHANCE * math.sqrt(report.asc_finds + found.found)
        yield (
            f"{report.preference} finds {grouped_digits(found.found)} of {grouped_digits(found.total)} outliers at "
            f"{looked_at(report)}, WITH PREFERENCE asc {grouped_digits(report.asc_finds)}"
            f"{': say asc if they matter' if more else ''}."
        )


def _more_outliers(report: AccuracyReport) -> str:
    """The least budget tried that finds more of them, whatever the seed; only the whole answer is sure to."""
    champion = report.curves.champion
    points = () if champion is None else report.curves.curve(champion, "asc", about(report).key).points
    at = float(report.looked_at["budget"])
    now = next((point.high for point in points if point.budget == at), math.inf)
    more = next((point for point in points if point.budget > at and point.low > now), None)
    if more is None:
        return "no larger budget that was tried is sure to find more of them, the exact join finds all"
    return f"allow {asked(more.budget)}, which finds {percent(more.mean)} of them"


def _intervals(report: AccuracyReport) -> Iterator[str]:
    low = [one for one in report.coverage if one.is_low]
    if low:
        nominal = low[0].nominal
        kind = "Bounds that should be certain" if nominal == 1.0 else f"Intervals with a nominal {percent(nominal)}"
        yield (
            f"{kind} held the truth only in {listing([one.words() for one in low])}, fewer than chance allows: do not "
            "rely on them there."
        )
