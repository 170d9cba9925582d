"""Tables of plain values, and what folds them away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nile.report.pages.markup import Markup, element

__all__ = ["folded", "table"]


def table(names: Iterable[str], rows: Iterable[Sequence[object]]) -> Markup:
    """names: of the columns; rows: the cells of each, the first being the row's head.  All is escaped."""
    head = element("tr", *(element("th", name, scope="col") for name in names))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    ]
    return element("table", element("thead", head), element("tbody", *body))


def folded(title: str, what: Markup, *, is_open: bool = False) -> Markup:
    """A table under a title that opens it; a wide one scrolls."""
    return element("details", element("summary", title), element("div", what, class_="scroll"), open=is_open)
