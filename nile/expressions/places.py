"""Where in a statement something is, and the error that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from nile.summaries.errors import NileError, NotYet, SqlError

if TYPE_CHECKING:
    from nile.expressions.tree import Node

__all__ = ["Fault", "NotYetFault", "Parameter", "line_and_column", "listed", "nearest", "statement_error"]

_MAX_REASON = 800


class Fault(Exception):
    """What is wrong, and at which character: a caller inside `nile.sql` makes a NileError of it.

    start: the offset in the text, from 0.  node: the part of a tree that it is about, whose place the reader of
    the text knows.
    """

    def __init__(self, reason: str, start: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.start = start
        self.node: Node | None = None


class NotYetFault(Fault):
    """Something that means something, and that Nile cannot run yet."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A ? or $name: what it holds, how it is written, and the clause that it stands in."""

    value: Any
    text: str
    clause: str

    def __str__(self) -> str:
        return f"the parameter {self.text} in {self.clause}"

    def misplaced(self, start: int) -> Fault:
        """That it stands where no value can."""
        return Fault(
            f"needed a parameter where a value can stand; got {self.text} in {self.clause}; write out what is meant",
            start,
        )


def line_and_column(text: str, start: int) -> tuple[int, int]:
    """Of the character at offset `start`, both from 1."""
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def statement_error(fault: Fault, text: str) -> NileError:
    """The error of a statement: SqlError, or NotYet, whose message begins with line and column where it has them."""
    reason = fault.reason
    if len(reason) > _MAX_REASON:  # names and literals may be as long as a statement
        reason = f"{reason[: _MAX_REASON // 2]} ... {reason[-_MAX_REASON // 2 :]}"
    if fault.start is None:
        return NotYet(reason) if isinstance(fault, NotYetFault) else SqlError(reason)
    line, column = line_and_column(text, fault.start)
    message = f"line {line}, column {column}: {reason}"
    return NotYet(message) if isinstance(fault, NotYetFault) else SqlError(message, line=line, column=column)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, letters' case aside; None: none is like it."""
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.lower(), each)
    near = get_close_matches(name[:200].lower(), folded, n=1)
    return folded[near[0]] if near else None


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message, the first `most` of them."""
    shown = list(names)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
