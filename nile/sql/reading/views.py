"""Views while a statement is read: which names mean one, which are being read, and whose text an offset lies in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nile.expressions.places import Fault, line_and_column
from nile.sql.binding.scope import find
from nile.sql.catalog import Catalog
from nile.sql.statements import CreateView

__all__ = ["Views"]


class Views:
    """The views that one statement names.

    Their texts lie one behind another after the statement's own, so that an offset says which of them it is in.
    length: of the statement; making: the name of the view that it makes, which may not name itself.
    """

    def __init__(self, catalog: Catalog, length: int, making: str | None = None) -> None:
        self._catalog = catalog
        self._end = length + 1
        self._reading = [] if making is None else [making]
        self._texts: list[tuple[int, CreateView, int]] = []

    def find(self, name: str) -> CreateView | None:
        """The view that a name means; None where it means none, or a stream or stored relation."""
        found = find(name, [*self._catalog.entries, *self._catalog.views])
        return self._catalog.views.get(found[0]) if len(found) == 1 else None

    @contextmanager
    def reading(self, view: CreateView, start: int) -> Iterator[int]:
        """While the text of a view is read that is named at `start`: where it begins.  Raises Fault for a circle."""
        if view.name in self._reading:
            raise Fault(
                f"needed a view that does not read itself; got '{view.name}' inside of {self._reading[-1]}; name a "
                "stream, or another view",
                start,
            )
        begin, self._end = self._end, self._end + len(view.text) + 1
        self._texts.append((begin, view, start))
        self._reading.append(view.name)
        yield begin
        self._reading.pop()

    def placed(self, fault: Fault) -> Fault:
        """The same fault, of a view's text: at the place in the statement where the view is named."""
        for begin, view, start in reversed(self._texts):
            if fault.start is not None and fault.start >= begin:
                line, column = line_and_column(view.text, fault.start - begin)
                fault.reason = f"view '{view.name}', line {line}, column {column}: {fault.reason}"
                fault.start = start
        return fault
