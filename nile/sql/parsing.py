"""Statements that are no queries, by recursive descent."""

from __future__ import annotations

from nile.sql.cursor import Cursor
from nile.sql.statements import Statement

__all__ = ["read_other"]

_STATEMENTS = ("SELECT", "CREATE", "SHOW", "DESCRIBE", "DROP", "EXPLAIN")


def read_other(cursor: Cursor) -> Statement:
    """CREATE, SHOW, DESCRIBE or DROP.  Raises Fault."""
    raise cursor.fault(f"one of {', '.join(_STATEMENTS)}", known=_STATEMENTS)
