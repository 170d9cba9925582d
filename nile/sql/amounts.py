"""Durations and budgets as statements say them."""

from __future__ import annotations

from nile.base.durations import format_duration

__all__ = ["budget_text", "duration_text"]

_BUDGETS = {
    "fraction": "",
    "share": " SHARE",
    "seconds": " SECONDS",
    "seconds_per_tuple": " SECONDS PER TUPLE",
    "outputs": " OUTPUTS",
}


def duration_text(ns: int) -> str:
    return f"'{format_duration(ns)}'"


def budget_text(unit: str, amount: float) -> str:
    """A budget as a statement says it."""
    if unit == "deadline":
        return f"BY DEADLINE {duration_text(round(1e9 * amount))}"
    return f"BUDGET {int(amount) if unit == 'outputs' else repr(amount)}{_BUDGETS[unit]}"
