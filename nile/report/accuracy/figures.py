"""Which figure a query is about, by its kind and its preference, and what of it was looked at closely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nile.report.runs import FIGURES, Figure
from nile.report.wording import Amount, asked

if TYPE_CHECKING:
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["FOUND", "about", "looked_at", "what"]

FOUND = Figure("found", "Share of the exact rows", "share of rows", "of the exact rows", "share", 1)
"""The recall of a selection."""


def about(report: AccuracyReport) -> Figure:
    """What the preference is asked to be good at.  Of a selection asc is a matter of order, not of rare things."""
    if report.preference == "weighted":
        return FIGURES["hist_mse_key"]
    if report.kind == "selection":
        return FOUND
    return FIGURES["outlier_recall" if report.preference == "asc" else "recall"]


def what(figure: Figure) -> str:
    """What a share of it is a share of."""
    return {"outlier_recall": "the outliers"}.get(figure.key, "the output")


def looked_at(report: AccuracyReport) -> str:
    """The budget of the run that was looked at closely, in words."""
    unit = str(report.looked_at.get("budget_unit") or "fraction")
    return asked(Amount.of(float(report.looked_at["budget"]), unit))
