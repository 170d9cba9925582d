"""Which constraints on streams a join of two of them can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nile.exact.plan.constraints import Promise, StreamConstraint
from nile.expressions.tree import Column
from nile.sql.plan import Filter, Plan, Project, Stream
from nile.sql.statements import Declare

__all__ = ["Known", "Promised", "source_of"]

Known = Mapping[str, tuple[Declare, StreamConstraint]]
"""Constraints by what they say."""
_Place = tuple[str, str]


class Promised:
    """Finds the promises of joins.  used: those that some join goes by, in the order in which they were found."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.used: list[str] = []

    def of(self, left: Plan, right: Plan, on: Sequence[tuple[str, str]]) -> tuple[Promise, ...]:
        """Those of a join of two inputs on these pairs of columns."""
        places = [(source_of(left, a), source_of(right, b)) for a, b in on]
        pairs = [(a, b) for a, b in places if a is not None and b is not None]
        if not self._known or not pairs or len(pairs) < len(places):
            return ()
        found = []
        for text, (said, constraint) in self._known.items():
            for side in range(2):
                at = _places([pair[side] for pair in pairs], said.stream, said.columns)
                if said.parent is not None and at is not None:
                    theirs = [pairs[k][1 - side] for k in at]
                    at = at if theirs == [(said.parent, column) for column in said.parent_columns] else None
                endless = said.kind in ("many one", "punctuated")
                if at is None or (not endless and said.within is None and constraint.within is None):
                    continue
                found.append(Promise(constraint, side, at))
                self.used += [] if text in self.used else [text]
        return tuple(found)


def _places(joined: Sequence[_Place], stream: str, columns: Sequence[str]) -> tuple[int, ...] | None:
    """Where columns of a stream stand among those that a join compares; None: not all of them do."""
    wanted = [(stream, column) for column in columns]
    return tuple(joined.index(each) for each in wanted) if set(wanted) <= set(joined) else None


def source_of(plan: Plan, name: str) -> _Place | None:
    """(stream, column) that a column of a chain of selections and projections is; None: of anything else."""
    match plan:
        case Filter():
            return source_of(plan.input, name)
        case Project():
            node = next((item.node for item in plan.items if item.field.name == name), None)
            return source_of(plan.input, node.name) if isinstance(node, Column) else None
        case Stream():
            return plan.name, name.removeprefix(f"{plan.alias}.")
        case _:
            return None
