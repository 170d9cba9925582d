"""unnest(list) in FROM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nile.expressions.places import NotYetFault
from nile.sql.parsed import Expression, Unnested
from nile.sql.reading.select_expressions import plain_only

__all__ = ["read_unnest"]


def read_unnest(
    node: Any, called: tuple[Any, tuple[str, ...]], read: Callable[[Any], Expression], start: int
) -> Unnested:
    """unnest(list) [AS name [(column)]].  called: its alias and the names of its columns.  Raises Fault."""
    if node.args.get("offset"):
        raise NotYetFault(
            "WITH ORDINALITY is not there yet; write row_number() OVER (PARTITION BY what the list is of)", start
        )
    if len(node.expressions) != 1:
        raise NotYetFault(
            "unnest() of several lists in FROM is not there yet; write SELECT unnest(a), unnest(b)", start
        )
    plain_only(node, "expressions", "alias")
    named, columns = called
    return Unnested(read(node.expressions[0]), "unnest" if named is None else str(named.this), start, columns)
