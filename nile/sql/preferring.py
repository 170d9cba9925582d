"""The preference of a bound query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nile.expressions.tree import Node

__all__ = ["Preference", "Term"]


@dataclass(frozen=True, slots=True)
class Term:
    """What a preference looks at: the estimated count of a column's value, or that count times the value.

    parts: where the column is what a summary is of and none of its stream's own, the expressions that it is made of.
    factor: what the count is multiplied by, an expression over columns of one stream, called as in the plan.
    """

    column: str
    by: Literal["count", "value"] = "count"
    parts: tuple[Node, ...] = ()
    factor: Node | None = None


@dataclass(frozen=True, slots=True)
class Preference:
    """WITH PREFERENCE kind term, ... FADE FACTOR fade."""

    kind: Literal["asc", "desc", "weighted"]
    terms: tuple[Term, ...] = ()
    fade: float = 1.0
