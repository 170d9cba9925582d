"""Budget curves as inline SVG.

Widths are in per cent and heights in pixels, so a chart fits any column and its text keeps its size: no
viewBox is scaled.  Colours, dashes and fonts are classes of the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nile.report.pages.markup import Markup, element, joined
from nile.report.runs import Curve, Figure, Point, Series
from nile.report.wording import asked, shown, tick

__all__ = ["HEIGHT", "INSET", "Axis", "bar", "chart", "grid", "ideal_swatch", "linear_axis", "swatch"]

HEIGHT = 232
"""Pixels of the plot area."""

INSET = 4.0
"""Per cent of the width kept free left and right of the outermost budgets."""

SHAPES = (
    ("circle", "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z"),
    ("square", "M-4.5,-4.5H4.5V4.5H-4.5Z"),
    ("triangle", "M0,-6L5.6,4.2H-5.6Z"),
    ("diamond", "M0,-6.2L6.2,0L0,6.2L-6.2,0Z"),
    ("lower triangle", "M0,6L5.6,-4.2H-5.6Z"),
    ("cross", "M-2,-5.5H2V-2H5.5V2H2V5.5H-2V2H-5.5V-2H-2Z"),
)
"""A marker a slot, so that colour is never the only difference."""

COLOURS = 6
"""Colours in the style sheet; later slots take them again with another marker."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Ticks of the vertical axis (value, label) and where a value stands, in pixels from the top."""

    ticks: tuple[tuple[float, str], ...]
    place: Callable[[float], float]


def chart(
    figure: Figure,
    curves: Sequence[Curve],
    ideals: Sequence[Curve],
    budgets: Sequence[float],
    *,
    label: str,
    reference: float | None = None,
    scale: str = "log",
    what: str = "budget ",
) -> Markup:
    """One chart: budgets across, `figure` upwards, a curve for each series.

    scale: of the budgets, "log", "linear", or "names" for as many places as there are.  what: said before one.

    ideals: curves of the best that could be expected, dotted.  reference: a level drawn right across (the
    exact answer's own).  label: what a reader who cannot see it is told.
    """
    drawn = [point for curve in (*curves, *ideals) for point in curve.points]
    values = [value for point in drawn for value in (point.low, point.mean, point.high)]
    if reference is not None:
        values.append(reference)
    axis = _log_axis(values) if figure.unit == "distance" else linear_axis(values, figure.unit)
    across = _across(budgets, scale)
    parts = [grid(axis), _ticks(budgets, across)]
    if reference is not None:
        y = axis.place(reference)
        parts.append(element("line", x1="0", x2="100%", y1=_px(y), y2=_px(y), class_="reference"))
        parts.append(element("text", "exact answer", x="6", y=_px(y + (16 if y < 24 else -7)), class_="tick"))
    parts += [_path(ideal, budgets, across, axis, "ideal") for ideal in ideals]
    # The first series is the one the page is about: it is drawn last, on top.
    parts += [_path(curve, budgets, across, axis, "curve") for curve in reversed(curves)]
    parts += [_marks(figure, curve, across, axis, what) for curve in reversed(curves)]
    svg = element("svg", *parts, role="img", aria_label=label, width="100%", height=HEIGHT)
    return element("div", svg, class_="plot")


def swatch(series: Series) -> Markup:
    """A piece of the series' line with its marker, for a legend."""
    line = element("line", x1="1", x2="33", y1="8", y2="8", class_=f"curve {_ink(series)}")
    mark = element("g", _shape(series), transform="translate(17 8)")
    return element("svg", line, mark, width="34", height="16", class_="swatch", aria_hidden="true")


def ideal_swatch() -> Markup:
    """A piece of the dotted line that stands for the ideal, for a legend."""
    line = element("line", x1="1", x2="33", y1="8", y2="8", class_="ideal plain")
    return element("svg", line, width="34", height="16", class_="swatch", aria_hidden="true")


def bar(share: float) -> Markup:
    """A bar that fills `share` of its cell."""
    width = f"{100 * min(max(share, 0.0), 1.0):.2f}%"
    rect = element("rect", width=width, height="8", rx="2")
    return element("svg", rect, width="100%", height="8", class_="bar", aria_hidden="true")


def _across(budgets: Sequence[float], scale: str) -> Callable[[float], float]:
    """Where a budget stands, in per cent of the width."""
    places = {budget: float(i) for i, budget in enumerate(budgets)}
    scales: dict[str, Callable[[float], float]] = {"log": math.log, "linear": float, "names": places.__getitem__}
    of = scales[scale]
    low, high = of(budgets[0]), of(budgets[-1])
    if low == high:
        return lambda _: 50.0
    return lambda budget: INSET + (100 - 2 * INSET) * (of(budget) - low) / (high - low)


