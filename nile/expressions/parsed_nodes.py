"""What sqlglot's nodes say of themselves: where they stand in the text, and how they are written."""

from __future__ import annotations

from typing import Any

from nile.expressions.tokens import DIALECT
from nile.summaries.heavy import sqlglot_errors

__all__ = ["own_start", "sql_of", "start_of"]


def start_of(node: Any) -> int | None:
    """The offset in the text of the first part of a node of sqlglot's that knows its own; None: none does."""
    own = own_start(node)
    if own is not None:
        return own
    starts = [start for start in map(own_start, node.walk()) if start is not None] if hasattr(node, "walk") else []
    return min(starts, default=None)


def own_start(node: Any) -> int | None:
    """The offset in the text of a node itself, where it knows one."""
    meta = getattr(node, "_meta", None)
    start = meta.get("start") if meta else None
    return start if isinstance(start, int) else None


def sql_of(node: Any) -> str:
    """A node as SQL, for a message."""
    if node is None:
        return "nothing"
    try:
        return str(node.sql(dialect=DIALECT, unsupported_level=sqlglot_errors.ErrorLevel.IGNORE))[:80]
    except (ValueError, RecursionError):
        return type(node).__name__.upper()
