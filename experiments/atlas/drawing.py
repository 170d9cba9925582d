"""One chart of the atlas: a metric on a panel, with its legend, its sentence and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nile.report.pages.cells import value_cell
from nile.report.pages.markup import Markup, element, joined
from nile.report.pages.svg import chart, swatch
from nile.report.pages.tables import folded
from nile.report.runs import Curve, Figure, Point, Series, slots
from nile.report.wording import Amount, grouped_digits, listing, percent, shown

__all__ = ["panel_chart", "panel_name", "place"]

Table = Mapping[str, Any]

PANELS = {
    ("data", "synthetic"): "synthetic streams",
    ("data", "real"): "real data",
    ("costs", "engine"): "engine costs",
    ("costs", "memory"): "memory costs",
}


class _Own(Series):
    """A method that is no opponent: its line has no dashes."""

    @property
    def is_nile(self) -> bool:
        """Drawn as ours."""
        return True


def panel_name(panel: Table) -> str:
    """`synthetic streams, engine costs`."""
    return ", ".join(PANELS.get((option, value), f"{option} {value}") for option, value in panel.items()) or "measured"


def place(axis: Table, x: Any, number: int) -> Amount:
    """Where a value of the axis stands, and how it is written.  number: its place among the values."""
    value = float(number) if isinstance(x, str) else float(x)
    texts = {
        "share": lambda: percent(float(x)),
        "milliseconds": lambda: f"{x:g} ms",
        "seconds": lambda: f"{x:g} s",
        "number": lambda: grouped_digits(x) if float(x) >= 1000 else f"{x:g}",
        "name": lambda: str(x),
    }
    return Amount.named(value, texts[axis["unit"]]())


def panel_chart(each: Table, panel: Table, metric: str) -> Markup:
    """The figure of one metric on one panel: sentence, legend, drawing, table."""
    axis, told = each["axis"], each["metrics"][metric]
    figure = Figure(metric, told["title"], told["short"], told["axis"], told["unit"], told["better"])
    curves_of = panel["curves"][metric]
    xs = list(dict.fromkeys(point["x"] for curve in curves_of.values() for point in curve))
    places = {x: place(axis, x, number) for number, x in enumerate(xs)}
    curves = []
    held = dict(zip(each["methods"], slots([*each["methods"]]), strict=True))
    for name, points in curves_of.items():
        made = _Own if each["methods"][name]["own"] else Series
        drawn = tuple(
            Point(places[one["x"]], one["middle"], one["low"], one["high"], one["seeds"])
            for one in points
            if one["middle"] is not None
        )
        curves.append(Curve(made(name, None, held[name]), drawn))
    title = panel_name(panel["panel"])
    said = _reading(figure, curves, list(places.values()))
    drawing = Markup()
    if any(curve.points for curve in curves):
        drawing = joined(
            element("ul", *(element("li", swatch(one.series), one.series.name) for one in curves), class_="legend"),
            element("p", figure.axis, class_="axis"),
            chart(
                figure,
                curves,
                (),
                list(places.values()),
                label=f"{figure.title}, {title}. {said}",
                scale=axis["scale"],
                what="",
            ),
            element("p", f"{axis['label']}{' (log scale)' if axis['scale'] == 'log' else ''}", class_="axis across"),
        )
    return element(
        "figure",
        element("figcaption", element("h3", f"{figure.title}: {title}"), element("p", said, class_="reading")),
        drawing,
        _numbers(figure, axis, curves, list(places.values()), each["seeds"]),
        class_="chart",
    )


def _reading(figure: Figure, curves: Sequence[Curve], places: Sequence[Amount]) -> str:
    """What the chart shows at its first and its last place, best first, in words."""
    parts = []
    for at in dict.fromkeys((places[0], places[-1])) if places else ():
        found = [(point.mean, curve.series.name) for curve in curves if (point := curve.at(at))]
        found.sort(key=lambda one: -one[0] if figure.better >= 0 else one[0])
        if found:
            told = listing([f"{name} {shown(value, figure.unit)}" for value, name in found])
            parts.append(f"At {at.text}: {told}.")
    return " ".join(parts) or "No method has this figure anywhere."


def _numbers(figure: Figure, axis: Table, curves: Sequence[Curve], places: Sequence[Amount], seeds: int) -> Markup:
    """The table of the chart: a row a place, a column a method; the range over the seeds below each mean."""
    head = element(
        "tr", *(element("th", name, scope="col") for name in (axis["label"], *(one.series.name for one in curves)))
    )
    rows = [
        element("tr", element("th", at.text, scope="row"), *(value_cell(figure, one.at(at), seeds) for one in curves))
        for at in places
    ]
    table = element("table", element("thead", head), element("tbody", *rows))
    return folded("Numbers", table)