def linear_axis(values: Sequence[float], unit: str) -> Axis:
    """From 0 to the greatest value, in round steps."""
    greatest = max(values, default=0.0) or 1.0
    step = 0.2 if unit == "share" and 0.8 < greatest <= 1.2 else _round_step(greatest / 4, unit)
    count = max(1, math.ceil(greatest / step - 1e-9))
    top = count * step
    ticks = tuple((i * step, shown(round(i * step, 12), unit)) for i in range(count + 1))
    return Axis(ticks, lambda value: HEIGHT * (1 - value / top))


def _round_step(least: float, unit: str) -> float:
    """The next step of 1, 2, 2.5 or 5 times a power of ten; for seconds, one that is round in its unit."""
    if unit == "seconds" and least > 1:
        for step in (2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200):
            if step >= least:
                return float(step)
        return 86_400 * _round_step(least / 86_400, "days")
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= least * (1 - 1e-9))


def _log_axis(values: Sequence[float]) -> Axis:
    """Decades from the least to the greatest value; zero has a line of its own, below them."""
    positive = [value for value in values if value > TINY]
    zero = any(value <= TINY for value in values)
    if not positive:
        return Axis(((0.0, "0"),), lambda _: HEIGHT - 1.0)
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    high = max(high, low + 1)
    floor = HEIGHT - (30.0 if zero else 0.0)

    def place(value: float) -> float:
        if value <= TINY:
            return HEIGHT - 1.0
        return floor * (1 - (math.log10(value) - low) / (high - low))

    stride = max(1, math.ceil((high - low) / 6))
    factors = (1, 2, 5) if high - low == 1 else (1,)
    marks = [f * 10.0**d for d in range(low, high, stride) for f in factors] + [10.0**high]
    ticks = [(mark, shown(mark, "distance")) for mark in marks]
    return Axis(((0.0, "0"), *ticks) if zero else tuple(ticks), place)


TINY = 1e-12
"""At and below this a distance is nothing but rounding, and drawn as zero."""


def grid(axis: Axis) -> Markup:
    """Lines across a plot at the ticks of its axis, each with its value."""
    lines = []
    for value, name in axis.ticks:
        y = _px(axis.place(value))
        lines.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="base" if value == 0 else "grid"))
        lines.append(element("text", name, x="-8", y=y, dy="0.32em", class_="tick end"))
    return joined(*lines)


def _ticks(budgets: Sequence[float], across: Callable[[float], float]) -> Markup:
    """Labels of the budgets, leaving out those too near the one before."""
    marks, last = [], -100.0
    for budget in budgets:
        x = across(budget)
        marks.append(element("line", x1=f"{x:.2f}%", x2=f"{x:.2f}%", y1=HEIGHT, y2=HEIGHT + 5, class_="base"))
        if x - last >= 12:
            marks.append(element("text", tick(budget), x=f"{x:.2f}%", y=HEIGHT + 20, class_="tick middle"))
            last = x
    return joined(*marks)


def _path(curve: Curve, budgets: Sequence[float], across: Callable[[float], float], axis: Axis, kind: str) -> Markup:
    """Lines between neighbouring budgets; where a figure does not exist the curve is interrupted."""
    lines = []
    for one, two in pairwise(map(curve.at, budgets)):
        if one and two:
            (x1, y1), (x2, y2) = ((f"{across(point.budget):.2f}%", _px(axis.place(point.mean))) for point in (one, two))
            lines.append(element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"{kind} {_ink(curve.series)}"))
    return joined(*lines)


def _marks(figure: Figure, curve: Curve, across: Callable[[float], float], axis: Axis, what: str) -> Markup:
    marks = []
    for point in curve.points:
        x, y = f"{across(point.budget):.2f}%", _px(axis.place(point.mean))
        if point.high > point.low:
            low, high = _px(axis.place(point.low)), _px(axis.place(point.high))
            marks.append(element("line", x1=x, x2=x, y1=low, y2=high, class_=f"spread {_ink(curve.series)}"))
        told = element("title", _told(figure, curve.series, point, what))
        target = element("circle", r="12", class_="target")
        marks.append(element("svg", element("g", told, target, _shape(curve.series)), x=x, y=y, class_="mark"))
    return joined(*marks)


def _told(figure: Figure, series: Series, point: Point, what: str) -> str:
    text = f"{series.name}, {what}{asked(point.budget)}: {shown(point.mean, figure.unit)}"
    if point.high > point.low:
        text += f" ({shown(point.low, figure.unit)} to {shown(point.high, figure.unit)})"
    return text


def _shape(series: Series) -> Markup:
    return element("path", d=SHAPES[series.slot % len(SHAPES)][1], class_=f"shape {_ink(series)}")


def _ink(series: Series) -> str:
    """The classes that carry the colour, and for an opponent the dashes, of a series."""
    return f"s{series.slot % COLOURS}{'' if series.is_nile else ' opponent'}"


def _px(value: float) -> str:
    return f"{value:.1f}"
