"""Histograms exact versus obtained, and told intervals around the truth, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nile.report.histograms import Histogram
from nile.report.pages.markup import Markup, element
from nile.report.pages.svg import HEIGHT, INSET, Axis, grid, linear_axis
from nile.report.pages.tables import folded, table
from nile.report.wording import grouped_digits, percent, plain_number, small

__all__ = ["Compared", "Told", "histogram_figure", "intervals_chart"]

_CEILING = 2.0
"""Intervals are cut at this many times the truth at least, so that one wide end does not flatten the others."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A histogram with its words.  across: what the bins are of; bins: the text of each, empty where it has none."""

    title: str
    across: str
    bins: tuple[str, ...]
    histogram: Histogram

    def shares(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(exact, obtained), each over its own sum; zeros where there is nothing."""
        exact, obtained = self.histogram.exact, self.histogram.obtained
        whole, found = sum(exact) or 1, math.fsum(obtained) or 1.0
        return tuple(count / whole for count in exact), tuple(weight / found for weight in obtained)

    def reading(self) -> str:
        """Where obtained and exact differ most, in a sentence."""
        mse = self.histogram.mse
        if mse is None:
            return "Nothing to compare: the exact answer or what was found is empty."
        exact, obtained = self.shares()
        gaps = [got - wanted for got, wanted in zip(obtained, exact, strict=True)]
        at = max(range(len(gaps)), key=lambda i: abs(gaps[i]))
        told = f"The obtained histogram, by weights, lies {small(mse)} from the exact one (Hist-MSE)"
        if abs(gaps[at]) < 5e-4:
            return f"{told}; no bin is off by 0.05 % of the whole."
        most = f"{percent(obtained[at])} obtained, {percent(exact[at])} exact"
        return f"{told}; they differ most at {self.bins[at]}: {most}."

    def record(self) -> dict[str, Any]:
        """As it stands in the JSON."""
        histogram = self.histogram
        return {
            "title": self.title, "across": self.across, "mse": histogram.mse, "bins": list(self.bins),
            "exact": list(histogram.exact), "obtained": list(histogram.obtained),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """An interval to draw, all over the truth: low, value, high (high may be infinite).  group: its place across."""

    group: str
    low: float
    value: float
    high: float
    held: bool
    title: str


def histogram_figure(compared: Compared) -> Markup:
    """The chart with its sentence, its legend and its table, for a page."""
    exact, obtained = compared.shares()
    said = compared.reading()
    axis = linear_axis([*exact, *obtained], "share")
    width = (100 - 2 * INSET) / max(1, len(exact))
    parts = [grid(axis)]
    for i, name in enumerate(compared.bins):
        x = INSET + i * width
        told = element("title", f"{name}: {percent(exact[i])} exact, {percent(obtained[i])} obtained")
        parts.append(element("g", told, _bar(axis, x, width, exact[i], "was"), _bar(axis, x + 0.25 * width,
                             0.5 * width, obtained[i], "got")))  # fmt: skip
    label = f"{compared.title}. {said}"
    svg = element("svg", *parts, role="img", aria_label=label, width="100%", height=HEIGHT)
    legend = [element("li", _swatch(name), text) for name, text in (("was", "exact"), ("got", "obtained, by weights"))]
    return element(
        "figure",
        element("figcaption", element("h3", compared.title), element("p", said, class_="reading")),
        element("ul", *legend, class_="legend"),
        element("p", "share of the whole", class_="axis"),
        element("div", svg, class_="plot"),
        element("p", compared.across, class_="axis across"),
        _bins_table(compared, exact, obtained),
        class_="chart",
    )


def intervals_chart(told: Sequence[Told], groups: Sequence[str], *, label: str) -> Markup:
    """Intervals side by side in their groups, the truth as a line at 100 %; those that missed it are marked apart."""
    ends = [one.high for one in told if math.isfinite(one.high)] + [one.value for one in told]
    ceiling = max(_CEILING, *(min(end, 2 * _CEILING) for end in ends)) if ends else _CEILING
    axis = linear_axis([0.0, ceiling], "share")
    width = (100 - 2 * INSET) / max(1, len(groups))
    y = axis.place(1.0)
    parts = [
        grid(axis),
        element("line", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="reference"),
        element("text", "truth", x="6", y=f"{y - 7:.1f}", class_="tick"),
    ]
    for g, name in enumerate(groups):
        mine = [one for one in told if one.group == name]
        left = INSET + g * width
        parts += [_interval(axis, ceiling, left + width * (i + 1) / (len(mine) + 1), one) for i, one in enumerate(mine)]
        parts.append(element("text", name, x=f"{left + width / 2:.2f}%", y=HEIGHT + 20, class_="tick middle"))
    svg = element("svg", *parts, role="img", aria_label=label, width="100%", height=HEIGHT)
    return element("div", svg, class_="plot")


def _interval(axis: Axis, ceiling: float, x: float, one: Told) -> Markup:
    """A line from low to high, an open end where it goes on above the chart; a dot where held, a cross where not."""
    at = f"{x:.2f}%"
    low, high, value = (axis.place(min(max(part, 0.0), ceiling)) for part in (one.low, one.high, one.value))
    kind = "s0" if one.held else "miss"
    line = element("line", x1=at, x2=at, y1=f"{low:.1f}", y2=f"{high:.1f}", class_=f"told {kind}")
    shape = "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z" if one.held else "M-4,-4L4,4M-4,4L4,-4"
    mark = element("svg", element("path", d=shape, class_=f"shape {kind}"), x=at, y=f"{value:.1f}", class_="mark")
    return element("g", element("title", one.title), line, mark)


def _bar(axis: Axis, x: float, width: float, share: float, kind: str) -> Markup:
    y = axis.place(share)
    return element(
        "rect", x=f"{x:.3f}%", width=f"{width:.3f}%", y=f"{y:.1f}", height=f"{max(0.0, HEIGHT - y):.1f}", class_=kind
    )


def _swatch(kind: str) -> Markup:
    rect = element("rect", width="14", height="12", y="2", class_=kind)
    return element("svg", rect, width="14", height="16", class_="swatch", aria_hidden="true")


def _bins_table(compared: Compared, exact: Sequence[float], obtained: Sequence[float]) -> Markup:
    names = (compared.across, "exact", "share", "obtained, weights", "share")
    rows = [
        (name, grouped_digits(count), percent(exact[i]), plain_number(weight), percent(obtained[i]))
        for i, (name, count, weight) in enumerate(
            zip(compared.bins, compared.histogram.exact, compared.histogram.obtained, strict=True)
        )
        if name
    ]
    return folded("Numbers", table(names, rows))
