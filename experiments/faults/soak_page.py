"""The page of a soak: what was asked, whether memory and descriptors grew, the curve of both, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from nile.report.pages.document import document
from nile.report.pages.markup import Markup, element, joined
from nile.report.pages.svg import chart, swatch
from nile.report.pages.tables import folded, table
from nile.report.runs import Curve, Figure, Point, Series
from nile.report.wording import Amount

if TYPE_CHECKING:
    from nile.experiments.faults.soak import SoakReport

__all__ = ["soak_page"]

_POINTS = 60
"""Drawn at most: each is the mean of the samples around it, with their range."""
_FIGURE = Figure("anonymous", "Anonymous memory", "memory", "anonymous memory, MB", "number", -1)
_HELD = Series("held", None, 0)
_ALL = Series("with what allocators kept for later", None, 1)


def soak_page(report: SoakReport) -> str:
    """The whole page as HTML."""
    asked = report.asked
    header = element(
        "header",
        element("p", "Nile, standing queries over live streams", class_="eyebrow"),
        element("h1", f"Soak: {asked.minutes:g} minutes, {asked.queries} standing queries"),
        element("p", report.verdict(), class_="headline"),
    )
    told = [element("li", line) for line in report.text().splitlines()]
    binned = _binned(report)
    places = [place for place, *_ in binned]
    curves = [
        Curve(series, tuple(_point(place, [row[at] for row in rows]) for place, rows in binned))
        for at, series in enumerate((_ALL, _HELD))
    ][::-1]
    drawing = Markup()
    if len(places) > 1:
        drawing = joined(
            element("ul", *(element("li", swatch(one.series), one.series.name) for one in curves), class_="legend"),
            element("p", _FIGURE.axis, class_="axis"),
            chart(_FIGURE, curves, (), places, label=f"Anonymous memory over time. {report.verdict()}", scale="linear",
                  what="at "),
            element("p", "minutes since the start", class_="axis across"),
        )  # fmt: skip
    names = ("minute", "held, MB", "from", "to", "most that allocators kept, MB")
    rows = [(place.text, *_told([held for _, held in found]), f"{max(both - held for both, held in found):.2f}")
            for place, found in binned]  # fmt: skip
    figure = element(
        "figure",
        element("figcaption", element("h3", _FIGURE.title), element("p", report.verdict(), class_="reading")),
        drawing,
        folded("Numbers", table(names, rows)),
        class_="chart",
    )
    return document("Soak", header, element("section", element("ul", *told, class_="prose")),
                    element("section", element("div", figure, class_="charts")))  # fmt: skip


def _binned(report: SoakReport) -> list[tuple[Amount, list[tuple[float, float]]]]:
    """Samples next to each other: (minute, [(all anonymous memory, what of it is held), MB])."""
    size = -(-len(report.curve) // _POINTS)
    out = []
    for begin in range(0, len(report.curve), size):
        part = report.curve[begin : begin + size]
        minute = fmean(at for at, *_ in part)
        rows = [((held + kept) / 1e6, held / 1e6) for _, held, kept, _ in part]
        out.append((Amount.named(minute, f"{minute:.1f}" if report.asked.minutes < 10 else f"{minute:.0f}"), rows))
    return out


def _told(values: Sequence[float]) -> tuple[str, str, str]:
    return f"{fmean(values):.2f}", f"{min(values):.2f}", f"{max(values):.2f}"


def _point(place: Amount, values: Sequence[float]) -> Point:
    return Point(place, fmean(values), min(values), max(values), len(values))
