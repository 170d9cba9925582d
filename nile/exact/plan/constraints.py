"""Known constraints on streams, which let joins evict tuples that cannot find a partner any more.

ordered: a tuple after which more than k came is never above one that comes; clustered: at most k tuples lie between one
of a value and the next of that value; many one: each tuple of a child has one parent at most; referential: it has one,
which is among the first k tuples of the parent's stream after the child, if it has not come before; punctuated: the
stream says of which values no more will come.
Source: STREAM (CIDR 2003), section 4.1.  Clusters there bound what lies between any two tuples of a value; here
between neighbours, which asks for less, so what holds there holds here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from nile.summaries.errors import ConstraintViolation

__all__ = ["Kind", "Promise", "StreamConstraint"]

Kind = Literal["ordered", "clustered", "many one", "referential", "punctuated"]


@dataclass(eq=False)
class StreamConstraint:
    """One constraint, which all joins that rely on it have in common, so that k may be raised while they run.

    within: k, tuples; None: nothing is forgotten by it.  broken: what came against it, where that is not allowed.
    """

    DERIVED: ClassVar = ("kind", "within", "broken")

    kind: Kind
    within: int | None = None
    broken: str | None = None

    def check(self) -> None:
        """Raises ConstraintViolation."""
        if self.broken is not None:
            raise ConstraintViolation(self.broken)


@dataclass(frozen=True, slots=True)
class Promise:
    """A constraint as a join of two streams meets it.

    side: 0 or 1, the stream that is ordered or clustered, or the child; on: which of the join's pairs of columns.
    """

    constraint: StreamConstraint
    side: int
    on: tuple[int, ...]
