"""The preference of a bound query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Preference", "Term"]


@dataclass(frozen=True, slots=True)
class Term:
    """What a preference looks at: the estimated count of a column's value, or that count times the value."""

    column: str
    by: Literal["count", "value"] = "count"


@dataclass(frozen=True, slots=True)
class Preference:
    """WITH PREFERENCE kind term, ... FADE FACTOR fade."""

    kind: Literal["asc", "desc", "weighted"]
    terms: tuple[Term, ...] = ()
    fade: float = 1.0
