"""Cells of a table of figures."""

from __future__ import annotations

from nile.report.pages.markup import Markup, element
from nile.report.runs import Figure, Point
from nile.report.wording import shown

__all__ = ["value_cell"]


def value_cell(figure: Figure, point: Point | None, seeds: int) -> Markup:
    """The mean, below it the range over the seeds, and how many seeds have it if not all."""
    if point is None:
        return element("td", "–")
    notes = []
    if point.high > point.low:
        notes.append(f"{shown(point.low, figure.unit)} to {shown(point.high, figure.unit)}")
    if point.seeds < seeds:
        notes.append(f"{point.seeds} of {seeds} seeds")
    note = element("span", f"({', '.join(notes)})", class_="spread-text") if notes else Markup()
    return element("td", shown(point.mean, figure.unit), note)
