"""One figure of some runs over their budgets: sentence, legend, drawing, table."""

from __future__ import annotations

from collections.abc import Sequence

from nile.report.pages import prose
from nile.report.pages.appendix import column
from nile.report.pages.budgets import UNITS
from nile.report.pages.cells import value_cell
from nile.report.pages.markup import Markup, element, joined
from nile.report.pages.svg import chart, ideal_swatch, swatch
from nile.report.pages.tables import folded
from nile.report.runs import Curve, Figure, Runs, number
from nile.report.wording import tick

__all__ = ["curve_figure"]


def curve_figure(runs: Runs, preference: str, figure: Figure) -> Markup:
    """A chart of every series under one preference, for a page."""
    curves = runs.curves(preference, figure.key)
    ideals = runs.curves(preference, figure.ideal) if figure.ideal else ()
    said = prose.reading(runs, preference, figure)
    legend = [element("li", swatch(curve.series), curve.series.name) for curve in curves]
    if ideals:
        legend.append(element("li", ideal_swatch(), "ideal: a uniform sample of as many pairs"))
    reference = number(runs.records[0], "exact_mean_age_s") if figure.key == "mean_age_s" else None
    drawing = Markup()
    if runs.budgets and any(curve.points for curve in curves):
        label = f"{figure.title} under {preference}. {said}"
        drawing = joined(
            element("ul", *legend, class_="legend"),
            element("p", figure.axis, class_="axis"),
            chart(figure, curves, ideals, runs.budgets, label=label, reference=reference),
            element("p", f"budget: {UNITS[runs.unit]} (log scale)", class_="axis across"),
        )
    return element(
        "figure",
        element("figcaption", element("h3", figure.title), element("p", said, class_="reading")),
        drawing,
        element("p", prose.conditions(runs), class_="note"),
        _numbers(runs, figure, curves, ideals),
        class_="chart",
    )


def _numbers(runs: Runs, figure: Figure, curves: Sequence[Curve], ideals: Sequence[Curve]) -> Markup:
    """The table of a chart: a row per budget, a column a series, the ideal in a column of its own."""
    columns = [(curve.series.name, curve) for curve in curves]
    columns += [(f"ideal for {curve.series.name}", curve) for curve in ideals]
    head = element("tr", column("budget"), *(column(name) for name, _ in columns))
    rows = [
        element(
            "tr",
            element("th", tick(budget), scope="row"),
            *(value_cell(figure, curve.at(budget), len(runs.seeds)) for _, curve in columns),
        )
        for budget in runs.budgets
    ]
    table = element("table", element("thead", head), element("tbody", *rows))
    return folded("Numbers", table)
