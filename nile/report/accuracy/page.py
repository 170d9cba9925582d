"""The page of an accuracy report: one file, made only from the report's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nile.report.accuracy.figures import FOUND, looked_at
from nile.report.accuracy.intervals import reading
from nile.report.accuracy.outliers import LISTED, OutlierPair
from nile.report.pages import prose
from nile.report.pages.bars import Told, histogram_figure, intervals_chart
from nile.report.pages.budgets import budget_story
from nile.report.pages.curves import curve_figure
from nile.report.pages.document import document
from nile.report.pages.duels import verdict_section
from nile.report.pages.heatmap import moment
from nile.report.pages.markup import Markup, element, joined
from nile.report.pages.questions import preference_section
from nile.report.pages.tables import folded, table
from nile.report.runs import FIGURES
from nile.report.wording import Amount, asked, duration, grouped_digits, listing, percent, plain_number, tick

if TYPE_CHECKING:
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["render"]

KINDS = {
    "join": "a join of two streams",
    "combinations": "a join of several streams, or of two under a condition",
    "selection": "a selection",
    "aggregate": "aggregates",
}


def render(report: AccuracyReport) -> str:
    """The whole page as HTML text."""
    return document(
        "Nile: how good is this answer?",
        _header(report),
        _advice(report),
        *_curves(report),
        *_groups(report),
        *_histograms(report),
        *_outliers(report),
        *_intervals(report),
        *_cells(report),
        _measured(report),
    )


def _header(report: AccuracyReport) -> Markup:
    runs = report.curves
    what = "numbers" if report.kind == "aggregate" else "rows"
    facts = [
        (f"exact {what}", grouped_digits(report.exact)),
        ("preference", report.preference),
        ("looked at closely", looked_at(report)),
        ("found then", "–" if report.recall is None else percent(report.recall)),
        ("budgets", " – ".join(dict.fromkeys(tick(budget) for budget in (*runs.budgets[:1], *runs.budgets[-1:])))),
        ("seeds", grouped_digits(len(runs.seeds))),
        ("runs", grouped_digits(len(report.runs))),
    ]
    return element(
        "header",
        element("p", f"Nile, {KINDS.get(report.kind, report.kind)} against its exact answer", class_="eyebrow"),
        element("h1", "How good is this answer?"),
        element("p", headline(report), class_="headline"),
        element("pre", element("code", report.query)),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", value)) for name, value in facts if value != "–"),
            class_="facts",
        ),
    )


def headline(report: AccuracyReport) -> str:
    """The report in one sentence."""
    if not report.exact:
        return "The exact answer is empty."
    if report.groups is not None:
        return report.groups.reading()
    if report.kind != "selection":
        return prose.headline(report.curves)
    found = [f"{name} finds {percent(share)}" for name, share in _shares(report)]
    return f"With {looked_at(report)} of the work of feeding every tuple, {listing(found)} of the rows."


def _shares(report: AccuracyReport) -> Iterator[tuple[str, float]]:
    """Each method's share of the rows at the budget looked at, the query's own first."""
    runs = report.curves
    first = [one for one in runs.series if one == runs.champion]
    for series in (*first, *(one for one in runs.series if one != runs.champion)):
        point = runs.curve(series, report.preference, FOUND.key).at(float(report.looked_at["budget"]))
        if point is not None:
            yield series.name, point.mean


def _advice(report: AccuracyReport) -> Markup:
    lines = report.advice or ("Nothing stands out.",)
    return element(
        "section",
        element("h2", "What the figures say"),
        element("ul", *(element("li", line) for line in lines), class_="prose"),
    )


def _curves(report: AccuracyReport) -> Iterator[Markup]:
    runs, preference = report.curves, report.preference
    if report.kind == "selection":
        charts = [curve_figure(runs, preference, figure) for figure in (FOUND, FIGURES["hist_mse_key"])]
        what = "A row is a tuple that satisfies the condition; by key is by the value of the column that is preferred."
        yield _section("What was found", what, charts)
    elif report.groups is None:
        yield verdict_section(runs)
        yield preference_section(runs, preference)


def _groups(report: AccuracyReport) -> Iterator[Markup]:
    if report.groups is not None:
        yield report.groups.section(report.curves)


def _histograms(report: AccuracyReport) -> Iterator[Markup]:
    if report.histograms:
        told = (
            f"The run at {looked_at(report)}, first seed. Each output counts with its weight, 1 / inclusion "
            "probability, so that a faithful sample has the shape of the exact answer however small it is."
        )
        yield _section("Exact and obtained", told, [histogram_figure(one) for one in report.histograms])


def _outliers(report: AccuracyReport) -> Iterator[Markup]:
    found = report.outliers
    if found is None:
        return
    lists = [
        _pairs(title, pairs, count)
        for title, pairs, count in (
            ("Missed", found.missed_pairs, found.missed),
            ("Found", found.found_pairs, found.found),
        )
        if count
    ]
    yield element(
        "section",
        element("h2", "Outliers"),
        element("p", f"{found.reading()} The run at {looked_at(report)}, first seed.", class_="prose"),
        *lists,
    )


def _pairs(title: str, pairs: Sequence[OutlierPair], count: int) -> Markup:
    names = ("key", "left", "right", "apart", "tuples of the key")
    rows = [
        (pair.key, moment(pair.left_ts), moment(pair.right_ts), duration(abs(pair.left_ts - pair.right_ts) / 1e9),
         pair.count)
        for pair in pairs
    ]  # fmt: skip
    some = "" if count <= LISTED else f", the {LISTED} of the rarest keys"
    return folded(f"{title}: {grouped_digits(count)}{some}", table(names, rows), is_open=title == "Missed")


def _intervals(report: AccuracyReport) -> Iterator[Markup]:
    if not report.intervals:
        return
    found = report.coverage
    said = reading(found)
    drawn = [one for one in report.intervals if one.is_claim and one.truth]
    groups = [tick(Amount.of(one.budget, report.curves.unit)) for one in found]
    told = [
        Told(
            tick(Amount.of(one.budget, report.curves.unit)), one.low / one.truth, one.value / one.truth,
            one.high / one.truth, one.held,
            f"{one.of}, {asked(one.budget)}, seed {one.seed}: {plain_number(one.value)}, from {plain_number(one.low)} "
            f"to {plain_number(one.high)}; exact {plain_number(one.truth)}: {'held' if one.held else 'missed'}",
        )
        for one in drawn[:_DRAWN]
    ]  # fmt: skip
    chart = intervals_chart(told, groups, label=f"Told intervals around the truth. {said}") if told else Markup()
    names = ("budget", "intervals", "held the truth", "share", "nominal", "mean width over the truth")
    rows = [
        (tick(one.budget), grouped_digits(one.count), grouped_digits(one.held), percent(one.share),
         percent(one.nominal), "open" if one.width is None else percent(one.width))
        for one in found
    ]  # fmt: skip
    figure = element(
        "figure",
        element("figcaption", element("h3", "Told intervals over the exact number"),
                element("p", said, class_="reading")),
        chart,
        element("p", "budget", class_="axis across"),
        folded("Numbers", table(names, rows)),
        class_="chart",
    )  # fmt: skip
    what = (
        "An answer tells how much there is, and between which ends: certain lower bounds under desc and asc, intervals "
        "with a confidence under weighted. Here is how often they held the exact number; a cross is one that did not."
    )
    yield _section("Intervals", what, [figure])


_DRAWN = 400
"""Intervals that are drawn; the table counts all."""


def _cells(report: AccuracyReport) -> Iterator[Markup]:
    if not report.cells:
        return
    asks = report.looked_at.get("guide") == "countsketch"
    told = (
        "It is what this query asks for promise."
        if asks
        else "This query asks another guide, which it did not mislead."
    )
    what = (
        "The summary of each whole stream, cell by cell: what its sketches tell of every key, against how many tuples "
        f"there are. {told}"
    )
    lists = [
        joined(element("h3", f"The worst cells of {one.stream}"),
               element("ul", *(element("li", cell.words()) for cell in one.worst), class_="listed"))
        for one in report.cells
        if one.worst
    ]  # fmt: skip
    yield _section("Where the summary was wrong", what, [one.figure() for one in report.cells], *lists)


_FED = (
    "A budget is a share of what it costs to feed every tuple to every query, the plain exact way. Work is counted in "
    "operations and priced by a fixed cost table, so the same seed gives the same answer on every machine."
)


def _measured(report: AccuracyReport) -> Markup:
    lines = [
        budget_story(report.curves) if report.kind in ("join", "combinations") else _FED,
        "The exact answer is computed by code that shares no sketch with what is judged.",
        *report.notes,
        "report.json, or the JSON file of this page's name beside it, has every figure unrounded.",
    ]
    return element("section", element("h2", "How this was measured"), *(element("p", x, class_="prose") for x in lines))


def _section(title: str, told: str, charts: Sequence[Markup], *more: Markup) -> Markup:
    return element(
        "section",
        element("h2", title),
        element("p", told, class_="prose"),
        element("div", *charts, class_="charts"),
        *more,
    )
