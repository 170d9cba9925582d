"""What WITH PREFERENCE looks at: columns, what summaries are of, and estimates times what tuples are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nile.sql.cursor import Cursor, ends_of_parts

__all__ = ["TermClause", "read_term"]

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TermClause:
    """What a preference looks at, as written.

    parts: spans of expressions, where it is no single column; factor: that of what the count is multiplied by, where
    it is not the column that is counted.
    """

    qualifier: str | None
    name: str
    by: Literal["count", "value"]
    start: int
    parts: tuple[Span, ...] = ()
    factor: Span | None = None


def read_term(cursor: Cursor, ends: Callable[[], bool]) -> TermClause:
    """SUMMARY.Estimate.Count(column), COUNT(column) or column; the first two maybe times an expression over columns.

    In brackets, with COUNT or without, also what a summary is of: expressions, and several of them.
    ends: whether another clause begins, or SQL goes on.  Raises Fault.
    """
    start = cursor.start
    cursor.take("SUMMARY", ".", "ESTIMATE", ".")
    counted = cursor.take("COUNT", "(")
    if not counted and cursor.start != start:
        raise cursor.fault("Count(column)")
    column: tuple[str | None, str] = (None, "")
    parts = _parts(cursor, counted)
    if parts is None:
        column, parts = _column(cursor), ()
        if counted:
            cursor.need(")")
    if not counted or not (cursor.take("*") or cursor.take("\u00d7")):
        return TermClause(*column, "count", start, parts)
    begin = cursor.at
    if not parts and _is_column(cursor) and _column(cursor) == column and (_is_over(cursor) or ends()):
        return TermClause(*column, "value", start)
    cursor.at = begin
    return TermClause(*column, "count", start, parts, _factor(cursor, ends))


def _is_over(cursor: Cursor) -> bool:
    return cursor.peek() is None or cursor.word() == ","


def _is_column(cursor: Cursor) -> bool:
    token = cursor.peek()
    return token is not None and token.kind in ("VAR", "IDENTIFIER")


def _factor(cursor: Cursor, ends: Callable[[], bool]) -> Span:
    """The tokens up to the next comma, clause or end, stepped over."""
    begin, depth = cursor.at, 0
    while cursor.peek() is not None and (depth or not (cursor.word() == "," or (cursor.at > begin and ends()))):
        depth += (cursor.word() == "(") - (cursor.word() == ")")
        if depth < 0:
            break
        cursor.at += 1
    if cursor.at == begin:
        raise cursor.fault("a column, or an expression over columns")
    return cursor.tokens[begin].start, cursor.tokens[cursor.at - 1].end


def _parts(cursor: Cursor, counted: bool) -> tuple[Span, ...] | None:
    """Spans of a list of expressions in brackets, stepped over; None where it is one column, or none is open."""
    if not counted and not cursor.take("("):
        return None
    ends = ends_of_parts(cursor)
    if counted and len(ends) == 1 and ends[0] - cursor.at in (1, 3) and cursor.word(1) in (")", "."):
        return None
    spans = []
    for end in ends:
        spans.append((cursor.start, cursor.tokens[end - 1].end))
        cursor.at = end + 1
    return tuple(spans)


def _column(cursor: Cursor) -> tuple[str | None, str]:
    name = cursor.name("a column").text
    if not cursor.take("."):
        return None, name
    return name, cursor.name("a column").text
