"""An answer in a cell of a notebook: its first rows, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from nile.report.pages.markup import element, joined, void
from nile.summaries.estimate import Estimate

__all__ = ["in_a_notebook", "worded"]


def in_a_notebook(
    state: str,
    columns: Iterable[tuple[str, str]],
    rows: Iterable[Sequence[str]],
    facts: Iterable[tuple[str, str]] = (),
    warnings: Iterable[str] = (),
) -> str:
    """columns: (name, type) of each; rows: the cells of the first; facts: (name, what it is).  All is escaped."""
    heads = (element("th", name, void("br"), element("small", kind)) for name, kind in columns)
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    told = [element("p", element("small", state))]
    told += [element("p", element("small", element("b", f"{name}: "), what)) for name, what in facts]
    told += [element("p", element("small", element("b", "warning: "), what)) for what in warnings]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *body))
    return str(joined(table, *told))


def worded(estimate: Estimate) -> str:
    """A single number with its interval: `1,234, from 1,100 to 1,350 (95 %, not certified)`."""
    value, low, high = float(estimate.value), float(estimate.low), float(estimate.high)
    if low == high or math.isnan(value):
        return f"{value:,.6g}, exactly"
    if not estimate.confidence:
        return f"{value:,.6g}; nothing is claimed"
    proven = f"({100 * estimate.confidence:g} %, {'certified' if estimate.certified else 'not certified'})"
    if high == math.inf:
        return f"{'' if value == low else f'about {value:,.6g}, '}at least {low:,.6g} {proven}"
    return f"{value:,.6g}, from {low:,.6g} to {high:,.6g} {proven}"
